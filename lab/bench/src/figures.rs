//! `remora figures`: draws the figures of the papers from this software, into a folder.

mod args;
mod irn;
mod notes;
mod rma;

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};

use crate::curves::{Saved, saved};
use crate::prism::{loads, transactions};
use crate::strom::figures as strom;
use crate::{self as bench, Report};
pub use args::Args;
use args::Figures;
use remora_options::output;

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
