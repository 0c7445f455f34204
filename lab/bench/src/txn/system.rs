//! A design's shard in its own process, a client of it, and its measurements.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use remora_store::Random;
use remora_store::txn::workload::{Audit, Counts, Ended, Load, Runner, Workload};
use remora_store::txn::{Design, Granted, Outcome};

use crate::testbed::Testbed;
use crate::testbed::process::Process;
use crate::{SHORTER, histogram, median};
use remora_service::txn::{Session, Size};

/// The maximum number of concurrent transactions of a client.
pub(crate) const MOST: u32 = 64;
/// The number of readings of bare verbs.
const TRIPS: usize = 4096 / SHORTER as usize;
/// Time without a completed transaction after which the run fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of idle iterations between two reads of the clock while no timer is pending.
const LOOK_EVERY: u32 = 64;

/// Results of one round.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Round {
    /// Median latency of a transaction in nanoseconds, from its first attempt to its commit.
    pub p50: f64,
    /// 99th percentile of the latency, in nanoseconds.
    pub p99: f64,
    /// Mean latency in nanoseconds.
    pub mean: f64,
    /// Transactions that committed, per second.
    pub rate: f64,
    /// Mean round trips of an attempt that committed.
    pub round_trips: f64,
    /// Number of attempts.
    pub attempted: f64,
    /// Number of attempts that committed.
    pub committed: f64,
    /// Number of attempts that aborted.
    pub aborted: f64,
}

/// A design: its shard and a client.
pub(crate) struct SystemUnderTest {
    /// Design of the shard.
    pub design: Design,
    // The client must be dropped before its shard ends.
    session: Session,
    shard: Process,
    time: Duration,
    began: Instant,
    /// The store's time at the end of the last run, in microseconds.
    clock: u64,
    /// Sum of the values of all rows, for checking that transactions preserve it.
    sum: i64,
}

/// Starts a shard's server.
fn start(
    testbed: &Testbed,
    design: Design,
    slots: u64,
    extent: remora_store::txn::workload::Extent,
) -> Result<(Process, SocketAddr)> {
    let words = [
        ("--design", design.name().to_owned()),
        ("--core", testbed.cores()[1].to_string()),
        ("--keys", extent.keys.to_string()),
        ("--slots", slots.to_string()),
        ("--key-len", extent.max_key.to_string()),
        ("--value-len", extent.max_value.to_string()),
        ("--max-keys", extent.max_keys.to_string()),
        ("--window", MOST.to_string()),
        ("--clients", "4".to_owned()),
    ];
    let mut command = testbed.program()?;
    command.args(["serve", "txn", "--child", "--spin"]).args(testbed.server(link(design)));
    words.iter().for_each(|(option, value)| {
        command.args([option, value.as_str()]);
    });
    let started = Process::start_ready(&mut command, 1);
    let (shard, lines) = started.with_context(|| format!("a shard of {} did not start", design.name()))?;
    Ok((shard, lines[0].trim().parse().context("the address of a shard")?))
}

/// Returns the index of a design's link in the testbed.
fn link(design: Design) -> usize {
    Design::ALL.iter().position(|other| *other == design).unwrap_or(0)
}

impl SystemUnderTest {
    /// Starts the shard, writes the workload's rows to it, and stops it until its turn comes.
    pub(crate) fn take<W: Workload>(
        testbed: &Testbed,
        time: Duration,
        design: Design,
        slots: u64,
        workload: &W,
    ) -> Result<SystemUnderTest> {
        let (shard, address) = start(testbed, design, slots, workload.extent())?;
        let size = Size { window: MOST, max_keys: workload.extent().max_keys };
        let context = testbed.client(link(design)).open()?;
        let session = Session::open(&context, &[address], size)?;
        let began = Instant::now();
        let clock = session.clock();
        let mut system = SystemUnderTest { design, session, shard, time, began, clock, sum: 0 };
        let load = Load::of(workload);
        let jobs = load.jobs();
        system.sum = system.carry_out(load, jobs)?.gain;
        system.stop()?;
        Ok(system)
    }

    fn stop(&mut self) -> Result<()> {
        self.session.settle()?;
        self.shard.stop()
    }

    fn runner<W: Workload>(&self, workload: W, window: u32, seed: u64) -> Runner<W> {
        Runner::new(workload, window as usize, seed).ahead(self.clock)
    }

    /// Runs until every drawn transaction is carried out; after `limit` no transaction is started. Returns
    /// the duration.
    fn drive<W: Workload>(
        &mut self,
        runner: &mut Runner<W>,
        limit: Option<Duration>,
        mut observe: impl FnMut(&Ended<'_, W::Job>),
    ) -> Result<Duration> {
        let began = self.began;
        let clock = || remora_transport::Instant(began.elapsed().as_nanos() as u64);
        let started = clock();
        let mut last = started;
        let mut vain = 0_u32;
        while !runner.is_done() {
            // The clock is read once in a turn, after polling. A reading takes as long as a tenth of a
            // transaction's work here, and as long as an empty turn, during which completions would wait.
            let read = OnceCell::new();
            let now = || *read.get_or_init(clock);
            let got = self.session.turn(|shard, completion, machine, ends| {
                runner.complete(now, shard, completion, machine, ends, &mut observe)?;
                if runner.is_waiting() {
                    runner.begin(now(), machine, ends, &mut observe)?;
                }
                Ok(())
            })?;
            vain = if got > 0 { 0 } else { vain + 1 };
            if got == 0 && !runner.is_waiting() && !vain.is_multiple_of(LOOK_EVERY) {
                continue;
            }
            let now = now();
            if runner.may_begin(now) {
                let (machine, mut ends) = self.session.parts()?;
                runner.begin(now, machine, &mut ends, &mut observe)?;
            }
            if got > 0 {
                last = now;
            }
            ensure!(
                Duration::from_nanos(now.since(last)) < PATIENCE,
                "transactions of {} do not end",
                self.design.name()
            );
            if limit.is_some_and(|limit| Duration::from_nanos(now.since(started)) > limit) {
                runner.forget();
            }
        }
        Ok(Duration::from_nanos(clock().since(started)))
    }

    /// Carries out `jobs` transactions and returns their counts.
    fn carry_out<W: Workload>(&mut self, workload: W, jobs: u64) -> Result<Counts> {
        let mut runner = self.runner(workload, MOST, 1);
        runner.draw(jobs);
        self.drive(&mut runner, None, |_| ())?;
        Ok(runner.counts())
    }

    /// Measures one round of the second workload with `window` transactions at a time; the first workload
    /// warms up. The shard's server runs only during the round.
    pub(crate) fn round<W: Workload>(
        &mut self,
        [first, workload]: [W; 2],
        window: u32,
        seed: u64,
    ) -> Result<Round> {
        self.shard.go_on()?;
        let draws = (self.time.as_micros() as u64).max(1000);
        // The system measured before has evicted this one's data from the caches, and many transactions in
        // parallel warm them up faster.
        let mut warm = self.runner(first, MOST, !seed);
        warm.draw(draws);
        self.drive(&mut warm, Some(self.time), |_| ())?;
        self.sum += warm.counts().gain;
        let mut runner = self.runner(workload, window, seed);
        runner.draw(draws / 10);
        self.drive(&mut runner, Some(self.time / 10), |_| ())?;
        let mut latencies = histogram()?;
        let before = runner.counts();
        runner.draw(draws);
        let took = self.drive(&mut runner, Some(self.time), |ended| {
            if let Outcome::Committed(_) = ended.outcome {
                latencies.saturating_record((ended.at.0 - ended.began[0].0).max(1));
            }
        })?;
        let counts = runner.counts();
        self.sum += counts.gain;
        self.stop()?;
        let since = |counter: fn(&Counts) -> u64| (counter(&counts) - counter(&before)) as f64;
        let committed = since(|counts| counts.committed);
        Ok(Round {
            p50: latencies.value_at_quantile(0.5) as f64,
            p99: latencies.value_at_quantile(0.99) as f64,
            mean: latencies.mean(),
            rate: committed / took.as_secs_f64(),
            round_trips: since(|counts| counts.round_trips) / committed,
            attempted: since(|counts| counts.attempted),
            committed,
            aborted: since(|counts| counts.aborted),
        })
    }

    /// Measures a READ of FaRM's index followed by a READ of an object, with these lengths and at random
    /// addresses. Returns the time in nanoseconds, or `None` if the shard is of another design.
    pub(crate) fn bare(&mut self, [near, object]: [usize; 2]) -> Result<Option<f64>> {
        let &Granted::Farm(grant) = self.session.granted() else { return Ok(None) };
        self.shard.go_on()?;
        let mut random = Random::new(TRIPS as u64);
        let mut both = || {
            let word = random.below(grant.homes);
            let number = random.below(grant.keys);
            let first = self.session.bare_read(grant.index_at(word), near)?;
            Ok(first + self.session.bare_read(grant.object_at(number), object)?)
        };
        let all: Result<Vec<f64>> = (0..TRIPS).map(|_| both()).collect();
        self.stop()?;
        Ok(Some(median(&all?)))
    }

    /// Checks the sum of all rows: every loaded row and every committed change must be present, once and
    /// whole.
    pub(crate) fn audit<W: Workload>(&mut self, workload: &W) -> Result<()> {
        self.shard.go_on()?;
        let audit = Audit::of(workload);
        let jobs = audit.jobs();
        let counts = self.carry_out(audit, jobs)?;
        self.stop()?;
        ensure!(counts.declined == 0, "{} rows have values of other rows", counts.declined);
        ensure!(
            counts.gain == self.sum,
            "{}: the rows are worth {}, and should be {}: transactions were lost or happened by half",
            self.design.name(),
            counts.gain,
            self.sum
        );
        Ok(())
    }
}
