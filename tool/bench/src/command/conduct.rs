//! How a server process conducts itself: what all commands that serve queue pairs do before, and while, they
//! serve.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use clap::Args;
use remora_host::metrics;
use remora_verbs::Listener;

use super::{ending, print};
use crate::command::number::natural;
use remora_service::server::{Pace, Program, Service};

/// Arguments of every server of queue pairs.
#[derive(Args, Clone, Debug)]
pub struct Conduct {
    /// Address of an endpoint with counters for Prometheus and `remora top`.
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// Poll without ever sleeping: for figures, on a core of its own.
    #[arg(long)]
    pub spin: bool,
    /// Core to stay on.
    #[arg(long, value_parser = natural::<usize>)]
    pub core: Option<usize>,
    /// End when the parent process does, after saying the address on standard output.
    #[arg(long, hide = true)]
    pub child: bool,
}

impl Conduct {
    /// What there is to do before any memory is taken.
    ///
    /// # Errors
    /// There is no such core, or the system refuses.
    pub fn begin(&self) -> Result<()> {
        if let Some(core) = self.core {
            crate::cores::pin(core)?;
        }
        if self.child {
            ending::end_with_parent()?;
        }
        Ok(())
    }

    /// Says that it serves `what`, and where, and serves until it is told to stop.
    ///
    /// # Errors
    /// An address is taken, or the NIC's.
    pub fn serve<P: Program>(&self, what: &str, listen: SocketAddr, service: &mut Service<P>) -> Result<()> {
        let listener = Listener::bind(listen).with_context(|| format!("listening at {listen}"))?;
        self.serve_at(&listener, what, service)
    }

    /// The same, for one that listens already.
    ///
    /// # Errors
    /// An address is taken, or the NIC's.
    pub fn serve_at<P: Program>(
        &self,
        listener: &Listener,
        what: &str,
        service: &mut Service<P>,
    ) -> Result<()> {
        let endpoint = self
            .metrics
            .map(|address| {
                let context = service.context.clone();
                metrics::Endpoint::start(address, move || context.metrics())
            })
            .transpose()?;
        if self.child {
            print::line(listener.address());
        } else {
            if let Some(endpoint) = &endpoint {
                eprintln!("metrics for Prometheus and `remora top` at {}", endpoint.address());
            }
            let (port, at) = (service.context.port().kind, listener.address());
            eprintln!("serving {what} over {port} at {at}; end with Ctrl-C");
        }
        let pace = Pace { spin: self.spin, child: self.child };
        let told = ending::flag()?;
        service.work(pace, listener, &told)?;
        // What a NIC daemon keeps of it stays, however it ends.
        service.context.leave();
        Ok(())
    }
}
