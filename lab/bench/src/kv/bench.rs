//! `remora bench kv`: the designs, compared with their lower bounds and with memcached and redis.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use remora_store::ycsb::{Distribution, Mix};

use super::case::{Case, PUTS};
use super::contest::{Contestant, Counts, RivalUnderTest, Round, system};
use super::flight::RIVAL_WINDOW;
use super::rival::Rival;
use super::{curves, rows, transports};
use crate::testbed::Testbed;
use crate::{Bare, Report, Row};
use remora_options::cores::{pin, two_cores};
use remora_options::device::PortName;
use remora_options::number::{natural, whole};
use remora_service::kv::Design;
use remora_service::with_design;
use remora_store_cli::designs;
use remora_store_cli::measure::runner::Plan;
use remora_store_cli::measure::workload::{self, Chosen};
use remora_store_cli::transport::TransportName;

/// Arguments of `remora bench kv`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench kv\n  remora bench kv --port udp --records 1000000 --json\n  remora bench kv --workload A --distribution uniform --rounds 9\n  remora bench kv --workload ycsb/workloads/workloadb --design farm\n  remora bench kv --curves --port shm --json > curves.jsonl\n  remora bench kv --transport rc,irn,rma --records 10000\n\nServer and client have a core each; the servers take turns on theirs. Every value is checked. Throughput is measured with `window`\noperations in flight, and latency with one. The latency of memcached and redis is measured with both processes on one core, because\notherwise the switch between cores would dominate.\n\nThe limit of a latency is 1.15 times the sum of its round trips with the bare verb in the same round (READs of the same bytes from as\nmany places, or a SEND that a program answers with a SEND) and of the design's CPU time, measured without a NIC.\n\nYCSB: A has 50 % updates, B 5 % updates, C only reads, D reads of the latest records and 5 % inserts, E scans and 5 % inserts, F 50 %\nread-modify-writes. These tables have no order, so a scan is 1 to 100 GETs. A read-modify-write is a GET and a PUT.\n\n--transport measures a table of design farm over each transport and compares with the first one; the port is udp unless --port is\nxdp. Then one of two servers with the same records is killed; longest_gap is the longest time without an answered GET.\n\nNo store writes to a disk: memcached and redis run without persistence, like the tables."
)]
pub struct Args {
    /// Measure this design only.
    #[arg(long, value_parser = designs::kv())]
    design: Option<Design>,
    /// Measure over this port only.
    #[arg(long)]
    port: Option<PortName>,
    /// YCSB workload: a letter from A to F, or a file in YCSB's format [default: A, B, C, and PUTs alone].
    #[arg(long, value_name = "LETTER|FILE", value_parser = workload::option)]
    workload: Option<String>,
    /// Distribution of the keys [default: both; PUTs alone, D and E have their own].
    #[arg(long)]
    distribution: Option<Keys>,
    /// Number of records [default: that of the workload's file, otherwise 100000].
    #[arg(long, value_parser = whole::<u64>(1..=100_000_000))]
    records: Option<u64>,
    /// Value length in bytes [default: that of the workload's file, otherwise 512].
    #[arg(long, value_parser = whole::<u32>(16..=65536))]
    value_len: Option<u32>,
    /// Operations in flight in the measurement of throughput.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=64))]
    window: u32,
    /// Operations in one round with a full window; a sixteenth of them one at a time, and a twentieth for
    /// scans.
    #[arg(long, default_value_t = 64_000, value_parser = whole::<u64>(640..=1_000_000_000))]
    operations: u64,
    /// Number of rounds; the systems take turns in each.
    #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// Measure Figures 3 and 4 of the paper instead: 1, 2, 4, ... operations in flight with uniform keys.
    #[arg(long, conflicts_with_all = ["design", "workload", "distribution"])]
    curves: bool,
    /// Measure design farm over these transports instead, and compare with the first of them.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["design", "curves", "no_rivals"])]
    transport: Vec<TransportName>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not measure memcached and redis.
    #[arg(long)]
    no_rivals: bool,
    /// CPU cores of client and server [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    cores: Vec<usize>,
}

/// The distribution of the keys.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// All keys with equal probability.
    Uniform,
    /// Zipfian, with YCSB's constant of 0.99.
    Zipf,
}

impl Args {
    /// Returns the cases to measure.
    fn cases(&self, workload: Option<&Chosen>) -> Vec<Case> {
        let with = |chosen: Chosen| {
            let mix = chosen.mix;
            let variant = |distribution| Chosen { mix: Mix { distribution, ..mix }, ..chosen.clone() };
            let uniform = variant(Distribution::Uniform);
            match (self.distribution, mix.distribution) {
                (Some(Keys::Zipf), Distribution::Uniform) => vec![variant(Mix::A.distribution)],
                (_, Distribution::Latest(_)) | (Some(Keys::Zipf), _) => vec![chosen],
                (Some(Keys::Uniform), _) => vec![uniform],
                // A file specifies its key distribution.
                (None, _) if mix == PUTS || mix == Mix::E || chosen.value_len.is_some() => vec![chosen],
                (None, _) => vec![uniform, chosen],
            }
        };
        let all = || [Mix::C, Mix::B, Mix::A, PUTS].map(Chosen::from).to_vec();
        let chosen = workload.map_or_else(all, |chosen| vec![chosen.clone()]);
        chosen.into_iter().flat_map(with).map(Case::new).collect()
    }

    /// Returns the length of a value in bytes.
    ///
    /// # Errors
    /// Fails if the file specifies a length with which the designs are not measured.
    fn value_len(&self, workload: Option<&Chosen>) -> Result<u32> {
        let of_file = || workload.and_then(|chosen| chosen.value_len);
        let len = self.value_len.or_else(of_file).unwrap_or(512);
        anyhow::ensure!(
            (16..=65536).contains(&len),
            "the workload's values have {len} bytes: give --value-len from 16 to 65536"
        );
        Ok(len)
    }

    fn designs(&self) -> Vec<Design> {
        let all = Design::ALL.into_iter();
        all.filter(|design| self.design.is_none_or(|only| only == *design)).collect()
    }
}

/// The benchmark of `remora bench kv`.
impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        let cores = two_cores(&self.cores)?;
        pin(cores[0])?;
        let workload = self.workload.as_deref().map(workload::choose).transpose()?;
        let workload = workload.as_ref();
        let of_file = || workload.and_then(|chosen| chosen.records);
        let (records, value_len) =
            (self.records.or_else(of_file).unwrap_or(100_000), self.value_len(workload)?);
        let cases = self.cases(workload);
        let window = self.window;
        let operations = self.operations;
        let mut plan = Plan { records, value_len, operations, window, seed: 1, inserts: 0 };
        let inserts = cases.iter().map(|case| Counts::of(case.mix, &plan).inserts(case.mix, self.rounds));
        plan.inserts = inserts.max().unwrap_or(0);
        if self.curves {
            return curves::run(&plan, cores, self.port, self.rounds, report);
        }
        if !self.transport.is_empty() {
            let transports = &self.transport[..];
            let rounds = self.rounds;
            let port = self.port;
            let compared = transports::Comparison { transports, port, cases: &cases, plan: &plan, rounds };
            return compared.run(cores, report);
        }
        let mixes: Vec<Mix> = cases.iter().map(|case| case.mix).collect();
        let rivals: &[Rival] = if self.no_rivals { &[] } else { &Rival::ALL };
        let mut rivals: Vec<RivalUnderTest> = rivals
            .iter()
            .filter_map(|rival| match RivalUnderTest::start(*rival, cores, &plan, &mixes) {
                Ok(system) => Some(system),
                Err(error) => {
                    tracing::warn!("left out: {error:#}");
                    None
                }
            })
            .collect();
        for port in Testbed::ports(self.port) {
            let Some(testbed) = Testbed::open(port, cores, Design::ALL.len(), self.port.is_some())? else {
                continue;
            };
            over(self, &cases, &plan, &testbed, &mut rivals, report)?;
        }
        for rival in &rivals {
            for (index, case) in cases.iter().enumerate() {
                let case = format!("tcp/{}/{}/{}", rival.rival.name(), plan.value_len, case.name);
                let alone = format!("{case}/same-core");
                report.add(Row::new("kv", alone, "latency_p50", "ns", &rival.p50[index]));
                let windowed = format!("{case}/window-{RIVAL_WINDOW}");
                report.add(Row::new("kv", windowed, "rate", "1/s", &rival.rates[index]));
            }
        }
        Ok(())
    }
}

/// Runs the rounds of the designs over one port, alternating with the rivals.
fn over(
    args: &Args,
    cases: &[Case],
    plan: &Plan,
    testbed: &Testbed,
    rivals: &mut [RivalUnderTest],
    report: &mut Report,
) -> Result<()> {
    let mixes: Vec<Mix> = cases.iter().map(|case| case.mix).collect();
    let mut bare = Bare::open(testbed)?;
    let mut systems: Vec<Box<dyn Contestant>> = Vec::new();
    for (link, design) in args.designs().into_iter().enumerate() {
        systems.push(with_design!(design, system(design, testbed, link, plan, &mixes, true))?);
    }
    // The results by workload, design and round. The rivals' rounds of earlier ports are skipped.
    let mut rounds: Vec<Vec<Vec<Round>>> = vec![vec![Vec::new(); systems.len()]; cases.len()];
    let before = rivals.first().map_or(0, |rival| rival.rates[0].len());
    for number in 0..args.rounds {
        for (index, rounds) in rounds.iter_mut().enumerate() {
            for (system, rounds) in systems.iter_mut().zip(rounds) {
                rounds.push(system.round(index, &mut bare)?);
            }
            rivals.iter_mut().try_for_each(|rival| rival.round(index, plan))?;
        }
        tracing::info!(port = testbed.port().name(), number, "round measured");
    }
    for (index, (case, rounds)) in cases.iter().zip(&rounds).enumerate() {
        let beside: Vec<(Rival, &[f64])> =
            rivals.iter().map(|rival| (rival.rival, &rival.rates[index][before..])).collect();
        let context = rows::RowContext { port: testbed.port(), plan, case, rivals: &beside };
        let designs: Vec<(Design, &[Round])> =
            systems.iter().map(|system| system.design()).zip(rounds.iter().map(Vec::as_slice)).collect();
        context.rows(&designs).into_iter().for_each(|row| report.add(row));
    }
    Ok(())
}
