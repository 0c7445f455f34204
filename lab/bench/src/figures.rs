//! `remora figures`: draws the figures of the papers from this software, into a folder.

mod irn;
mod notes;
mod rma;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};

use crate::curves::{Saved, saved};
use crate::prism::{loads, transactions};
use crate::strom::figures as strom;
use crate::{self as bench, Report};
use remora_options::device::PortName;
use remora_options::number::whole;
use remora_options::output::{self, REPORT};

/// The figures that are drawn together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Figures {
    /// PRISM, Figures 1 and 2: its operations, and a READ through a pointer over three networks.
    Prism,
    /// RedN, Figures 7, 8, 10, 11, 13, 14 and Tables 3 to 5: chains on modelled hardware; Figure 15: a reader
    /// next to writers.
    Redn,
    /// `StRoM`, Figures 5 and 7 to 13: kernels on modelled hardware and in this software.
    Strom,
    /// Goodput as a function of loss, with and without IRN.
    Loss,
    /// Two flows that share a bottleneck.
    Congestion,
    /// 1RMA, Figures 11, 12, 14, 15, 16a and 16b: load, isolation, key rotation, convergence and jitter, all
    /// simulated.
    Rma,
    /// IRN, Figures 1 to 10 and 12, and Table 1: IRN and RoCE, with and without pause frames, on 54 simulated
    /// hosts.
    Irn,
    /// PRISM, Figure 3: throughput and latency of reads, PRISM-KV and Pilaf.
    #[value(name = "3")]
    Three,
    /// PRISM, Figure 4: throughput and latency of 50 % reads and 50 % writes.
    #[value(name = "4")]
    Four,
    /// PRISM, Figure 6: throughput and latency of replicated blocks, PRISM-RS and ABDLOCK.
    #[value(name = "6")]
    Six,
    /// PRISM, Figure 7: latency of replicated blocks as a function of key skew, with 100 clients.
    #[value(name = "7")]
    Seven,
    /// PRISM, Figure 9: throughput and latency of transactions, PRISM-TX and FaRM.
    #[value(name = "9")]
    Nine,
    /// PRISM, Figure 10: peak throughput of transactions as a function of key skew.
    #[value(name = "10")]
    Ten,
    /// RedN, Figure 16: GETs while their server is killed and restarted.
    #[value(name = "16")]
    Sixteen,
}

impl Figures {
    const ALL: [Figures; 14] = [
        Figures::Prism,
        Figures::Redn,
        Figures::Strom,
        Figures::Loss,
        Figures::Congestion,
        Figures::Rma,
        Figures::Irn,
        Figures::Three,
        Figures::Four,
        Figures::Six,
        Figures::Seven,
        Figures::Nine,
        Figures::Ten,
        Figures::Sixteen,
    ];

    /// Returns the benchmark that draws the figure. `None`: the figure is drawn from rows.
    fn bench(self) -> Option<&'static str> {
        match self {
            Figures::Prism => Some("prism"),
            Figures::Redn => Some("redn"),
            Figures::Strom => Some("strom"),
            Figures::Loss => Some("loss"),
            Figures::Congestion => Some("congestion"),
            Figures::Sixteen => Some("failure"),
            _ => None,
        }
    }

    /// Returns the benchmark whose rows the figure is drawn from, or `None`.
    fn rows(self) -> Option<&'static str> {
        match self {
            Figures::Three | Figures::Four => Some("kv"),
            Figures::Six | Figures::Seven => Some("block"),
            Figures::Nine | Figures::Ten => Some("txn"),
            _ => None,
        }
    }

    /// Returns whether the figure can be drawn from saved rows.
    fn takes_rows(self) -> bool {
        self.rows().is_some() || self == Figures::Strom
    }

    /// Returns whether the figure is drawn from these rows. A figure that has its own benchmark is drawn from
    /// rows only if they contain some of it.
    fn is_from(self, rows: &[Saved]) -> bool {
        let measured = || rows.iter().any(|row| row.bench == "strom");
        self.rows().is_some() || self == Figures::Strom && measured()
    }

    /// Draws the figure from rows into a folder.
    fn draw(self, folder: &Path, rows: &[Saved]) -> Result<()> {
        match self {
            Figures::Three => loads::figure_3(folder, rows),
            Figures::Four => loads::figure_4(folder, rows),
            Figures::Six => loads::figure_6(folder, rows),
            Figures::Seven => loads::figure_7(folder, rows),
            Figures::Nine => transactions::figure_9(folder, rows),
            Figures::Ten => transactions::figure_10(folder, rows),
            _ => Ok(()),
        }
    }
}

/// Arguments of `remora figures`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora figures\n  remora figures prism --port udp\n  remora figures loss congestion --rounds 3\n  remora figures 3 4 --rows curves.jsonl\n  remora figures strom --rows strom.jsonl\n  remora figures irn --quick\n  remora figures irn --rounds 5\n\nEach figure states if it shows model time, simulated time or real time, and its numbers are printed."
)]
pub struct Args {
    /// The figures to draw [default: all].
    ids: Vec<Figures>,
    /// Folder for the figures; `--report report` renews those that the repository keeps.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    report: PathBuf,
    /// Use this port only in the figures that measure something.
    #[arg(long)]
    port: Option<PortName>,
    /// Files with the JSON output of earlier measurements: `remora bench kv --curves --json` and `remora
    /// bench block --curves --json` for Figures 3, 4, 6 and 7, `remora bench txn ycsb-t --json` for Figures 9
    /// and 10, and `remora bench strom --json` for `strom` [default: a short measurement now].
    #[arg(long, value_name = "FILE")]
    rows: Vec<PathBuf>,
    /// Number of interleaved rounds of each measurement.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// For `irn` only: run one seed with less load, and compare the signs of the results with the expected
    /// ones.
    #[arg(long)]
    quick: bool,
    /// Number of simultaneous simulation runs of `irn` [default: one for each core].
    #[arg(long, value_parser = whole::<usize>(1..=256))]
    jobs: Option<usize>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Runs `remora figures`: each benchmark in turn, as if it were called alone.
pub fn run(args: &Args) -> Result<()> {
    let wanted: Vec<Figures> =
        Figures::ALL.into_iter().filter(|id| args.ids.is_empty() || args.ids.contains(id)).collect();
    if let (false, [first, ..]) =
        (args.rows.is_empty() || wanted.iter().any(|id| id.takes_rows()), &wanted[..])
    {
        let name = first.to_possible_value().context("a name")?;
        bail!("{} is not drawn from rows: name figures that are, or leave --rows out", name.get_name());
    }
    if args.quick && wanted != [Figures::Irn] {
        bail!("--quick is for irn alone: name it, or leave --quick out");
    }
    // Checks first that the folder is writable, because the measurements take long.
    output::folder(&args.report)?;
    let mut rows = Vec::new();
    for file in &args.rows {
        rows.extend(saved(file)?);
    }
    let (given, measured): (Vec<Figures>, Vec<Figures>) =
        wanted.into_iter().partition(|figures| figures.is_from(&rows));
    for bench in measured.iter().filter_map(|figures| figures.bench()) {
        let mut words = args.words(bench);
        words.push("--report".into());
        words.push(args.report.clone().into());
        bench::run(bench::Args::try_parse_from(words)?)?;
    }
    if measured.contains(&Figures::Rma) {
        let mut report = Report::new(args.json);
        rma::draw(&args.report, rma::Length::Whole)?.into_iter().for_each(|row| report.add(row));
        report.finish();
    }
    if measured.contains(&Figures::Irn) {
        irn::run(args)?;
    }
    if given.is_empty() { Ok(()) } else { from_rows(args, &given, rows) }
}

impl Args {
    /// Returns the arguments of a benchmark.
    fn words(&self, bench: &str) -> Vec<OsString> {
        let rounds = self.rounds.to_string();
        let mut words: Vec<OsString> = ["bench", bench, "--rounds", &rounds].map(OsString::from).to_vec();
        if let Some(port) = self.port {
            words.extend(["--port", port.name()].map(OsString::from));
        }
        if self.json {
            words.push("--json".into());
        }
        words
    }
}

/// Draws the figures that are drawn from rows, which come from files or from a measurement now.
fn from_rows(args: &Args, wanted: &[Figures], mut rows: Vec<Saved>) -> Result<()> {
    for (bench, option) in [("kv", "--curves"), ("block", "--curves"), ("txn", "ycsb-t")] {
        if args.rows.is_empty() && wanted.iter().any(|figures| figures.rows() == Some(bench)) {
            let mut words = args.words(bench);
            words.push(option.into());
            rows.extend(bench::rows(&bench::Args::try_parse_from(words)?)?);
        }
    }
    let mut residuals = Report::new(args.json);
    if wanted.iter().any(|figures| figures.rows().is_some()) {
        loads::rows().into_iter().for_each(|row| residuals.add(row));
    }
    if wanted.contains(&Figures::Strom) {
        strom::draw_rows(&args.report, &rows)?.into_iter().for_each(|row| residuals.add(row));
    }
    residuals.finish();
    wanted.iter().try_for_each(|figures| figures.draw(&args.report, &rows))
}
