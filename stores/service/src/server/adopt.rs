//! A server that goes on where one before it ended: a NIC daemon has kept its memory and its clients' queue
//! pairs.

use std::time::{Duration, Instant};

use remora_verbs::nicd;
use remora_verbs::{
    CompletionQueue, EMPTY, Flags, Operation, Payload, QueuePair, Ready, Remote, Status, WorkCompletion,
    WorkRequest,
};

use super::program::{Memory, Program};
use super::{Client, Life, PROBE, Service};
use crate::Result;
use crate::post::Later;

/// Time that a client's NIC may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a server kept of its clients and queues.
#[derive(Default)]
pub struct Left {
    /// The queue of all its clients' completions.
    pub queue: Option<CompletionQueue>,
    /// Their queue pairs.
    pub pairs: Vec<QueuePair<Ready>>,
}

impl Memory {
    /// What a daemon has kept, to be asked for by its names; and the clients.
    ///
    /// # Errors
    /// The NIC's.
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

/// A message without bytes that asks the other side's NIC for an acknowledgement.
pub fn probe() -> WorkRequest<'static> {
    WorkRequest {
        id: PROBE,
        operation: Operation::Write(Remote { addr: 0, rkey: remora_verbs::Key::new(0) }),
        payload: Payload::Inline(&[]),
        flags: Flags { signaled: true, ..Flags::default() },
    }
}

impl<P: Program> Service<P> {
    /// Takes over the clients of the server before: as the connections that they were, so that what they were
    /// granted holds. Those whose NICs do not answer, or that do not fit, end.
    ///
    /// # Errors
    /// The NIC's.
    pub fn adopt(&mut self, pairs: Vec<QueuePair<Ready>>) -> Result<usize> {
        let (pairs, waiting) = self.settle(pairs)?;
        let mut pairs = pairs;
        let mut strangers = Vec::new();
        while let Some(hello) = pairs.first().map(|pair| pair.peer_private_data().to_vec()) {
            // A connection grants the same to whoever has it.
            let Ok((connection, grant)) = self.program.accept(&hello, &mut Later::default()) else { break };
            let Some(at) = pairs.iter().position(|pair| pair.private_data() == grant) else {
                strangers.push(connection);
                continue;
            };
            let pair = pairs.swap_remove(at);
            self.program.disconnect(connection);
            let (connection, _) = self.program.accept(pair.peer_private_data(), &mut Later::default())?;
            self.admission.watch(&pair);
            self.clients.push(Client { pair, connection, life: Life::Seen, late: None });
        }
        strangers.into_iter().for_each(|connection| self.program.disconnect(connection));
        self.handle(&waiting);
        Ok(self.clients.len())
    }

    /// Waits until nothing that the server before has sent is under way: its completions are nobody's. What
    /// clients have sent waits.
    fn settle(
        &mut self,
        pairs: Vec<QueuePair<Ready>>,
    ) -> Result<(Vec<QueuePair<Ready>>, Vec<WorkCompletion>)> {
        let mut asked: Vec<(QueuePair<Ready>, bool)> = pairs
            .into_iter()
            .filter_map(|mut pair| pair.post_send(&probe()).is_ok().then_some((pair, false)))
            .collect();
        let (mut waiting, mut done) = (Vec::new(), [EMPTY; 64]);
        let began = Instant::now();
        while asked.iter().any(|(_, answered)| !answered) && began.elapsed() < PATIENCE {
            let got = self.cq.poll(&mut done)?;
            for done in &done[..got] {
                let of = asked.iter_mut().find(|(pair, _)| pair.number() == done.qp_num);
                match done.kind {
                    remora_verbs::CompletionKind::Receive | remora_verbs::CompletionKind::ReceiveWriteImm => {
                        waiting.push(*done);
                    }
                    _ if done.id == PROBE && done.status == Status::Success => {
                        of.into_iter().for_each(|(_, answered)| *answered = true);
                    }
                    _ => {}
                }
            }
        }
        let there = asked.into_iter().filter(|(_, answered)| *answered).map(|(pair, _)| pair).collect();
        Ok((there, waiting))
    }
}
