//! A server that continues where a previous one ended: a NIC daemon has kept its memory and its clients'
//! queue pairs.

use std::time::{Duration, Instant};

use remora_verbs::nicd;
use remora_verbs::{CompletionQueue, EMPTY, QueuePair, Ready, Status, WorkCompletion};

use super::probe::{PROBE, probe};
use super::program::{Memory, Program};
use super::service::{Client, Life, Service};
use crate::Result;
use crate::post::Later;

/// Maximum time for a client's NIC to acknowledge a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// The queues that a previous server left.
#[derive(Default)]
pub struct Left {
    /// The completion queue of all its clients.
    pub queue: Option<CompletionQueue>,
    /// The queue pairs of its clients.
    pub pairs: Vec<QueuePair<Ready>>,
}

impl Memory {
    /// Returns what a daemon has kept: the memory, by the names of its regions, and the clients.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn kept(context: &remora_verbs::Context) -> Result<(Memory, Left)> {
        let nicd::Kept { mut pairs, mut queues, regions, mut domains, .. } = context.kept()?;
        let domain = match domains.pop() {
            Some(domain) => domain,
            None => context.alloc_pd()?,
        };
        pairs.sort_by_key(QueuePair::number);
        let left = Left { queue: queues.pop(), pairs };
        Ok((Memory { kept: regions, ..Memory::of(domain) }, left))
    }
}

impl<P: Program> Service<P> {
    /// Adopts the clients of the previous server as the same connections, so that their grants remain valid.
    /// Clients whose NICs do not answer, or whose grants do not match, are disconnected. Returns the number
    /// of clients.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn adopt(&mut self, pairs: Vec<QueuePair<Ready>>) -> Result<usize> {
        let (pairs, waiting) = self.settle(pairs)?;
        let mut pairs = pairs;
        let mut strangers = Vec::new();
        while let Some(hello) = pairs.first().map(|pair| pair.peer_private_data().to_vec()) {
            // A connection gets the same grant, whichever client it belongs to.
            let Ok((connection, grant)) = self.program.accept(&hello, &mut Later::default()) else { break };
            let Some(index) = pairs.iter().position(|pair| pair.private_data() == grant) else {
                strangers.push(connection);
                continue;
            };
            let pair = pairs.swap_remove(index);
            self.program.disconnect(connection);
            let (connection, _) = self.program.accept(pair.peer_private_data(), &mut Later::default())?;
            self.admission.watch(&pair);
            self.clients.push(Client { pair, connection, life: Life::Seen, late: None });
        }
        strangers.into_iter().for_each(|connection| self.program.disconnect(connection));
        self.handle(&waiting);
        Ok(self.clients.len())
    }

    /// Waits until no request of the previous server is under way, and discards their completions.
    /// Completions of clients' messages are kept for later.
    fn settle(
        &mut self,
        pairs: Vec<QueuePair<Ready>>,
    ) -> Result<(Vec<QueuePair<Ready>>, Vec<WorkCompletion>)> {
        let mut asked: Vec<(QueuePair<Ready>, bool)> = pairs
            .into_iter()
            .filter_map(|mut pair| pair.post_send(&probe()).is_ok().then_some((pair, false)))
            .collect();
        let mut waiting = Vec::new();
        let mut done = [EMPTY; 64];
        let began = Instant::now();
        while asked.iter().any(|(_, answered)| !answered) && began.elapsed() < PATIENCE {
            let got = self.cq.poll(&mut done)?;
            for done in &done[..got] {
                let entry = asked.iter_mut().find(|(pair, _)| pair.number() == done.qp_num);
                match done.kind {
                    remora_verbs::CompletionKind::Receive | remora_verbs::CompletionKind::ReceiveWriteImm => {
                        waiting.push(*done);
                    }
                    _ if done.id == PROBE && done.status == Status::Success => {
                        entry.into_iter().for_each(|(_, answered)| *answered = true);
                    }
                    _ => {}
                }
            }
        }
        let there = asked.into_iter().filter(|(_, answered)| *answered).map(|(pair, _)| pair).collect();
        Ok((there, waiting))
    }
}
