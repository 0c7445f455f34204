//! The behaviour that all commands that serve queue pairs have in common, at the start and while they serve.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use clap::Args;
use remora_host::metrics;
use remora_verbs::Listener;

use remora_options::number::natural;
use remora_options::{ending, print};
use remora_service::server::{Pace, Program, Service};

/// The arguments of every server of queue pairs.
#[derive(Args, Clone, Debug)]
pub struct Conduct {
    /// Address at which to serve counters for Prometheus and `remora top`.
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// Poll without ever sleeping; this is for measurements on a dedicated core.
    #[arg(long)]
    pub spin: bool,
    /// CPU core to run on.
    #[arg(long, value_parser = natural::<usize>)]
    pub core: Option<usize>,
    /// Print the address, and end when the parent process ends.
    #[arg(long, hide = true)]
    pub child: bool,
}

impl Conduct {
    /// Pins this thread to its core, and makes a child process end together with its parent. Callers do this
    /// before they allocate memory.
    ///
    /// # Errors
    /// Fails if the core does not exist or the system refuses.
    pub fn begin(&self) -> Result<()> {
        if let Some(core) = self.core {
            remora_options::cores::pin(core)?;
        }
        if self.child {
            ending::end_with_parent()?;
        }
        Ok(())
    }

    /// Announces what is served and where, and serves until the process is told to stop.
    ///
    /// # Errors
    /// Fails if the address is in use or the NIC reports an error.
    pub fn serve<P: Program>(
        &self,
        description: &str,
        listen: SocketAddr,
        service: &mut Service<P>,
    ) -> Result<()> {
        let listener = Listener::bind(listen).with_context(|| format!("listening at {listen}"))?;
        self.serve_at(&listener, description, service)
    }

    /// Serves as [`serve`](Conduct::serve) does, with a listener that is already bound.
    ///
    /// # Errors
    /// Fails if an address is in use or the NIC reports an error.
    pub fn serve_at<P: Program>(
        &self,
        listener: &Listener,
        description: &str,
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
            let port = service.context.port().kind;
            let listen_address = listener.address();
            eprintln!("serving {description} over {port} at {listen_address}; end with Ctrl-C");
        }
        let pace = Pace { spin: self.spin, child: self.child };
        let stop_flag = ending::flag()?;
        service.work(pace, listener, &stop_flag)?;
        // Objects that a NIC daemon keeps for this server remain, whatever the reason for its end.
        service.context.leave();
        Ok(())
    }
}
