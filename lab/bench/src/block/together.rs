//! Several replicas in one process, each with its own NIC and memory, which one thread polls in turn.
//! Separate processes that poll on one core would wait for the scheduler, and the benchmark would measure
//! that.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use remora_store::block::{Design, Layout, Membership, State};
use remora_verbs::Listener;

use remora_options::device::{LOOPBACK, PortArgs, PortName};
use remora_options::print;
use remora_service::block::{AbdLock, Blocks, PrismRs, Replica, Shared, Size};
use remora_service::server::HeapServer;
use remora_service::server::Memory;
use remora_service::server::{Extensions, Pace, Service, Watch};
use remora_store_cli::designs;

/// Arguments of the hidden command that runs the clients and replicas of one design.
#[derive(Parser)]
pub struct Args {
    #[arg(long, value_parser = designs::block())]
    design: Design,
    #[arg(long)]
    port: PortName,
    #[arg(long)]
    replicas: usize,
    #[arg(long)]
    blocks: u64,
    #[arg(long)]
    block_len: u32,
    #[arg(long)]
    clients: u32,
    #[arg(long)]
    core: usize,
    /// The network namespace of each replica.
    #[arg(long)]
    within: Vec<String>,
    /// The name of the interface in each namespace.
    #[arg(long)]
    interface: Option<String>,
}

/// Prints the port of each replica, one per line, and serves until the parent process ends.
pub fn run(args: &Args) -> Result<()> {
    remora_options::cores::pin(args.core)?;
    remora_options::ending::end_with_parent()?;
    match args.design {
        Design::PrismRs => serve::<HeapServer<PrismRs>>(args, true),
        Design::AbdLock => serve::<AbdLock>(args, false),
    }
}

/// The state of the replicas of a new store, as if they had already found each other.
fn memberships(replicas: usize) -> Result<Vec<Membership>> {
    let new =
        |replica| Membership::new(replica, replicas, replica as u64 + 1).context("an odd number of replicas");
    let mut all = (0..replicas).map(new).collect::<Result<Vec<Membership>>>()?;
    let first = all[0].state().incarnation();
    all[1..].iter_mut().for_each(|other| other.asked(0, first));
    for index in 0..replicas {
        let others = all.iter().enumerate().filter(|(other, _)| *other != index);
        let answers: Vec<State> = others.map(|(_, other)| other.state()).collect();
        ensure!(all[index].take_answers(&answers)?, "replica {index} has not begun");
    }
    Ok(all)
}

fn serve<B: Blocks>(args: &Args, prism: bool) -> Result<()> {
    let mut all = Vec::new();
    for (replica, membership) in memberships(args.replicas)?.into_iter().enumerate() {
        if let Some(space) = args.within.get(replica) {
            remora_netns::enter(space)?;
        }
        let port = PortArgs { interface: args.interface.clone(), ..PortArgs::plain(args.port) };
        let context = port.open()?;
        let mut memory = Memory::of(context.alloc_pd()?);
        let layout = Layout { blocks: args.blocks, block_len: args.block_len };
        let mut blocks = B::open(&Size { layout, clients: args.clients }, &mut memory)?;
        blocks.begin()?;
        let program = Replica::new(blocks, Shared::new(membership));
        let service = Service::new(
            context,
            program,
            memory,
            args.clients,
            Extensions { prism, ..Extensions::default() },
        )?;
        let anywhere: IpAddr = if args.within.is_empty() { LOOPBACK } else { Ipv4Addr::UNSPECIFIED.into() };
        let listener = Listener::bind((anywhere, 0))?;
        print::line(listener.address().port());
        all.push((service, listener, Watch::default()));
    }
    let pace = Pace { spin: true, child: true };
    let parent = rustix::process::getppid();
    loop {
        for (service, listener, watch) in &mut all {
            if service.turn(watch, pace, listener)? && rustix::process::getppid() != parent {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_begin_together_are_of_one_store() {
        let states: Vec<State> = memberships(3).unwrap().iter().map(Membership::state).collect();
        assert!(states.iter().all(|state| state.is_whole() && state.store == states[0].store));
        assert!(memberships(2).is_err());
    }
}
