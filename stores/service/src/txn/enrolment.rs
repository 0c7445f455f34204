//! Enrolment: before its first transaction, a client tells each shard the incarnations of the other shards,
//! and reads what earlier clients told. So the first client detects a shard that restarted without its
//! memory.

use std::net::SocketAddr;
use std::time::Duration;

use remora_nic::{Payload, Remote};
use remora_store::txn::{Incarnations, Member, Welcome};
use remora_verbs::{
    CompletionQueue, EMPTY, Flags, MemoryRegion, Operation, QueuePair, Ready, Status, WorkRequest,
};

use crate::error::{Context as _, Result, bail, ensure};

/// The connections to the shards, before the machine gets the queue pairs.
pub(crate) struct Shards<'a> {
    /// The queue pairs, one per shard.
    pub pairs: &'a mut [QueuePair<Ready>],
    /// The completion queue of all queue pairs.
    pub cq: &'a mut CompletionQueue,
    /// Registered memory of at least eight bytes.
    pub arena: &'a MemoryRegion,
}

/// Maximum time for a shard to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Shards<'_> {
    /// Performs a single work request and waits for its completion.
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

    /// Stores a run in a shard's incarnations if none is stored there. Returns the run that is stored there
    /// afterwards.
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

    /// Tells every shard the incarnations of all others.
    ///
    /// # Errors
    /// A shard has another incarnation than earlier clients saw.
    pub(crate) fn enrol_all(&mut self, welcomes: &[Welcome], addresses: &[SocketAddr]) -> Result<()> {
        for (target, shard) in welcomes.iter().zip(0..) {
            for (other, address) in
                welcomes.iter().zip(addresses).filter(|(other, _)| other.shard != target.shard)
            {
                let remote = |addr| Remote { addr, rkey: target.granted.key() };
                let run = self.enrol(
                    shard,
                    remote(Incarnations::run_at(target.incarnations, other.shard)),
                    other.run,
                )?;
                if run != other.run {
                    bail!(
                        Peer,
                        "shard {} at {address} has begun anew, and its part of the keys is lost: end all shards of the store and start them anew, together",
                        other.shard
                    );
                }
                let place = Member::place(*address);
                let write =
                    Operation::Write(remote(Incarnations::place_at(target.incarnations, other.shard)));
                self.execute(shard, write, Payload::Inline(&place))?;
            }
        }
        Ok(())
    }
}
