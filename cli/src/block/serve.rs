//! `remora serve block`: one replica.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use store::block::{Layout, MAX_BLOCK, MAX_REPLICAS, MIN_BLOCK};
use verbs::Context;

use super::DesignName;
use super::replica::{self, AbdLock, Size};
use crate::device::PortArgs;
use crate::serving::Service;
use crate::serving::conduct::Conduct;
use crate::serving::program::{Memory, Program};

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
    #[command(flatten)]
    pub conduct: Conduct,
}

fn block_len(text: &str) -> Result<u32, String> {
    let len = text.parse().ok().filter(|len: &u32| (MIN_BLOCK..=MAX_BLOCK).contains(len));
    len.filter(|len| len.is_multiple_of(8))
        .ok_or_else(|| format!("a multiple of 8 from {MIN_BLOCK} to {MAX_BLOCK}"))
}

/// `remora serve block`.
pub fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    let context = args.port.open()?;
    let mut memory = Memory { domain: context.alloc_pd()?, regions: Vec::new() };
    let layout = Layout { blocks: args.blocks, block_len: args.block_len };
    let size = Size { replica: args.replica as usize, layout, clients: args.clients };
    match args.design {
        DesignName::PrismRs => serve(args, replica::prism_rs(&size, &mut memory)?, context, memory, true),
        DesignName::Abdlock => serve(args, AbdLock::open(&size, &mut memory)?, context, memory, false),
    }
}

fn serve<P: Program>(
    args: &ServeArgs,
    program: P,
    context: Context,
    memory: Memory,
    prism: bool,
) -> Result<()> {
    let mut service = Service::new(context, program, memory, args.clients, prism)?;
    let what = format!(
        "{} blocks of {} bytes as replica {} of {}",
        args.blocks,
        args.block_len,
        args.replica,
        args.design.name()
    );
    args.conduct.serve(&what, &args.port, args.listen, &mut service)
}
