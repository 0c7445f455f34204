//! The recovery of transactions of dead FaRM clients, with the same result at all shards. Each shard
//! recovers the clients whose connections it has closed. Two shards may recover the same client concurrently
//! (`docs/internals/stores/transactions.md`).

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use remora_store::txn::Incarnations;
use remora_store::txn::farm::Shard;
use remora_verbs::Context;

use super::identity::ShardId;
use super::peers::{Peer, Question};
use crate::error::{Context as _, need};
use crate::{Error, Result};

/// A table that the serving and the recovering thread share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Shard>>);

impl Shared {
    /// Returns a shared table.
    pub(crate) fn new(shard: Shard) -> Shared {
        Shared(Arc::new(Mutex::new(shard)))
    }

    /// Locks the table.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        // A thread that panicked leaves the table in a state that clients, too, may leave at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the recovering thread.
struct Recovery {
    context: Context,
    shard: Shared,
    incarnations: Incarnations,
    id: ShardId,
    /// The connections to the other shards. Empty until one of them must be asked, and after one did not
    /// answer.
    peers: Vec<Peer>,
    /// The last warning about a failed attempt.
    warning: String,
}

/// Time between two attempts to recover a client.
const AGAIN: Duration = Duration::from_millis(500);

/// Starts the recovery thread. It recovers the clients whose names it receives and whose connections have
/// been closed here. It ends when the sender is dropped.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn start(
    context: Context,
    shard: Shared,
    incarnations: Incarnations,
    id: ShardId,
) -> Result<Sender<u64>> {
    let (sender, names) = channel();
    let mut recovery =
        Recovery { context, shard, incarnations, id, peers: Vec::new(), warning: String::new() };
    let thread = thread::Builder::new().name("recover".into());
    thread.spawn(move || recovery.work(&names)).context("a thread to recover clients in")?;
    Ok(sender)
}

impl Recovery {
    fn work(&mut self, names: &Receiver<u64>) {
        let mut dead: VecDeque<u64> = VecDeque::new();
        loop {
            let next = match dead.is_empty() {
                true => names.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => names.recv_timeout(AGAIN),
            };
            match next {
                Ok(name) => dead.push_front(name),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for _ in 0..dead.len() {
                let Some(name) = dead.pop_front() else { break };
                if let Err(error) = self.recover(name) {
                    self.in_vain(&error);
                    dead.push_back(name);
                    break;
                }
            }
        }
    }

    /// Logs a failed attempt, once per message; the next attempt reconnects.
    fn in_vain(&mut self, error: &Error) {
        self.peers.clear();
        let warning = error.chain();
        if warning != self.warning {
            tracing::warn!("a dead client's locks stay until all shards answer: {warning}");
            self.warning = warning;
        }
    }

    /// Recovers a client in three rounds: all shards close its connection and report its decided
    /// transactions; then all settle them; then all release the client. This shard releases last, because
    /// until then it can start over.
    fn recover(&mut self, name: u64) -> Result<()> {
        if self.shard.lock().is_untouched(name) {
            // The client has had no lock here, and will request none. The other shards know the locks that
            // it has there.
            self.shard.lock().release(name);
            return Ok(());
        }
        if self.peers.is_empty() {
            self.peers = self.connect()?;
        }
        let mut decided = self.shard.lock().decided(name);
        for peer in &mut self.peers {
            decided.extend(peer.ask(&Question::Decided(name))?);
        }
        decided.sort_unstable();
        decided.dedup();
        self.shard.lock().settle(name, &decided);
        let settle = Question::Settle(name, decided);
        self.peers.iter_mut().try_for_each(|peer| peer.ask(&settle).map(drop))?;
        let release = Question::Release(name);
        self.peers.iter_mut().try_for_each(|peer| peer.ask(&release).map(drop))?;
        self.shard.lock().release(name);
        tracing::info!(name, "what a dead client had begun is ended");
        Ok(())
    }

    fn connect(&self) -> Result<Vec<Peer>> {
        let others = (0..self.id.shards).filter(|shard| *shard != self.id.shard);
        let peer = |shard| {
            let member = self.incarnations.member(shard);
            let member = need!(member, Silent, "no client has told yet where shard {shard} is");
            Peer::connect(&self.context, member)
        };
        others.map(peer).collect()
    }
}
