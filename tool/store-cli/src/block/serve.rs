//! `remora serve block`: serves one replica of a block store.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use remora_service::block::{AbdLock, Blocks, OpenReplica, PrismRs, Progress, ReplicaConfig, Size};
use remora_service::server::HeapServer;
use remora_store::block::{Design, Layout, MAX_REPLICAS};

use super::servers::ServersArgs;
use crate::conduct::Conduct;
use crate::designs;
use remora_options::device::PortArgs;
use remora_options::number::whole;

/// Arguments of `remora serve block`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve block --replica 0 --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483 --new\n  remora serve block --replica 1 --members etcd://127.0.0.1:2379/blocks --port udp --address 10.0.0.2\n\nTo create a store, start all 2f + 1 replicas with --new and the same --design, --blocks and --block-len; they serve once all of them run.\nUp to f replicas may fail at a time. Restart a failed replica without --new: it copies its blocks from the others before it serves.\ndocs/guides/blocks.md explains why."
)]
pub(crate) struct ServeArgs {
    /// Design of the store; it must be the same for all replicas.
    #[arg(long, default_value = "prism-rs", value_parser = designs::block())]
    pub design: Design,
    /// Number of this replica among --servers or --members, counted from 0.
    #[arg(long, value_parser = whole::<u32>(0..=MAX_REPLICAS as u32 - 1))]
    pub replica: u32,
    #[command(flatten)]
    pub servers: ServersArgs,
    /// Create a new, empty store together with all other replicas [default: rejoin an existing store and
    /// copy its blocks from the other replicas].
    #[arg(long)]
    pub new: bool,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address (IP:PORT) on which clients set up their connections [default: this replica's address in
    /// --servers or --members].
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// Number of blocks in the store.
    #[arg(long, default_value_t = 1024, value_parser = whole::<u64>(1..=1 << 24))]
    pub blocks: u64,
    /// Size of a block in bytes, a multiple of 8 from 512 to 65536.
    #[arg(long, default_value_t = 4096, value_parser = designs::block_len)]
    pub block_len: u32,
    /// Clients that may be connected at the same time.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=1024))]
    pub clients: u32,
    #[command(flatten)]
    pub conduct: Conduct,
}

/// Runs `remora serve block`.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    match args.design {
        Design::PrismRs => serve::<HeapServer<PrismRs>>(args),
        Design::AbdLock => serve::<AbdLock>(args),
    }
}

fn serve<B: Blocks>(args: &ServeArgs) -> Result<()> {
    let ServeArgs { replica, blocks, block_len, clients, new, .. } = *args;
    let size = Size { layout: Layout { blocks, block_len }, clients };
    let config = ReplicaConfig { replica: replica as usize, size, new, listen: args.listen };
    let mut open = OpenReplica::<B>::open(&args.port.open()?, args.servers.find()?, &config, &mut tell)?;
    let description =
        format!("{blocks} blocks of {block_len} bytes as replica {replica} of {}", args.design.name());
    let served = args.conduct.serve_at(&open.listener, &description, &mut open.service);
    open.close()?;
    served
}

fn tell(progress: Progress<'_>) {
    match progress {
        Progress::Repairs { blocks, replicas } => {
            eprintln!("repairing {blocks} blocks from {replicas} other replicas");
        }
        Progress::WaitsFor(missing) => {
            let list: Vec<String> = missing.iter().map(ToString::to_string).collect();
            eprintln!("the new store waits for {}", list.join(", "));
        }
    }
}
