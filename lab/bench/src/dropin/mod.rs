//! `remora bench dropin`: programs of perftest on Remora's libraries, compared with the same operations
//! through the native API; and UCX and libfabric on Remora's libraries, compared with TCP. In each round one
//! runs after the other, on the same two cores.
//!
//! | file | contents |
//! |---|---|
//! | `case.rs` | the measured operations, through the native API and as arguments of a program |
//! | `perftest.rs` | the programs and their output |
//! | `run_command.rs` | `remora run` |
//! | `namespaces.rs` | UCX and libfabric between two network namespaces |
//! | `figures.rs` | the plots |

mod case;
mod figures;
mod namespaces;
mod perftest;
pub(crate) mod run_command;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::ProgressBar;

use self::case::Case;
use self::perftest::Perftest;
use self::run_command::RunCommand;
use crate::bare::Bare;
use crate::testbed::Testbed;
use crate::{PortName, Report};
use remora_options::cores::two_cores;
use remora_options::number::{natural, whole};
use remora_options::output::REPORT;
use remora_options::progress;

/// Arguments of `remora bench dropin`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench dropin\n  remora bench dropin --rounds 9 --json > dropin.jsonl\n  remora bench dropin --port shm --only lat\n  remora bench dropin --libraries /usr/local/lib/remora\n  remora bench dropin --only veth\n\nCases: PORT/ib_read_lat/64, PORT/ib_send_lat/64, PORT/ib_write_bw/65536, PORT/ib_read_bw/65536,\nPORT/ib_write_bw/64/batch-16; veth/ucx/64, veth/libfabric/64, which need root. Over shm both programs have one address and a link.\nThe latency is perftest's typical one: the round trip of a READ, and half the round trip of a SEND. UCX and libfabric\nreport round trips. Build the libraries first: scripts/dropin --release. The JSON output contains every round."
)]
pub(crate) struct Args {
    /// Measure this port only: udp, or shm (through links between programs with one address).
    #[arg(long)]
    port: Option<PortName>,
    /// Number of interleaved rounds; at least 5 for results to quote.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// Measure only cases whose path contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Folder of the libraries [default: REMORA_LIBRARY_PATH, or the output folder of `scripts/dropin`].
    #[arg(long, value_name = "FOLDER")]
    libraries: Option<PathBuf>,
    /// Run 1/N of the messages of each round, for a quick look and not for results to quote.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=1000))]
    part: u32,
    /// Folder for the plots.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    report: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// CPU cores of the two sides [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    cores: Vec<usize>,
}

impl Args {
    /// Returns whether the options select this case over this port.
    fn wants(&self, port: PortName, case: &str) -> bool {
        self.port.is_none_or(|only| only == port)
            && self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }
}

/// The state of one run of the benchmark.
struct Bench<'a> {
    args: &'a Args,
    report: &'a mut Report,
    bar: ProgressBar,
    cores: [usize; 2],
}

impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        ensure!(
            self.port != Some(PortName::Xdp),
            "port xdp allows one program per interface: choose udp or shm"
        );
        let run = RunCommand::find(self.libraries.as_deref())?;
        let cores = two_cores(&self.cores)?;
        let mut bench = Bench { args: self, report, bar: progress::bar(0, "rounds")?, cores };
        for port in [PortName::Udp, PortName::Shm] {
            bench.over(port, &run)?;
        }
        // This part comes last, because a thread that enters a namespace stays there.
        namespaces::run(&mut bench, &run)?;
        bench.bar.finish_and_clear();
        ensure!(
            !bench.report.is_empty(),
            "no case contains {}, or its program is not installed: without --only all are run and named",
            self.only.as_deref().unwrap_or_default()
        );
        figures::draw(&self.report, bench.report.rows())
    }
}

impl Bench<'_> {
    /// Measures the installed programs over a port.
    fn over(&mut self, port: PortName, run: &RunCommand) -> Result<()> {
        let wanted = |case: &Case| self.args.wants(port, &case.path(port)) && Perftest::has(case.program());
        let cases: Vec<Case> = Case::ALL.into_iter().filter(wanted).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let mut bare = Bare::open(&Testbed::loopback(port, self.cores))?;
        let perftest = Perftest::new(run, self.cores);
        let part = self.args.part;
        for case in cases {
            let words = case.words(port, part);
            let mut program = Vec::new();
            let mut native = Vec::new();
            self.rounds(&case.path(port), |_| {
                native.push(case.native(&mut bare, port, part)?);
                program.push(perftest.measure(port, case.program(), &words, case.column())?);
                Ok(())
            })?;
            case.rows(port, &program, &native).into_iter().for_each(|row| self.report.add(row));
        }
        Ok(())
    }

    /// Runs `round` for the given number of rounds and shows the progress.
    fn rounds(&mut self, case: &str, mut round: impl FnMut(u32) -> Result<()>) -> Result<()> {
        self.bar.set_message(case.to_owned());
        self.bar.set_length(u64::from(self.args.rounds));
        for number in 0..self.args.rounds {
            self.bar.set_position(u64::from(number));
            round(number)?;
        }
        Ok(())
    }
}
