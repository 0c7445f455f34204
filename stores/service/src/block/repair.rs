//! The repair of a replica that has lost its memory. The replica replaces its previous incarnation, for
//! which the others close the connections of all clients. Then it reads each block from f + 1 of them.
//! `docs/internals/stores/blocks.md` explains why nothing is lost.

use std::time::{Duration, Instant};

use remora_store::block::{Membership, Operation, Outcome, Purpose, State};
use remora_verbs::Context;

use super::WINDOW;
use super::client::{Role, Session};
use super::peers::Peers;
use super::replica::Blocks;
use super::servers::Servers;
use crate::error::{Result, bail, ensure, need};

/// Maximum time without progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two rounds in which the other replicas are asked for their state.
const AGAIN: Duration = Duration::from_millis(200);

/// Reads all blocks from the other replicas, and returns this replica's new membership. `begins` is called
/// with the number of blocks and the number of replicas that they are read from.
///
/// # Errors
/// Too few other replicas serve the store, or they stop answering.
pub fn repair<B: Blocks>(
    blocks: &mut B,
    peers: &mut Peers,
    context: Context,
    servers: Servers,
    own: usize,
    begins: impl FnOnce(u64, usize),
) -> Result<Membership> {
    let others = find(peers, own)?;
    let store = others[0].store;
    ensure!(
        others.iter().all(|other| other.store == store),
        Config,
        "the others are of different stores: end those that do not belong to this one"
    );
    let drawn = crate::seed::fresh() as u32;
    let incarnation = Membership::next_incarnation(own, &others, drawn);
    let mut session =
        Session::with_role(context, servers, WINDOW, Role::Repairer { replica: own, incarnation, store })?;
    begins(session.layout()?.blocks, session.connected());
    copy(blocks, &mut session)?;
    let sources = session.sources();
    session.close()?;
    Ok(need!(Membership::repaired(own, incarnation, &sources), Silent, "too few replicas were read"))
}

/// Returns the states of f + 1 replicas that serve the store.
fn find(peers: &mut Peers, own: usize) -> Result<Vec<State>> {
    let needed = peers.replicas() / 2 + 1;
    ensure!(
        needed < peers.replicas(),
        Config,
        "nobody has a copy of a store of one replica: what it held is lost, --new begins an empty one"
    );
    let started = Instant::now();
    loop {
        let answers = peers.ask(Purpose::Ask { replica: own, incarnation: 0 })?;
        let (whole, new): (Vec<State>, Vec<State>) = answers.iter().partition(|answer| answer.is_whole());
        if whole.len() >= needed {
            return Ok(whole);
        }
        if !new.is_empty() {
            bail!(
                Config,
                "replica {} waits for a new store to begin: start this one with --new too, if nothing is to be kept",
                new[0].replica
            );
        }
        if started.elapsed() > PATIENCE {
            bail!(
                Silent,
                "a replica that comes back empty is repaired from {needed} others, and {} of them serve the store: {} (if all have lost it, begin anew: all with --new)",
                whole.len(),
                peers.fault()
            );
        }
        std::thread::sleep(AGAIN);
    }
}

/// Copies the blocks of the other replicas to the empty blocks.
fn copy<B: Blocks>(blocks: &mut B, session: &mut Session) -> Result<()> {
    let count = session.layout()?.blocks;
    let mut next = 0;
    let mut done = 0;
    let mut again = Vec::new();
    let mut moved = Instant::now();
    while done < count {
        while let Some(block) = again.last().copied().or((next < count).then_some(next)) {
            if session.start(Operation::Read, block, &[])?.is_none() {
                break;
            }
            if again.pop().is_none() {
                next += 1;
            }
        }
        let mut fits = true;
        session.turn(|finished| {
            moved = Instant::now();
            match finished.outcome {
                Outcome::Value(value) => {
                    fits &= blocks.install(finished.block, finished.tag, value);
                    done += 1;
                }
                // The other replicas had no free buffer, which is temporary.
                _ => again.push(finished.block),
            }
        })?;
        ensure!(fits, Peer, "a block came that this replica has no place for");
        if moved.elapsed() > PATIENCE {
            bail!(Silent, "the repair stands still after {done} of {count} blocks: {}", session.fault());
        }
    }
    Ok(())
}
