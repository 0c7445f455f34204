//! What FaRM's client itself takes for a transaction of YCSB-T: the machine, what it copies and sums, without any NIC.
//!
//! Its operations are executed at once, in the same memory; then the same ones once more without the client. The difference is its own.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result};
use memory::{Bytes, Key};
use store::txn::farm::{Client, ClientConfig, Shard, ShardConfig};
use store::txn::workload::{Runner, Workload, YcsbT};
use store::{Fleet, Post, PostPrism, Registered};
use verbs::{Operation, Payload, ReceiveRequest, Remote, Sge, Status, WorkCompletion, WorkRequest, prism};

use crate::bench::median;

/// Records: few, for misses of the cache belong to the READ.
const RECORDS: u64 = 512;
/// Transactions of a run, and runs.
const TRANSACTIONS: u64 = 2000;
const RUNS: usize = 7;

/// An operation as it was posted.
#[derive(Copy, Clone)]
struct Posted {
    id: u64,
    operation: Operation,
    sge: Sge,
    signaled: bool,
}

/// Both sides' memory, and what comes of operations on it.
struct Wire {
    table: Registered,
    arena: Registered,
    through: Vec<u8>,
    completions: VecDeque<WorkCompletion>,
    log: Option<Vec<Posted>>,
}

impl Wire {
    fn execute(&mut self, posted: &Posted) -> Option<()> {
        let Wire { table, arena, through, .. } = self;
        let at = (posted.sge.addr - arena.addr) as usize;
        let bytes = through.get_mut(..posted.sge.len as usize)?;
        let there = |remote: Remote| (remote.addr - table.addr) as usize;
        match posted.operation {
            Operation::Read(from) => {
                table.bytes.read(there(from), bytes).ok()?;
                arena.bytes.write(at, bytes).ok()?;
            }
            Operation::Write(to) => {
                arena.bytes.read(at, bytes).ok()?;
                table.bytes.write(there(to), bytes).ok()?;
            }
            Operation::CompareSwap { remote, compare, swap } => {
                let order = std::sync::atomic::Ordering::SeqCst;
                let word = table.bytes.word(there(remote))?;
                let old = word.compare_exchange(compare, swap, order, order).unwrap_or_else(|old| old);
                arena.bytes.write(at, &old.to_le_bytes()).ok()?;
            }
            _ => return None,
        }
        if posted.signaled {
            self.completions.push_back(WorkCompletion {
                id: posted.id,
                status: Status::Success,
                ..verbs::EMPTY
            });
        }
        Some(())
    }
}

impl Post for &mut Wire {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), store::PostError> {
        let Payload::Sges(&[sge]) = request.payload else { return Err(store::PostError::BadPayload) };
        let WorkRequest { id, operation, flags, .. } = *request;
        let posted = Posted { id, operation, sge, signaled: flags.signaled };
        if let Some(log) = &mut self.log {
            log.push(posted);
        }
        self.execute(&posted).ok_or(store::PostError::BadPayload)
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), store::PostError> {
        Err(store::PostError::BadState)
    }
}

impl PostPrism for &mut Wire {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), store::PostError> {
        Err(store::PostError::BadState)
    }
}

impl Fleet for Wire {
    type End<'a> = &'a mut Wire;

    fn end(&mut self, _: usize) -> &mut Wire {
        self
    }
}

/// A client beside its shard.
pub struct Work {
    wire: Wire,
    client: Client,
    runner: Runner<YcsbT>,
    now: u64,
}

fn block(addr: u64, len: usize) -> Result<Registered> {
    let bytes = Bytes::heap(len).context("memory for the measurement of CPU work")?;
    Ok(Registered { bytes, addr, key: Key::new(1) })
}

/// Bytes of what each of FaRM's round trips moves: what is read, the log entry, the record.
pub struct Lens {
    /// A slot.
    pub slot: usize,
    /// An entry of the log.
    pub entry: usize,
    /// A record.
    pub record: usize,
}

impl Work {
    /// Values of so many bytes.
    pub fn new(value_len: u32) -> Result<Work> {
        let workload = YcsbT::new(RECORDS, value_len, 1, 0.0, 1).apart(4 * RECORDS).context("slots")?;
        let room = workload.extent().max_key + workload.extent().max_value;
        let shard = ShardConfig { slots: 4 * RECORDS, reach: 8, room, clients: 1, window: 1, max_keys: 1 };
        let table = block(1 << 32, shard.table_len())?;
        let mut shard = Shard::open(shard, &table).context("a shard")?;
        let mut value = Vec::new();
        for at in 0..workload.rows() {
            let (key, _) = workload.row(at, &mut value);
            anyhow::ensure!(shard.load(key.bytes(), &value), "a slot for each record");
        }
        let grant = shard.accept(1).context("a place for a client")?;
        let config = ClientConfig {
            window: 1,
            max_keys: 1,
            max_key: 8,
            max_value: value_len,
            ..ClientConfig::default()
        };
        let arena = block(1 << 40, config.arena_len(grant.room))?;
        let client = Client::new(config, vec![grant], arena.clone()).context("a client")?;
        let through = vec![0; room as usize + 256];
        let wire = Wire { table, arena, through, completions: VecDeque::with_capacity(8), log: None };
        Ok(Work { wire, client, runner: Runner::new(workload, 1, 1), now: 0 })
    }

    /// What a transaction moves.
    ///
    /// # Errors
    /// A transaction is not what it should be.
    pub fn lens(&mut self) -> Result<Lens> {
        self.wire.log = Some(Vec::new());
        self.run(1)?;
        let log = self.wire.log.take().context("the log")?;
        let len = |at: usize| log.get(at).map(|posted| posted.sge.len as usize).context("an operation");
        // READ; WRITE of the entry, CAS; WRITE of the mark, WRITE of the record, CAS.
        anyhow::ensure!(log.len() == 6, "a transaction of {} operations", log.len());
        Ok(Lens { slot: len(0)?, entry: len(1)?, record: len(4)? })
    }

    fn run(&mut self, count: u64) -> Result<()> {
        self.runner.draw(count);
        self.carry_on()
    }

    /// What was drawn.
    fn carry_on(&mut self) -> Result<()> {
        let Work { wire, client, runner, now } = self;
        while !runner.is_done() {
            *now += 1000;
            let now = transport::Instant(*now);
            runner.begin(now, client, wire, &mut |_| ())?;
            while let Some(completion) = wire.completions.pop_front() {
                runner.complete(now, (0, &completion), client, wire, &mut |_| ())?;
            }
        }
        Ok(())
    }

    /// Nanoseconds of a transaction that are the client's own.
    ///
    /// # Errors
    /// A transaction does not end.
    pub fn measure(&mut self) -> Result<f64> {
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
                self.wire.execute(black_box(posted)).context("an operation that was executed before")?;
                black_box(self.wire.completions.pop_front());
            }
            own.push((all.as_nanos() as f64 - started.elapsed().as_nanos() as f64) / TRANSACTIONS as f64);
            // The words are as nobody's lock left them: what was done again must be undone.
            self.reload()?;
        }
        Ok(median(&own).max(0.0))
    }

    /// Puts all records back, as they were loaded.
    fn reload(&mut self) -> Result<()> {
        *self = Work::new(self.runner.workload().extent().max_value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_without_a_nic_has_three_round_trips_and_takes_time() {
        let mut work = Work::new(512).unwrap();
        let lens = work.lens().unwrap();
        assert_eq!((lens.slot, lens.entry, lens.record), (8 + 16 + 520 + 8, 16 + 544, 544));
        assert!(work.measure().unwrap() > 0.0);
        work.run(100).unwrap();
        let counts = work.runner.counts();
        assert_eq!((counts.committed, counts.round_trips, counts.aborted), (100, 300, 0));
    }
}
