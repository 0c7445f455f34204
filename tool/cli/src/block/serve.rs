//! `remora serve block`: one replica.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use remora_store::block::{Layout, MAX_BLOCK, MAX_REPLICAS, MIN_BLOCK, Membership};
use remora_verbs::Listener;

use super::DesignName;
use super::founding::found;
use super::peers::Peers;
use super::repair::repair;
use super::replica::{AbdLock, Blocks, PrismRs, Replica, Shared, Size};
use super::servers::ServersArgs;
use crate::device::PortArgs;
use crate::serving::conduct::Conduct;
use crate::serving::kept::Kept;
use crate::serving::program::Memory;
use crate::serving::{Service, Speaks};

/// Arguments of `remora serve block`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve block --replica 0 --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483 --new\n  remora serve block --replica 1 --members etcd://127.0.0.1:2379/blocks --port udp --address 10.0.0.2\n\nA new store: start all 2f + 1 replicas with --new, the same --design, --blocks and --block-len; none serves before all are there. f of them may\ndie. Start one that died again without --new: it reads its blocks from the others before it serves. docs/BLOCK.md says why."
)]
pub struct ServeArgs {
    /// Design of the replica.
    #[arg(long, default_value = "prism-rs")]
    pub design: DesignName,
    /// Which of the replicas this one is: its place among them, from 0.
    #[arg(long, value_parser = clap::value_parser!(u32).range(..MAX_REPLICAS as i64))]
    pub replica: u32,
    #[command(flatten)]
    pub servers: ServersArgs,
    /// Begin a new, empty store, together with all other replicas. Without this the store lives, and this replica comes back to it.
    #[arg(long)]
    pub new: bool,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address for the set-up of connections [default: this replica's among the servers].
    #[arg(long)]
    pub listen: Option<SocketAddr>,
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

pub fn block_len(text: &str) -> Result<u32, String> {
    let len = text.parse().ok().filter(|len: &u32| (MIN_BLOCK..=MAX_BLOCK).contains(len));
    len.filter(|len| len.is_multiple_of(8))
        .ok_or_else(|| format!("a multiple of 8 from {MIN_BLOCK} to {MAX_BLOCK}"))
}

/// `remora serve block`.
pub fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    match args.design {
        DesignName::PrismRs => serve::<Kept<PrismRs>>(args, true),
        DesignName::Abdlock => serve::<AbdLock>(args, false),
    }
}

fn serve<B: Blocks>(args: &ServeArgs, prism: bool) -> Result<()> {
    let (servers, own) = (args.servers.find()?, args.replica as usize);
    let count = servers.addresses().len();
    ensure!(
        count % 2 == 1 && count <= MAX_REPLICAS,
        "a store of blocks has 1, 3, 5 or 7 replicas, not {count}"
    );
    ensure!(own < count, "there is no replica {own} among {count}: they are numbered from 0");
    let listen = args.listen.unwrap_or(servers.addresses()[own]);
    let context = args.port.open()?;
    let mut memory = Memory::of(context.alloc_pd()?);
    let layout = Layout { blocks: args.blocks, block_len: args.block_len };
    let mut blocks = B::open(&Size { layout, clients: args.clients }, &mut memory)?;
    let domain = memory.domain.clone();
    let mut peers = Peers::new(context.clone(), domain.clone(), servers, own, (B::DESIGN, layout));
    let membership = if args.new {
        Membership::new(own, count, 1 | crate::kv::serve::fresh_seed() >> 2)
            .context("an odd number of replicas")?
    } else {
        // Of an address that is taken one should hear first.
        TcpListener::bind(listen).with_context(|| format!("listening at {listen}"))?;
        repair(&mut blocks, &mut peers, (context.clone(), args.servers.find()?), own)?
    };
    blocks.begin()?;
    let membership = Shared::new(membership);
    let mut replica = Replica::new(blocks, membership.clone());
    let listener = Listener::bind(listen).with_context(|| format!("listening at {listen}"))?;
    if args.new {
        found(&mut peers, &membership, &mut replica, (&context, &domain), &listener)?;
    } else {
        peers.move_mark(&membership)?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let marks = std::thread::Builder::new()
        .name("marks".into())
        .spawn(move || peers.keep_marks(&membership, &told))
        .context("a thread for the numbers of writers")?;
    let mut service = Service::new(
        context,
        replica,
        memory,
        args.clients + MAX_REPLICAS as u32,
        Speaks { prism, ..Speaks::default() },
    )?;
    let what = format!(
        "{} blocks of {} bytes as replica {own} of {}",
        args.blocks,
        args.block_len,
        args.design.name()
    );
    let served = args.conduct.serve_at(&listener, &what, &mut service);
    // It uses the NIC, too, which closes its capture when nobody does any more.
    over.store(true, Ordering::Relaxed);
    marks.join().map_err(|_| anyhow!("the thread for the numbers of writers panicked"))?;
    served
}
