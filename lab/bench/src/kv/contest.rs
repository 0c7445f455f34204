//! The measured systems: the designs over a port and the rivals, which take turns so that a disturbance
//! affects all of them.

use anyhow::Result;
use remora_store::kv::MESSAGE_HEADER;
use remora_store::ycsb::Mix;
use remora_store::ycsb::record::{KEY_LEN, Record};

use super::flight::{Flight, load};
use super::rival::{Rival, Running};
use super::work::{self, Measured};
use super::work::{Kind, drawn};
use crate::testbed::Testbed;
use crate::{Bare, median};
use remora_service::kv::{Design, KvDesign, Session};
use remora_store_cli::measure::parts::Parts;
use remora_store_cli::measure::runner::{Plan, Runner, Server, memory_for};

/// Maximum number of warm-up operations before a round. With a million records, this many touch every line of
/// an index that fits into a cache.
const WARM: u64 = 500_000;

/// The number of operations of a round, one at a time and with a full window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Counts {
    /// The operations that warm up the caches with a full window before the measurement, because another
    /// design ran before.
    pub warm: u64,
    /// Operations measured one at a time.
    pub alone: u64,
    /// Operations measured with the window full.
    pub together: u64,
}

impl Counts {
    /// Returns the counts for a workload of this plan. Scans read 50 records on average, so there are fewer
    /// of them.
    pub(crate) fn of(mix: Mix, plan: &Plan) -> Counts {
        let few = if mix.scan > 0 { 20 } else { 1 };
        let alone = plan.operations / 16 / few;
        let together = plan.operations / few;
        Counts { warm: WARM.min(plan.records) / few, alone, together }
    }

    /// Returns an upper bound of the records that a workload inserts in `rounds` rounds, with a margin for
    /// chance.
    pub(crate) fn inserts(self, mix: Mix, rounds: u32) -> u64 {
        let operations = (self.warm + self.alone * 3 / 2 + self.together) * u64::from(rounds);
        let expected = operations * u64::from(mix.insert) / 100;
        expected + expected / 10 + u64::from(mix.insert > 0) * 1000
    }
}

/// Results of a design in one round of a workload.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Round {
    /// Mean round trips of an operation.
    pub round_trips: f64,
    /// Median latency of an operation that is alone in flight, in nanoseconds.
    pub p50: f64,
    /// 99th percentile of the same latency, in nanoseconds.
    pub p99: f64,
    /// Operations per second with the window full.
    pub rate: f64,
    /// CPU time of the server per operation with the window full, in nanoseconds.
    pub cpu: f64,
    /// The expected parts of the latency, for workloads of one kind of operation.
    pub should: Option<Should>,
}

/// The expected parts of the latency of an operation, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Should {
    /// The time of the bare verb, multiplied by the number of round trips.
    pub verbs: f64,
    /// The time of the client's and the server's code.
    pub work: f64,
}

/// A design under test over a port.
pub(crate) trait Contestant {
    /// Returns the design.
    fn design(&self) -> Design;

    /// Measures one round of workload `index`. The server runs only during the round.
    ///
    /// # Errors
    /// Fails on a wrong answer or if a process has died.
    fn round(&mut self, index: usize, bare: &mut Bare) -> Result<Round>;

    /// Measures the operations per second of workload `index` while `window` operations are always in flight.
    /// A tenth as many operations warm up first. The server runs only during the measurement.
    ///
    /// # Errors
    /// Fails on a wrong answer or if a process has died.
    fn closed_loop(&mut self, index: usize, operations: u64, window: u32) -> Result<f64>;
}

/// Starts a design's server on a link with its records, and stops it until its turn. If the rounds have
/// bounds (`judged`), its CPU work is measured too.
pub(crate) fn system<D: KvDesign>(
    design: Design,
    testbed: &Testbed,
    link: usize,
    plan: &Plan,
    mixes: &[Mix],
    judged: bool,
) -> Result<Box<dyn Contestant>> {
    let server = Server::start(design, testbed, link, plan)?;
    let mut runner = Runner::<Session<D>>::connect(&server.address, &testbed.client(link), plan)?;
    runner.stop(&server)?;
    let streams = mixes.iter().map(|mix| (*mix, Parts::new(*mix, plan.records, plan.seed))).collect();
    let most = plan.records + plan.inserts;
    let index_len = D::index_len(2 * most as u32, plan.seed);
    let values_len = memory_for(most, plan.value_len);
    let records = drawn(plan, PLACES).collect();
    let work = if judged { work::of(design, plan)? } else { None };
    let plan = *plan;
    Ok(Box::new(SystemUnderTest::<D> {
        design,
        runner,
        server,
        work,
        streams,
        plan,
        records,
        index_len,
        values_len,
    }))
}

struct SystemUnderTest<D: KvDesign> {
    design: Design,
    runner: Runner<Session<D>>,
    server: Server,
    work: Option<Measured>,
    streams: Vec<(Mix, Parts)>,
    plan: Plan,
    /// The records in the order of the requests.
    records: Vec<Record>,
    /// The size of the index in bytes.
    index_len: usize,
    /// The size of the values in bytes.
    values_len: usize,
}

/// Number of records that bare READs address; it exceeds the number of trips in a measurement.
const PLACES: usize = 8192;

/// The times in nanoseconds of the bare verbs of an operation: of each but the last, and of the last.
struct Verbs {
    first: f64,
    last: f64,
}

impl<D: KvDesign> SystemUnderTest<D> {
    /// Measures the bare verbs of an operation with the operation's sizes.
    fn verbs(&self, kind: Kind, bare: &mut Bare) -> Result<Verbs> {
        let value_len = self.plan.value_len as usize;
        if let (Kind::Get, Some((first, last))) = (kind, D::read_lens(KEY_LEN, value_len)) {
            // The places are spread like the lines of the table, which are not all in a cache either.
            let places = |span| Bare::places(self.records.iter().copied(), span, first.max(last));
            let index = places(self.index_len);
            let values = places(self.values_len);
            return Ok(Verbs { first: bare.read(first, &index)?, last: bare.read(last, &values)? });
        }
        let asking = MESSAGE_HEADER + KEY_LEN;
        let echo = match kind {
            Kind::Get => bare.echo(asking, MESSAGE_HEADER + value_len)?,
            Kind::Put => bare.echo(asking + value_len, MESSAGE_HEADER)?,
        };
        Ok(Verbs { first: echo, last: echo })
    }
}

impl<D: KvDesign> Contestant for SystemUnderTest<D> {
    fn design(&self) -> Design {
        self.design
    }

    fn round(&mut self, index: usize, bare: &mut Bare) -> Result<Round> {
        let mix = self.streams[index].0;
        let kind = Kind::of(mix);
        let judged = kind.filter(|_| self.work.is_some());
        let verbs = judged.map(|kind| self.verbs(kind, bare)).transpose()?;
        let counts = Counts::of(mix, &self.plan);
        let parts = &mut self.streams[index].1;
        self.server.go_on()?;
        self.runner.together(parts, counts.warm)?;
        let alone = self.runner.alone(parts, counts.alone)?;
        let before = self.server.cpu_ns()?;
        let rate = self.runner.together(parts, counts.together)?;
        let cpu = (self.server.cpu_ns()? - before) as f64 / counts.together as f64;
        self.runner.stop(&self.server)?;
        let should = match (judged, verbs, &mut self.work) {
            (Some(kind), Some(verbs), Some(work)) => Some(Should {
                verbs: (alone.round_trips - 1.0) * verbs.first + verbs.last,
                work: work(kind)?,
            }),
            _ => None,
        };
        Ok(Round { round_trips: alone.round_trips, p50: alone.p50, p99: alone.p99, rate, cpu, should })
    }

    fn closed_loop(&mut self, index: usize, operations: u64, window: u32) -> Result<f64> {
        let parts = &mut self.streams[index].1;
        self.server.go_on()?;
        self.runner.closed_loop(parts, operations / 10, window)?;
        let rate = self.runner.closed_loop(parts, operations, window)?;
        self.runner.stop(&self.server)?;
        Ok(rate)
    }
}

/// A rival and its rounds, for each workload.
pub(crate) struct RivalUnderTest {
    /// The store that was measured.
    pub rival: Rival,
    /// The cores of client and server.
    cores: [usize; 2],
    running: Running,
    streams: Vec<(Mix, Parts)>,
    /// The latencies of single operations in nanoseconds, for each workload.
    pub p50: Vec<Vec<f64>>,
    /// Operations per second, for each workload.
    pub rates: Vec<Vec<f64>>,
}

impl RivalUnderTest {
    /// Starts a rival and loads its records. An idle rival sleeps, so that it need not be stopped.
    pub(crate) fn start(
        rival: Rival,
        cores: [usize; 2],
        plan: &Plan,
        mixes: &[Mix],
    ) -> Result<RivalUnderTest> {
        // An item takes about 60 bytes beyond key and value. A rival rounds sizes up, and evicts items that
        // do not fit.
        let item = u64::from(plan.value_len) + KEY_LEN as u64 + 100;
        let megabytes = (((plan.records + 2 * plan.inserts) * item * 2) >> 20) + 1024;
        let mut running = Running::start(rival, cores[1], megabytes)?;
        load(&mut running, plan)?;
        // There is one stream for each mix and all rounds, so that the inserted records are known.
        let streams = mixes.iter().map(|mix| (*mix, Parts::new(*mix, plan.records, plan.seed))).collect();
        let none = vec![Vec::new(); mixes.len()];
        Ok(RivalUnderTest { rival, cores, running, streams, p50: none.clone(), rates: none })
    }

    /// Measures one round of workload `index`.
    pub(crate) fn round(&mut self, index: usize, plan: &Plan) -> Result<()> {
        let (mix, parts) = &mut self.streams[index];
        let counts = Counts::of(*mix, plan);
        let mut flight = Flight::new(&mut self.running, plan, parts);
        flight.together(counts.warm, self.cores[1])?;
        self.p50[index].push(flight.alone(counts.alone, self.cores[0])?);
        self.rates[index].push(flight.together(counts.together, self.cores[1])?);
        tracing::info!(rival = self.rival.name(), rate = median(&self.rates[index]), "measured");
        Ok(())
    }
}
