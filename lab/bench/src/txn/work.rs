//! The CPU work of FaRM's client and of its shard's program for a transaction of YCSB-T: the state machines
//! with their copies and checksums, without any NIC.
//!
//! The operations are executed at once in the same memory, and then repeated without client and program. The
//! difference is the work of those two.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result};
use remora_memory::{Bytes, Key};
use remora_store::txn::Machine as _;
use remora_store::txn::farm::{Caller, Client, ClientConfig, Shard, ShardConfig};
use remora_store::txn::workload::{Runner, Workload, YcsbT};
use remora_store::{Connections, Post, PostPrism, Registered};
use remora_verbs::{
    CompletionKind, Operation, Payload, ReceiveRequest, Remote, Sge, Status, WorkCompletion, WorkRequest,
    prism,
};

use crate::median;

/// The number of records, which is small because cache misses are part of the READ.
const RECORDS: u64 = 512;
/// The number of transactions of a run, and the number of runs.
const TRANSACTIONS: u64 = 2000;
const RUNS: usize = 7;

/// A work request in the form in which it was posted.
#[derive(Copy, Clone)]
struct Posted {
    id: u64,
    operation: Operation,
    sge: Option<Sge>,
}

/// Memory of both sides, the shard's program, and the completions.
struct Wire {
    table: Registered,
    arena: Registered,
    shard: Shard,
    caller: Option<Caller>,
    through: Vec<u8>,
    completions: VecDeque<WorkCompletion>,
    log: Option<Vec<Posted>>,
}

impl Wire {
    /// Copies the bytes that the operation transfers.
    fn carry(&mut self, posted: &Posted) -> Option<()> {
        let Wire { table, arena, through, .. } = self;
        let Some(sge) = posted.sge else { return Some(()) };
        let offset = (sge.addr - arena.addr) as usize;
        let bytes = through.get_mut(..sge.len as usize)?;
        let there = |remote: Remote| (remote.addr - table.addr) as usize;
        match posted.operation {
            Operation::Read(source) => {
                table.bytes.read(there(source), bytes).ok()?;
                arena.bytes.write(offset, bytes).ok()
            }
            Operation::WriteImm(target, _) => {
                arena.bytes.read(offset, bytes).ok()?;
                table.bytes.write(there(target), bytes).ok()
            }
            _ => None,
        }
    }

    /// Executes a request and completes it, or calls the shard's program.
    fn execute(&mut self, posted: &Posted) -> Option<()> {
        self.carry(posted)?;
        let done = WorkCompletion { id: posted.id, status: Status::Success, ..remora_verbs::EMPTY };
        let (kind, imm) = match posted.operation {
            Operation::WriteImm(_, imm) => (CompletionKind::ReceiveWriteImm, imm),
            Operation::SendImm(imm) => (CompletionKind::Receive, imm),
            _ => {
                self.completions.push_back(WorkCompletion { kind: CompletionKind::Read, ..done });
                return Some(());
            }
        };
        let mut answer = Answer(None);
        let call = WorkCompletion { kind, imm: Some(imm), ..done };
        self.shard.handle(self.caller.as_mut()?, &call, &mut answer).ok()?;
        self.completions.push_back(WorkCompletion { kind: CompletionKind::Receive, imm: answer.0, ..done });
        Some(())
    }
}

/// Collects the immediate value that the shard's program sends as its response.
struct Answer(Option<u32>);

impl Post for Answer {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), remora_store::PostError> {
        let Operation::SendImm(imm) = request.operation else {
            return Err(remora_store::PostError::BadState);
        };
        self.0 = Some(imm);
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), remora_store::PostError> {
        Ok(())
    }
}

impl Post for &mut Wire {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), remora_store::PostError> {
        let Payload::Sges(sges) = request.payload else { return Err(remora_store::PostError::BadPayload) };
        let posted = Posted { id: request.id, operation: request.operation, sge: sges.first().copied() };
        if let Some(log) = &mut self.log {
            log.push(posted);
        }
        self.execute(&posted).ok_or(remora_store::PostError::BadPayload)
    }

    #[inline]
    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), remora_store::PostError> {
        Ok(())
    }
}

impl PostPrism for &mut Wire {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), remora_store::PostError> {
        Err(remora_store::PostError::BadState)
    }
}

impl Connections for Wire {
    type Endpoint<'a> = &'a mut Wire;

    fn endpoint(&mut self, _: usize) -> &mut Wire {
        self
    }
}

/// A client and its shard.
pub(crate) struct Work {
    wire: Wire,
    client: Client,
    runner: Runner<YcsbT>,
    now: u64,
}

fn block(addr: u64, len: usize) -> Result<Registered> {
    let bytes = Bytes::heap(len).context("memory for the measurement of CPU work")?;
    Ok(Registered { bytes, addr, key: Key::new(1) })
}

/// The lengths in bytes of the transfers in FaRM's round trips.
pub(crate) struct Lens {
    /// The length of the words of the index.
    pub near: usize,
    /// The length of an object.
    pub object: usize,
    /// The length of an entry of the log.
    pub entry: usize,
}

impl Work {
    /// Prepares transactions on values of `value_len` bytes.
    pub(crate) fn new(value_len: u32) -> Result<Work> {
        let workload = YcsbT::new(RECORDS, value_len, 1, 0.0, 1).apart(4 * RECORDS).context("slots")?;
        let max_pair = workload.extent().max_key + workload.extent().max_value;
        let homes = 4 * RECORDS;
        let shard =
            ShardConfig { keys: RECORDS, homes, reach: 8, max_pair, clients: 1, window: 1, max_keys: 1 };
        let table = block(1 << 32, shard.table_len())?;
        let mut shard = Shard::open(shard, &table).context("a shard")?;
        let mut value = Vec::new();
        for index in 0..workload.rows() {
            let (key, _) = workload.row(index, &mut value);
            anyhow::ensure!(shard.load(key.bytes(), &value), "an object for each record");
        }
        let grant = shard.accept(1).context("a place for a client")?;
        let config = ClientConfig {
            window: 1,
            max_keys: 1,
            max_key: 8,
            max_value: value_len,
            ..ClientConfig::default()
        };
        let arena = block(1 << 40, config.arena_len(grant.max_pair))?;
        let mut client = Client::new(config, vec![grant], arena.clone()).context("a client")?;
        let caller = shard.listen(1, &mut Answer(None))?;
        let through = vec![0; max_pair as usize + 256];
        let completions = VecDeque::with_capacity(8);
        let mut wire = Wire { table, arena, shard, caller, through, completions, log: None };
        client.start(&mut wire)?;
        Ok(Work { wire, client, runner: Runner::new(workload, 1, 1), now: 0 })
    }

    /// Returns the lengths of the transfers of a transaction.
    ///
    /// # Errors
    /// Fails if a transaction does not consist of the expected operations.
    pub(crate) fn lens(&mut self) -> Result<Lens> {
        self.wire.log = Some(Vec::new());
        self.run(1)?;
        let log = self.wire.log.take().context("the log")?;
        let len = |index: usize| log.get(index).and_then(|posted| posted.sge).map(|sge| sge.len as usize);
        // The requests are READs of index and object, the call that locks, and the call that updates.
        let lens = (log.len() == 4).then(|| Some(Lens { near: len(0)?, object: len(1)?, entry: len(2)? }));
        lens.flatten().with_context(|| format!("a transaction of {} operations", log.len()))
    }

    fn run(&mut self, count: u64) -> Result<()> {
        self.runner.draw(count);
        self.carry_on()
    }

    /// Carries out the drawn transactions.
    fn carry_on(&mut self) -> Result<()> {
        let Work { wire, client, runner, now } = self;
        while !runner.is_done() {
            *now += 1000;
            let now = remora_transport::Instant(*now);
            runner.begin(now, client, wire, &mut |_| ())?;
            while let Some(completion) = wire.completions.pop_front() {
                runner.complete(|| now, 0, &completion, client, wire, &mut |_| ())?;
            }
        }
        Ok(())
    }

    /// Measures the CPU time of the client and of the program per transaction in nanoseconds.
    ///
    /// # Errors
    /// Fails if a transaction does not end.
    pub(crate) fn measure(&mut self) -> Result<f64> {
        self.wire.log = Some(Vec::new());
        self.run(TRANSACTIONS)?;
        let log = self.wire.log.take().context("the log")?;
        let mut own = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            self.runner.draw(TRANSACTIONS);
            let started = Instant::now();
            self.carry_on()?;
            let all = started.elapsed();
            let started = Instant::now();
            for posted in &log {
                self.wire.carry(black_box(posted)).context("an operation that was executed before")?;
            }
            own.push((all.as_nanos() as f64 - started.elapsed().as_nanos() as f64) / TRANSACTIONS as f64);
        }
        Ok(median(&own).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_without_a_nic_has_four_round_trips_and_takes_time() {
        let mut work = Work::new(512).unwrap();
        let lens = work.lens().unwrap();
        assert_eq!((lens.near, lens.object, lens.entry), (64, 8 + 16 + 520 + 8, 16 + 544));
        assert!(work.measure().unwrap() > 0.0);
        let counts = work.runner.counts();
        assert_eq!((counts.round_trips, counts.aborted), (4 * counts.committed, 0));
        assert!(counts.committed > TRANSACTIONS);
    }
}
