//! The execution of jobs: a window of transactions over a client machine, with a retry of aborted ones.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::script::Script;
use super::{Step, Workload};
use crate::backoff;
use crate::random::Random;
use crate::txn::{EntryId, Event, Machine, Outcome, Refused, Tx};
use crate::{Broken, Connections};

/// The reason for which the runner cannot continue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RunnerError {
    /// A connection has failed.
    Broken(Broken),
    /// The workload exceeds the client's limits.
    Refused(Refused),
    /// A transaction ended in a way that a retry does not change.
    Ended(Outcome),
}

impl core::fmt::Display for RunnerError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RunnerError::Broken(broken) => broken.fmt(f),
            RunnerError::Refused(refused) => refused.fmt(f),
            RunnerError::Ended(Outcome::TableFull) => f.write_str("there is no slot for a new key"),
            RunnerError::Ended(Outcome::TooLong) => {
                f.write_str("a value is longer than the client's buffers")
            }
            RunnerError::Ended(outcome) => write!(f, "a transaction ended as {outcome:?}"),
        }
    }
}

impl core::error::Error for RunnerError {}

impl From<Broken> for RunnerError {
    fn from(broken: Broken) -> RunnerError {
        RunnerError::Broken(broken)
    }
}

impl From<Refused> for RunnerError {
    fn from(refused: Refused) -> RunnerError {
        RunnerError::Refused(refused)
    }
}

/// Counters of the attempts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of transactions that were begun.
    pub attempted: u64,
    /// Number of transactions that committed, which is the number of completed jobs.
    pub committed: u64,
    /// Number of committed transactions whose business rules made them write nothing.
    pub declined: u64,
    /// Number of transactions that aborted, and were retried.
    pub aborted: u64,
    /// Number of aborted transactions for which a shard had no free buffer.
    pub short: u64,
    /// Number of pending versions of other transactions that were resolved.
    pub resolved: u64,
    /// Number of round trips of the committed transactions.
    pub round_trips: u64,
    /// Sum of the gains of the committed transactions.
    pub gain: i64,
}

/// An attempt that has ended.
#[derive(Debug)]
pub struct Ended<'a, D> {
    /// The job that was executed.
    pub job: &'a D,
    /// The attempt's reads and writes.
    pub script: &'a Script,
    /// The outcome: aborted or committed.
    pub outcome: Outcome,
    /// Number of round trips of this attempt.
    pub round_trips: u32,
    /// Start of the job, and start of this attempt.
    pub began: [Instant; 2],
    /// Time at which the end was observed.
    pub at: Instant,
    /// Number of attempts before this one.
    pub before: u32,
    /// Index of the place in the window.
    pub place: usize,
}

/// An attempt that may begin: of the paused job at this position, or of a new job.
enum Attempt {
    Retry(usize),
    New,
}

/// The state of a place in the window.
#[derive(Debug)]
struct Flight<D> {
    job: Option<D>,
    /// The transaction of the attempt that is under way.
    tx: Option<Tx>,
    script: Script,
    /// The transaction's keys, by index of the script's reads.
    entries: Vec<EntryId>,
    began: [Instant; 2],
    before: u32,
    /// Time until which the retry waits.
    pause: Instant,
    declined: bool,
}

impl<D> Flight<D> {
    fn idle() -> Flight<D> {
        Flight {
            job: None,
            tx: None,
            script: Script::default(),
            entries: Vec::new(),
            began: [Instant(0); 2],
            before: 0,
            pause: Instant(0),
            declined: false,
        }
    }
}

/// A runner that executes jobs with a client that does nothing else.
#[derive(Debug)]
pub struct Runner<W: Workload> {
    workload: W,
    flights: Vec<Flight<W::Job>>,
    /// Places without a job, and places whose jobs wait for a retry.
    idle: Vec<usize>,
    paused: Vec<usize>,
    /// Index of each transaction's place, by the client's number of the transaction.
    places: Vec<usize>,
    drawn: Vec<W::Job>,
    next: usize,
    random: Random,
    /// Microseconds by which the clock is ahead of other clients'.
    ahead: u64,
    counts: Counts,
}

impl<W: Workload> Runner<W> {
    /// Returns a runner of up to `window` concurrent jobs; `seed` seeds its pauses.
    pub fn new(workload: W, window: usize, seed: u64) -> Runner<W> {
        let window = window.max(1);
        Runner {
            workload,
            flights: (0..window).map(|_| Flight::idle()).collect(),
            idle: (0..window).rev().collect(),
            paused: Vec::with_capacity(window),
            places: Vec::new(),
            drawn: Vec::new(),
            next: 0,
            random: Random::new(seed),
            ahead: 0,
            counts: Counts::default(),
        }
    }

    /// Sets the clock ahead by `ahead` microseconds.
    pub fn ahead(self, ahead: u64) -> Runner<W> {
        Runner { ahead, ..self }
    }

    /// Draws jobs, which are executed from then on. So none is drawn while a benchmark measures time.
    pub fn draw(&mut self, jobs: u64) {
        self.drawn.drain(..self.next);
        self.next = 0;
        let workload = &mut self.workload;
        self.drawn.extend((0..jobs).map(|_| workload.draw()));
    }

    /// Drops the jobs that no attempt has begun.
    pub fn forget(&mut self) {
        self.drawn.truncate(self.next);
    }

    /// Returns the workload.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns true if all drawn jobs are completed.
    pub fn is_done(&self) -> bool {
        self.idle.len() == self.flights.len() && self.next == self.drawn.len()
    }

    /// Returns true if a job may begin now or after its pause.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        !self.paused.is_empty() || !self.idle.is_empty() && self.next < self.drawn.len()
    }

    /// Returns true if a job may begin now.
    #[inline]
    pub fn may_begin(&self, now: Instant) -> bool {
        self.ready(now).is_some()
    }

    /// Begins retries whose pause is over, and new jobs while the window has free places.
    ///
    /// # Errors
    /// The client does not accept the transaction.
    pub fn begin(
        &mut self,
        now: Instant,
        machine: &mut impl Machine,
        connections: &mut impl Connections,
        report: &mut impl FnMut(&Ended<'_, W::Job>),
    ) -> Result<(), RunnerError> {
        while let Some(attempt) = self.ready(now) {
            let tx = match machine.begin() {
                Ok(tx) => tx,
                // Transactions that have ended are still being cleaned up.
                Err(Refused::WindowFull) => return Ok(()),
                Err(refused) => return Err(refused.into()),
            };
            let place = self.enter(attempt, tx, now);
            self.proceed(place, now, machine, connections, report)?;
        }
        Ok(())
    }

    /// Returns an attempt that may begin.
    fn ready(&self, now: Instant) -> Option<Attempt> {
        let over = self.paused.iter().position(|place| self.flights[*place].pause <= now);
        let new = !self.idle.is_empty() && self.next < self.drawn.len();
        over.map(Attempt::Retry).or(new.then_some(Attempt::New))
    }

    /// Begins an attempt, and returns the index of its place.
    fn enter(&mut self, attempt: Attempt, tx: Tx, now: Instant) -> usize {
        let place = match attempt {
            Attempt::Retry(index) => self.paused.swap_remove(index),
            Attempt::New => {
                let place = self.idle.pop().expect("there is a free slot for a new job");
                let flight = &mut self.flights[place];
                (flight.job, flight.before, flight.began[0]) = (Some(self.drawn[self.next]), 0, now);
                self.next += 1;
                place
            }
        };
        let flight = &mut self.flights[place];
        (flight.tx, flight.began[1]) = (Some(tx), now);
        flight.script.clear();
        flight.entries.clear();
        if self.places.len() <= tx.index() {
            self.places.resize(tx.index() + 1, 0);
        }
        self.places[tx.index()] = place;
        self.counts.attempted += 1;
        place
    }

    /// Processes a completion of a shard's queue pair.
    ///
    /// The clock is read only if a step of a job or its end needs the time, because a reading costs as much
    /// as the work for many completions.
    ///
    /// # Errors
    /// The queue pair has failed, or a job cannot be executed.
    #[inline]
    pub fn complete(
        &mut self,
        now: impl Fn() -> Instant,
        shard: usize,
        completion: &WorkCompletion,
        machine: &mut impl Machine,
        connections: &mut impl Connections,
        report: &mut impl FnMut(&Ended<'_, W::Job>),
    ) -> Result<(), RunnerError> {
        match machine.complete(shard, completion, connections)? {
            None => Ok(()),
            Some(Event::Read { tx, entry, value }) => {
                let place = self.places[tx.index()];
                let flight = &mut self.flights[place];
                let index = flight.entries.iter().position(|known| *known == entry);
                flight.script.found(index.ok_or(Broken::Protocol)?, value);
                if flight.script.is_complete() && flight.entries.len() == flight.script.asked() {
                    self.proceed(place, now(), machine, connections, report)?;
                }
                Ok(())
            }
            Some(Event::Ended { tx, outcome, round_trips, resolved }) => {
                self.ended(tx, outcome, round_trips, resolved, now(), report)
            }
        }
    }

    /// Performs the next step of a job.
    fn proceed(
        &mut self,
        place: usize,
        now: Instant,
        machine: &mut impl Machine,
        connections: &mut impl Connections,
        report: &mut impl FnMut(&Ended<'_, W::Job>),
    ) -> Result<(), RunnerError> {
        let flight = &mut self.flights[place];
        let (Some(job), Some(tx)) = (&flight.job, flight.tx) else { return Ok(()) };
        let step = self.workload.step(job, &mut flight.script);
        if step == Step::Read {
            while let Some(key) = flight.script.key(flight.entries.len()) {
                flight.entries.push(machine.read(tx, key.bytes(), connections)?);
            }
            return Ok(());
        }
        for (key, value) in flight.script.writes() {
            match value {
                Some(value) => machine.write(tx, key.bytes(), value, connections)?,
                None => machine.delete(tx, key.bytes(), connections)?,
            };
        }
        flight.declined = step == Step::Decline;
        let clock = now.0 / 1000 + self.ahead;
        if let Some(Event::Ended { tx, outcome, round_trips, resolved }) =
            machine.commit(tx, clock, connections)?
        {
            self.ended(tx, outcome, round_trips, resolved, now, report)?;
        }
        Ok(())
    }

    fn ended(
        &mut self,
        tx: Tx,
        outcome: Outcome,
        round_trips: u32,
        resolved: u32,
        now: Instant,
        report: &mut impl FnMut(&Ended<'_, W::Job>),
    ) -> Result<(), RunnerError> {
        let place = self.places[tx.index()];
        let flight = &mut self.flights[place];
        let job = flight.job.as_ref().ok_or(Broken::Protocol)?;
        let Flight { script, began, before, .. } = flight;
        report(&Ended { job, script, outcome, round_trips, began: *began, at: now, before: *before, place });
        let counts = &mut self.counts;
        counts.resolved += u64::from(resolved);
        flight.tx = None;
        match outcome {
            Outcome::Committed(_) => {
                counts.committed += 1;
                counts.declined += u64::from(flight.declined);
                counts.round_trips += u64::from(round_trips);
                counts.gain += flight.script.gain;
                flight.job = None;
                self.idle.push(place);
            }
            Outcome::Aborted | Outcome::NoBuffer => {
                counts.aborted += 1;
                counts.short += u64::from(outcome == Outcome::NoBuffer);
                flight.pause = now.after(backoff::pause(flight.before, &mut self.random));
                flight.before += 1;
                self.paused.push(place);
            }
            other => return Err(RunnerError::Ended(other)),
        }
        Ok(())
    }
}
