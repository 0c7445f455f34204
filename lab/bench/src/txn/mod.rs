//! `remora bench txn`: PRISM-TX and FaRM with one shard each, in alternating rounds, for Figures 9 and 10 of
//! the paper and further workloads.

mod rows;
mod system;
mod work;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use remora_store::txn::Design;
use remora_store::txn::workload::{SmallBank, Tatp, Workload, YcsbT};

use crate::testbed::Testbed;
use crate::{Bare, PortName, Report};
use remora_options::cores;
use remora_options::number::{natural, whole};
use rows::{AHEAD, RATE, Rounds, Should, floor, peak, point};
use system::{MOST, Round, SystemUnderTest};
use work::Work;

/// The workloads of transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Short read-modify-write transactions, with uniform keys and with growing skew.
    YcsbT,
    /// Six kinds of transactions on bank accounts, a few of them hot.
    Smallbank,
    /// Seven kinds of transactions on the subscribers of a telecom operator, mostly reads.
    Tatp,
}

/// Arguments of `remora bench txn`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench txn\n  remora bench txn --port udp --records 1000000 --json\n  remora bench txn ycsb-t --rounds 9 --keys 2\n  remora bench txn smallbank tatp\n\nClient and shards have a core each; the two designs take turns. A latency is the time from the first attempt at a transaction to its\ncommit. A window is the number of transactions in flight; a rate without a window is the best of all windows. At the end all\nrows are summed up: the effect of every committed transaction must be present, and of none only a part.\n\nThe keys of YCSB-T are chosen without collisions in the table, because the paper's hash function has none. The limit of FaRM's latency is\n1.15 times the sum of its round trips with bare verbs and bare calls in the same round and of its CPU time at both ends, measured\nwithout a NIC."
)]
pub(crate) struct Args {
    /// The workloads to run [default: all].
    workloads: Vec<Name>,
    /// Measure over this port only.
    #[arg(long)]
    port: Option<PortName>,
    /// Number of records of YCSB-T.
    #[arg(long, default_value_t = 100_000, value_parser = whole::<u64>(100..=1_000_000))]
    records: u64,
    /// Length of each record's value in bytes.
    #[arg(long, default_value_t = 512, value_parser = whole::<u32>(16..=65536))]
    value_len: u32,
    /// Number of records that a transaction of YCSB-T changes.
    #[arg(long, default_value_t = 1, value_parser = whole::<u8>(1..=4))]
    keys: u8,
    /// Number of customers of SmallBank.
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u64>(50..=500_000))]
    customers: u64,
    /// Number of subscribers of TATP.
    #[arg(long, default_value_t = 5_000, value_parser = whole::<u32>(10..=40_000))]
    subscribers: u32,
    /// Duration of each measurement in milliseconds.
    #[arg(long, default_value_t = 100, value_parser = whole::<u64>(1..=10_000))]
    millis: u64,
    /// Number of rounds; the designs take turns in each.
    #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// CPU cores of client and shards [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    cores: Vec<usize>,
}

/// The numbers of concurrent transactions: for the curve, for the other workloads, and for the sweep.
const CURVE: [u32; 7] = [1, 2, 4, 8, 16, 32, MOST];
const FEW: [u32; 3] = [1, 16, MOST];
const CROWDS: [u32; 3] = [4, 16, MOST];
/// The Zipf exponents of the sweep, as in Figure 10.
const SKEWS: [f64; 9] = [0.2, 0.4, 0.6, 0.8, 0.99, 1.0, 1.2, 1.4, 1.6];

/// The benchmark of `remora bench txn`. At the end it checks the sum of the rows of each design.
impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        let cores = cores::two_cores(&self.cores)?;
        cores::pin(cores[0])?;
        let time = Duration::from_millis(self.millis);
        for port in Testbed::ports(self.port) {
            let Some(testbed) = Testbed::open(port, cores, Design::ALL.len(), self.port.is_some())? else {
                continue;
            };
            let mut measuring = Measuring { args: self, testbed: &testbed, time, report };
            let wants = |name: Name| self.workloads.is_empty() || self.workloads.contains(&name);
            if wants(Name::YcsbT) {
                measuring.ycsb_t()?;
            }
            if wants(Name::Smallbank) {
                measuring.beside("smallbank", &SmallBank::new(self.customers, 0, 1), |seed| {
                    SmallBank::new(self.customers, seed as u16, seed)
                })?;
            }
            if wants(Name::Tatp) {
                let tatp = |seed| Tatp::new(self.subscribers, seed);
                measuring.beside("tatp", &tatp(0), tatp)?;
            }
        }
        Ok(())
    }
}

/// Both designs over a port.
struct Measuring<'a> {
    args: &'a Args,
    testbed: &'a Testbed,
    /// Duration of each measurement.
    time: Duration,
    report: &'a mut Report,
}

impl Measuring<'_> {
    fn systems<W: Workload>(&self, workload: &W, slots: u64) -> Result<Vec<SystemUnderTest>> {
        let system = |design| SystemUnderTest::take(self.testbed, self.time, design, slots, workload);
        Design::ALL.into_iter().map(system).collect()
    }

    /// Returns a function that makes the path of a design's rows.
    fn path(&self, len: u32, rest: &str) -> impl Fn(Design) -> String + use<> {
        let port = self.testbed.port().name();
        let rest = rest.to_owned();
        move |design| format!("{port}/{}/{len}/{rest}", design.name())
    }

    /// Runs the rounds; in each, the designs take turns. `before` runs at the start of each round.
    fn turns<W: Workload>(
        &self,
        systems: &mut [SystemUnderTest],
        window: u32,
        draw: impl Fn(u64) -> W,
        mut before: impl FnMut(&mut [SystemUnderTest]) -> Result<()>,
    ) -> Result<Vec<Rounds>> {
        let mut rounds: Vec<(Design, Vec<Round>)> =
            systems.iter().map(|system| (system.design, Vec::new())).collect();
        for number in 0..self.args.rounds {
            before(systems)?;
            for (system, (_, rounds)) in systems.iter_mut().zip(&mut rounds) {
                let seed = u64::from(number) << 8 | u64::from(window) | 1;
                rounds.push(system.round([draw(!seed), draw(seed)], window, seed)?);
            }
        }
        Ok(rounds)
    }

    /// Measures the workloads of Figures 9 and 10.
    fn ycsb_t(&mut self) -> Result<()> {
        let Args { records, value_len, keys, .. } = *self.args;
        let name = if keys == 1 { "ycsb-t".to_owned() } else { format!("ycsb-t-{keys}") };
        let slots = 2 * records;
        let workload =
            YcsbT::new(records, value_len, keys, 0.0, 1).apart(slots).context("memory for records")?;
        let mut bare = Bare::open(self.testbed)?;
        let mut systems = self.systems(&workload, slots)?;
        let mut curve = Vec::new();
        for window in CURVE {
            let mut should = Should::default();
            let mut work = Work::new(value_len)?;
            // Only for transactions on one key the sequence of verbs is known.
            let floored = window == 1 && keys == 1;
            let before = |systems: &mut [SystemUnderTest]| match floored {
                true => shoulds(systems, &mut bare, &mut work, &mut should),
                false => Ok(()),
            };
            let rounds = self.turns(&mut systems, window, |seed| workload.skewed(0.0, seed), before)?;
            let rest = format!("{name}/uniform/window-{window}");
            let path = self.path(value_len, &rest);
            point(&rounds, window == 1 && keys == 1, &path, self.report);
            if floored {
                floor(&rounds, &should, &path(Design::Farm), self.report);
            }
            curve.push(rounds);
        }
        self.peak(&curve, (keys == 1).then_some(RATE), value_len, &format!("{name}/uniform"));
        for skew in SKEWS {
            let mut crowds = Vec::new();
            for window in CROWDS {
                crowds.push(self.turns(
                    &mut systems,
                    window,
                    |seed| workload.skewed(skew, seed),
                    |_| Ok(()),
                )?);
            }
            self.peak(&crowds, (keys == 1).then_some(AHEAD), value_len, &format!("{name}/zipf-{skew}"));
        }
        systems.iter_mut().try_for_each(|system| system.audit(&workload))
    }

    fn peak(&mut self, windows: &[Vec<Rounds>], least: Option<f64>, len: u32, rest: &str) {
        let rows = peak(windows, least, self.path(len, rest));
        rows.into_iter().for_each(|row| self.report.add(row));
    }

    /// Measures another workload, without bounds.
    fn beside<W: Workload>(&mut self, name: &str, workload: &W, draw: impl Fn(u64) -> W) -> Result<()> {
        let extent = workload.extent();
        let mut systems = self.systems(workload, 2 * extent.keys)?;
        let mut windows = Vec::new();
        for window in FEW {
            let rounds = self.turns(&mut systems, window, &draw, |_| Ok(()))?;
            let rest = format!("{name}/window-{window}");
            point(&rounds, false, self.path(extent.max_value, &rest), self.report);
            windows.push(rounds);
        }
        self.peak(&windows, None, extent.max_value, name);
        systems.iter_mut().try_for_each(|system| system.audit(workload))
    }
}

/// Measures the round trips and CPU work that bound FaRM's transaction latency.
fn shoulds(
    systems: &mut [SystemUnderTest],
    bare: &mut Bare,
    work: &mut Work,
    should: &mut Should,
) -> Result<()> {
    let lens = work.lens()?;
    // The places are spread like those in the shard: neither index nor objects are in a cache when they are
    // read.
    let reads = systems.iter_mut().find_map(|system| system.bare([lens.near, lens.object]).transpose());
    let reads = reads.context("a shard of FaRM's")??;
    let calls = bare.echo(lens.entry, 0)? + bare.echo(0, 0)?;
    should.verbs.push(reads + calls);
    should.reads.push(2.0 * reads);
    should.work.push(work.measure()?);
    Ok(())
}
