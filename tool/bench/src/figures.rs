//! `remora figures`: what the papers draw, drawn from this software, into a folder.

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

/// Figures that are drawn together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Figures {
    /// PRISM, Figures 1 and 2: its operations, and a READ through a pointer over three networks.
    Prism,
    /// RedN, Figures 7, 8, 10, 11, 13 and 14 and Tables 3 to 5: chains on modelled hardware; and Figure 15: a
    /// reader beside writers.
    Redn,
    /// `StRoM`, Figures 5 and 7 to 13: kernels on modelled hardware, and beside them in this software.
    Strom,
    /// Goodput by loss, with IRN and without.
    Loss,
    /// Two flows over one bottleneck.
    Congestion,
    /// 1RMA, Figures 11, 12, 14, 15 and 16a, b: load, isolation, rotated keys, convergence and jitter,
    /// simulated.
    Rma,
    /// IRN, Figures 1 to 10 and 12, and Table 1: IRN and RoCE, with pauses and without, on 54 simulated
    /// hosts.
    Irn,
    /// PRISM: rate and latency of reads, PRISM-KV and Pilaf.
    #[value(name = "3")]
    Three,
    /// PRISM: the same, half of them writes.
    #[value(name = "4")]
    Four,
    /// PRISM: rate and latency of replicated blocks, PRISM-RS and ABDLOCK.
    #[value(name = "6")]
    Six,
    /// PRISM: their latency by how skewed the keys are, 100 clients.
    #[value(name = "7")]
    Seven,
    /// PRISM: rate and latency of transactions, PRISM-TX and FaRM.
    #[value(name = "9")]
    Nine,
    /// PRISM: their best rate by how skewed the keys are.
    #[value(name = "10")]
    Ten,
    /// RedN: GETs while their server is killed and started again.
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

    /// The benchmark that draws them; None: they are drawn from rows.
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
    after_help = "Examples:\n  remora figures\n  remora figures prism --port udp\n  remora figures loss congestion --rounds 3\n  remora figures 3 4 --rows curves.jsonl\n  remora figures strom --rows strom.jsonl\n  remora figures irn --quick\n  remora figures irn --rounds 5\n\nEach figure says whether it shows model time, simulated time or real time; the numbers behind it are printed."
)]
pub struct Args {
    /// Which [default: all].
    ids: Vec<Figures>,
    /// Where they go; those that the repository keeps are renewed by `--report report`.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    report: PathBuf,
    /// Only this port, where something is measured.
    #[arg(long)]
    port: Option<PortName>,
    /// Rows of `remora bench kv --curves --json` and `remora bench block --curves --json` for Figures 3, 4, 6
    /// and 7, and of `remora bench txn ycsb-t --json` for Figures 9 and 10, and of `remora bench strom
    /// --json` for `strom`, in files of JSON lines [default: measured now, in short].
    #[arg(long, value_name = "FILE")]
    rows: Vec<PathBuf>,
    /// Interleaved rounds of each measurement.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// `irn` alone: one seed and less load, and compare the signs with those that are known.
    #[arg(long)]
    quick: bool,
    /// Runs of `irn` at once [default: one for each core].
    #[arg(long, value_parser = whole::<usize>(1..=256))]
    jobs: Option<usize>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Runs `remora figures`: one benchmark after the other, as if each were called on its own.
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
    // What cannot be written is not worth measuring.
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
    /// The command line of a benchmark.
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

/// Draws the figures that rows are drawn as: from files, or measured now.
fn from_rows(args: &Args, wanted: &[Figures], mut rows: Vec<Saved>) -> Result<()> {
    for (bench, what) in [("kv", "--curves"), ("block", "--curves"), ("txn", "ycsb-t")] {
        if args.rows.is_empty() && wanted.iter().any(|figures| figures.rows() == Some(bench)) {
            let mut words = args.words(bench);
            words.push(what.into());
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
