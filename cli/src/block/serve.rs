//! `remora serve block`: one replica.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use clap::Args;
use host::metrics;
use store::block::{Layout, MAX_BLOCK, MAX_REPLICAS, MIN_BLOCK};
use verbs::Listener;

use super::DesignName;
use super::replica::{AbdLock, PrismRs, Replica, Size, Store};
use crate::device::PortArgs;
use crate::serving::program::Memory;
use crate::serving::{Pace, Service};

/// Arguments of `remora serve block`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve block --replica 0 --listen 127.0.0.1:7481\n  remora serve block --replica 1 --listen 10.0.0.2:7481 --port udp --address 10.0.0.2 --blocks 100000\n\nStart 2f + 1 replicas, numbered from 0, all with the same design, --blocks and --block-len; f of them may die. A replica begins\nempty, so one that ended must stay away until the whole store begins anew: docs/BLOCK.md says why."
)]
pub struct ServeArgs {
    /// Design of the replica.
    #[arg(long, default_value = "prism-rs")]
    pub design: DesignName,
    /// Number of this replica in its store, from 0; no two have the same.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..MAX_REPLICAS as i64))]
    pub replica: u32,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address for the set-up of connections.
    #[arg(long, default_value = "127.0.0.1:7481")]
    pub listen: SocketAddr,
    /// Blocks.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub blocks: u64,
    /// Bytes of a block, a multiple of 8.
    #[arg(long, default_value_t = 4096, value_parser = block_len)]
    pub block_len: u32,
    /// Clients at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Address of an endpoint with counters for Prometheus and `remora top`.
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// Poll without ever sleeping: for figures, on a core of its own.
    #[arg(long)]
    pub spin: bool,
    /// Core to stay on.
    #[arg(long)]
    pub core: Option<usize>,
    /// End when the parent process does, after saying the address on standard output.
    #[arg(long, hide = true)]
    pub child: bool,
}

fn block_len(text: &str) -> Result<u32, String> {
    let len = text.parse().ok().filter(|len: &u32| (MIN_BLOCK..=MAX_BLOCK).contains(len));
    len.filter(|len| len.is_multiple_of(8))
        .ok_or_else(|| format!("a multiple of 8 from {MIN_BLOCK} to {MAX_BLOCK}"))
}

/// `remora serve block`.
pub fn run(args: &ServeArgs) -> Result<()> {
    if let Some(core) = args.core {
        crate::bench::cores::pin(core)?;
    }
    if args.child {
        crate::bench::turns::end_with_parent()?;
    }
    match args.design {
        DesignName::PrismRs => serve::<PrismRs>(args, true),
        DesignName::Abdlock => serve::<AbdLock>(args, false),
    }
}

fn serve<S: Store>(args: &ServeArgs, prism: bool) -> Result<()> {
    let context = args.port.open()?;
    let mut memory = Memory { domain: context.alloc_pd()?, regions: Vec::new() };
    let layout = Layout { blocks: args.blocks, block_len: args.block_len };
    let size = Size { replica: args.replica as usize, layout, clients: args.clients };
    let program = Replica::<S>::open(&size, &mut memory)?;
    let mut service = Service::new(context, program, memory, args.clients, prism)?;
    let listener = Listener::bind(args.listen).with_context(|| format!("listening at {}", args.listen))?;
    let endpoint = args
        .metrics
        .map(|address| {
            let context = service.context.clone();
            metrics::Endpoint::start(address, move || context.metrics())
        })
        .transpose()?;
    if args.child {
        println!("{}", listener.address());
    } else {
        if let Some(endpoint) = &endpoint {
            eprintln!("metrics for Prometheus and `remora top` at {}", endpoint.address());
        }
        eprintln!(
            "serving {} blocks of {} bytes as replica {} of {} over {} at {}; end with Ctrl-C",
            args.blocks,
            args.block_len,
            args.replica,
            S::DESIGN.name(),
            args.port.port.name(),
            listener.address(),
        );
    }
    service.work(Pace { spin: args.spin, child: args.child }, &listener, &AtomicBool::new(false))
}
