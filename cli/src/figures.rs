//! `remora figures`: what the papers draw, drawn from this software, into a folder.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::bench;
use crate::device::PortName;

/// Figures that are drawn together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Figures {
    /// PRISM, Figures 1 and 2: its operations, and a READ through a pointer over three networks.
    Prism,
    /// Goodput by loss, with IRN and without.
    Loss,
    /// Two flows over one bottleneck.
    Congestion,
}

impl Figures {
    /// The benchmark that draws them.
    fn bench(self) -> &'static str {
        match self {
            Figures::Prism => "prism",
            Figures::Loss => "loss",
            Figures::Congestion => "congestion",
        }
    }
}

/// Arguments of `remora figures`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora figures\n  remora figures prism --port udp\n  remora figures loss congestion --rounds 3\n\nEach figure says whether it shows model time, simulated time or real time; the numbers behind it are printed."
)]
pub struct Args {
    /// Which [default: all].
    ids: Vec<Figures>,
    /// Where they go.
    #[arg(long, default_value = "report", value_name = "FOLDER")]
    report: PathBuf,
    /// Only this port, where something is measured.
    #[arg(long)]
    port: Option<PortName>,
    /// Interleaved rounds of each measurement.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// `remora figures`: a benchmark after the other, as who calls them one by one.
pub fn run(args: &Args) -> Result<()> {
    let all = [Figures::Prism, Figures::Loss, Figures::Congestion];
    for figures in all.into_iter().filter(|figures| args.ids.is_empty() || args.ids.contains(figures)) {
        let rounds = args.rounds.to_string();
        let mut words: Vec<OsString> =
            ["bench", figures.bench(), "--rounds", &rounds, "--report"].map(OsString::from).to_vec();
        words.push(args.report.clone().into());
        if let Some(port) = args.port {
            words.extend(["--port", port.name()].map(OsString::from));
        }
        if args.json {
            words.push("--json".into());
        }
        bench::run(bench::Args::try_parse_from(words)?)?;
    }
    Ok(())
}
