//! Tests of the workloads over plain rows, with a machine that aborts transactions that were too slow.

use std::collections::{BTreeMap, VecDeque};

use remora_nic::{CompletionKind, PostError, ReceiveRequest, WorkCompletion, WorkRequest, prism};
use remora_transport::{Instant, Status};

use super::{Audit, Load, Runner, RunnerError, SmallBank, Tatp, Workload, YcsbT};
use crate::txn::{EntryId, Event, Known, Machine, Outcome, Refused, Timestamp, Tx};
use crate::{Broken, Connections, Post, PostPrism};

/// A transaction: its keys, the versions that it read, and its writes.
#[derive(Default)]
struct Open {
    keys: Vec<Vec<u8>>,
    versions: BTreeMap<usize, u64>,
    writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// The event that the next completion reports.
enum Happens {
    Read(u16, usize),
    Commit(u16),
}

/// A store that executes operations sequentially.
#[derive(Default)]
struct Plain {
    rows: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    versions: u64,
    open: Vec<Option<Open>>,
    queue: VecDeque<Happens>,
    value: Vec<u8>,
    /// Number of commits to be torn: only the first half of their writes happens.
    torn: u32,
}

impl Plain {
    fn new(window: usize) -> Plain {
        Plain { open: (0..window).map(|_| None).collect(), ..Plain::default() }
    }

    fn of(&mut self, tx: Tx) -> &mut Open {
        self.open[tx.index()].as_mut().expect("a transaction that was begun")
    }

    fn commit(&mut self, open: &Open) -> Outcome {
        let version = |key: &[u8]| self.rows.get(key).map_or(0, |(version, _)| *version);
        if open.versions.iter().any(|(index, number)| version(&open.keys[*index]) != *number) {
            return Outcome::Aborted;
        }
        let mut count = open.writes.len();
        if count > 1 && self.torn > 0 {
            (self.torn, count) = (self.torn - 1, count / 2);
        }
        self.versions += 1;
        for (key, value) in &open.writes[..count] {
            self.rows.insert(key.clone(), (self.versions, value.clone()));
        }
        Outcome::Committed(Timestamp::default())
    }
}

impl Machine for Plain {
    fn start(&mut self, _: &mut impl Connections) -> Result<(), Broken> {
        Ok(())
    }

    fn begin(&mut self) -> Result<Tx, Refused> {
        let tx = self.open.iter().position(Option::is_none).ok_or(Refused::WindowFull)?;
        self.open[tx] = Some(Open::default());
        Ok(Tx(tx as u16))
    }

    fn read(&mut self, tx: Tx, key: &[u8], _: &mut impl Connections) -> Result<EntryId, Refused> {
        let open = self.of(tx);
        open.keys.push(key.to_vec());
        let entry = open.keys.len() - 1;
        self.queue.push_back(Happens::Read(tx.0, entry));
        Ok(EntryId(entry as u16))
    }

    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        _: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        self.of(tx).writes.push((key.to_vec(), Some(value.to_vec())));
        Ok(EntryId(u16::MAX))
    }

    fn delete(&mut self, tx: Tx, key: &[u8], _: &mut impl Connections) -> Result<EntryId, Refused> {
        self.of(tx).writes.push((key.to_vec(), None));
        Ok(EntryId(u16::MAX))
    }

    fn value(&mut self, _: Tx, _: EntryId) -> Option<Known<'_>> {
        None
    }

    fn commit(
        &mut self,
        tx: Tx,
        _: u64,
        _: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused> {
        self.queue.push_back(Happens::Commit(tx.0));
        Ok(None)
    }

    fn abort(&mut self, _: Tx) -> Result<Option<Event<'static>>, Refused> {
        Err(Refused::NotOpen)
    }

    fn complete(
        &mut self,
        _: usize,
        _: &WorkCompletion,
        _: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken> {
        match self.queue.pop_front() {
            None => Ok(None),
            Some(Happens::Read(tx, entry)) => {
                let open = self.open[usize::from(tx)].as_mut().expect("it is open");
                let row = self.rows.get(&open.keys[entry]);
                open.versions.insert(entry, row.map_or(0, |(version, _)| *version));
                let value = row.and_then(|(_, value)| value.as_ref());
                self.value = value.cloned().unwrap_or_default();
                let value = value.map(|_| &self.value[..]);
                Ok(Some(Event::Read { tx: Tx(tx), entry: EntryId(entry as u16), value }))
            }
            Some(Happens::Commit(tx)) => {
                let open = self.open[usize::from(tx)].take().expect("it is open");
                let outcome = self.commit(&open);
                Ok(Some(Event::Ended { tx: Tx(tx), outcome, round_trips: 2, resolved: 0 }))
            }
        }
    }

    fn return_buffers(&mut self, _: usize, _: &mut impl Connections) -> Result<(), Broken> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.open.iter().flatten().count()
    }

    fn give_up(&mut self, _: Status) {}

    fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        None
    }
}

/// Connections whose queue pairs discard everything.
struct Discard;

impl Post for Discard {
    fn post_send(&mut self, _: &WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }
}

impl PostPrism for Discard {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }
}

impl Connections for Discard {
    type Endpoint<'a> = Discard;

    fn endpoint(&mut self, _: usize) -> Discard {
        Discard
    }
}

const DONE: WorkCompletion = WorkCompletion {
    id: 0,
    status: Status::Success,
    kind: CompletionKind::Read,
    byte_len: 0,
    imm: None,
    invalidated: None,
    qp_num: 0,
    src_qp: 0,
    grh: None,
    outcome: prism::Verdict::Done,
};

/// Executes `jobs` jobs, and returns the order in which they ended.
fn run<W: Workload>(runner: &mut Runner<W>, plain: &mut Plain, jobs: u64) -> Vec<String> {
    let mut now = Instant(0);
    let mut ends = Vec::new();
    runner.draw(jobs);
    while !runner.is_done() {
        now = now.after(1000);
        let mut report = |ended: &super::Ended<'_, W::Job>| {
            assert!(ended.began[0] <= ended.began[1]);
            if let Outcome::Committed(_) = ended.outcome {
                ends.push(format!("{:?} after {}", ended.job, ended.before));
            }
        };
        runner.begin(now, plain, &mut Discard, &mut report).expect("nothing breaks");
        runner.complete(|| now, 0, &DONE, plain, &mut Discard, &mut report).expect("nothing breaks");
    }
    ends
}

/// Returns the sum of all rows.
fn sum<W: Workload>(workload: &W, plain: &mut Plain) -> (i64, u64) {
    let audit = Audit::of(workload);
    let jobs = audit.jobs();
    let mut runner = Runner::new(audit, 4, 1);
    run(&mut runner, plain, jobs);
    let counts = runner.counts();
    assert_eq!((counts.committed, counts.aborted), (workload.rows(), 0));
    (counts.gain, counts.declined)
}

/// Loads a workload, runs it and adds up its rows; `torn` of the commits are torn. Returns the counters, and
/// the error of the sum.
fn account<W: Workload + Clone>(workload: &W, torn: u32) -> (super::Counts, i64) {
    let mut plain = Plain::new(8);
    let load = Load::of(workload);
    let rows = load.jobs();
    let mut loading = Runner::new(load, 8, 1);
    run(&mut loading, &mut plain, rows);
    assert_eq!(sum(workload, &mut plain), (loading.counts().gain, 0));
    plain.torn = torn;
    let mut runner = Runner::new(workload.clone(), 8, 1);
    assert_eq!(run(&mut runner, &mut plain, 2000).len(), 2000);
    let counts = runner.counts();
    assert_eq!((counts.committed, counts.attempted - counts.aborted), (2000, 2000));
    let (sum, wrong) = sum(workload, &mut plain);
    assert_eq!(wrong, 0, "rows with values of others");
    (counts, sum - loading.counts().gain - counts.gain)
}

#[test]
fn sums_are_what_was_loaded_and_what_was_committed_since() {
    let (counts, off) = account(&YcsbT::new(20, 40, 2, 0.99, 1), 0);
    assert_eq!((off, counts.gain, counts.declined), (0, 4000, 0));
    assert!(counts.aborted > 100, "they meet: {counts:?}");
    let (counts, off) = account(&SmallBank::new(20, 0, 1), 0);
    assert_eq!(off, 0);
    assert!(counts.aborted > 100 && counts.declined > 100 && counts.gain != 0, "{counts:?}");
    let (counts, off) = account(&Tatp::new(10, 1), 0);
    assert_eq!(off, 0);
    assert!(counts.aborted > 10 && counts.declined > 300, "{counts:?}");
}

#[test]
fn a_transaction_that_happened_by_half_puts_the_sum_out() {
    assert_ne!(account(&YcsbT::new(20, 40, 2, 0.99, 1), 1).1, 0);
    assert_ne!(account(&SmallBank::new(20, 0, 1), 3).1, 0);
}

#[test]
fn the_same_seed_does_the_same() {
    let ends = |seed| {
        let mut plain = Plain::new(4);
        run(&mut Runner::new(SmallBank::new(10, 0, seed), 4, seed), &mut plain, 300)
    };
    assert_eq!(ends(3), ends(3));
    assert_ne!(ends(3), ends(4));
}

#[test]
fn a_client_without_room_for_the_window_is_enough() {
    let mut plain = Plain::new(1);
    let mut runner = Runner::new(SmallBank::new(10, 0, 1), 8, 1);
    run(&mut runner, &mut plain, 100);
    assert_eq!((runner.counts().committed, runner.counts().aborted), (100, 0));
}

#[test]
fn why_nothing_more_can_be_done_is_said() {
    let stuck = [
        (RunnerError::Broken(Broken::Protocol), "no correct peer"),
        (RunnerError::Refused(Refused::ValueTooLong), "longer"),
        (RunnerError::Ended(Outcome::TableFull), "no slot"),
        (RunnerError::Ended(Outcome::TooLong), "buffers"),
        (RunnerError::Ended(Outcome::NoBuffer), "NoBuffer"),
    ];
    for (stuck, word) in stuck {
        assert!(stuck.to_string().contains(word), "{stuck}");
    }
}
