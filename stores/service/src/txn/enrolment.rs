//! Enrolment: before its first transaction a client tells each shard who the others are, and reads who they
//! were to earlier clients. So the first client finds a shard that has begun anew, without its memory.

use std::net::SocketAddr;
use std::time::Duration;

use remora_nic::{Payload, Remote};
use remora_store::txn::{Incarnations, Member, Welcome};
use remora_verbs::{
    CompletionQueue, EMPTY, Flags, MemoryRegion, Operation, QueuePair, Ready, Status, WorkRequest,
};

use crate::error::{Context as _, Result, bail, ensure};

/// The shards as a client reaches them, before its machine has the queue pairs.
pub struct Shards<'a> {
    /// A queue pair to each shard.
    pub pairs: &'a mut [QueuePair<Ready>],
    /// Of all of them.
    pub cq: &'a mut CompletionQueue,
    /// Eight bytes of it at least.
    pub arena: &'a MemoryRegion,
}

/// How long a shard may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Shards<'_> {
    /// One work request, alone.
    fn execute(&mut self, shard: usize, operation: Operation, payload: Payload<'_>) -> Result<()> {
        let flags = Flags { signaled: true, ..Flags::default() };
        self.pairs[shard].post_send(&WorkRequest { id: 0, operation, payload, flags })?;
        let mut done = [EMPTY; 1];
        let got = self.cq.wait(&mut done, PATIENCE).context("a shard does not answer")?;
        let status = done[0].status;
        ensure!(
            got == 1 && status == Status::Success,
            Silent,
            "a shard does not answer: {}",
            status.explain()
        );
        Ok(())
    }

    /// Puts a run into a shard's incarnations if there is none; which one stands there.
    fn enrol(&mut self, shard: usize, remote: Remote, run: u64) -> Result<u64> {
        let result = [self.arena.sge(0, 8)];
        let swap = Operation::CompareSwap { remote, compare: 0, swap: run };
        self.execute(shard, swap, Payload::Sges(&result))?;
        let mut old = [0; 8];
        self.arena.read(0, &mut old)?;
        Ok(match u64::from_le_bytes(old) {
            0 => run,
            known => known,
        })
    }

    /// Tells all shards who the others are.
    ///
    /// # Errors
    /// One of them is not the one that it was to the others.
    pub fn enrol_all(&mut self, welcomes: &[Welcome], addresses: &[SocketAddr]) -> Result<()> {
        for (to, at) in welcomes.iter().zip(0..) {
            for (other, address) in
                welcomes.iter().zip(addresses).filter(|(other, _)| other.shard != to.shard)
            {
                let remote = |addr| Remote { addr, rkey: to.granted.key() };
                let run =
                    self.enrol(at, remote(Incarnations::run_at(to.incarnations, other.shard)), other.run)?;
                if run != other.run {
                    bail!(
                        Peer,
                        "shard {} at {address} has begun anew, and its part of the keys is lost: end all shards of the store and start them anew, together",
                        other.shard
                    );
                }
                let place = Member::place(*address);
                let write = Operation::Write(remote(Incarnations::place_at(to.incarnations, other.shard)));
                self.execute(at, write, Payload::Inline(&place))?;
            }
        }
        Ok(())
    }
}
