//! `remora bench dropin`: programs of perftest on Remora's libraries, compared with the same operations
//! through the native API; and UCX and libfabric on Remora's libraries, compared with TCP. In each round one
//! runs after the other, on the same two cores.
//!
//! | file | contents |
//! |---|---|
//! | `args.rs`, `bench.rs` | the arguments, and the state of a run |
//! | `case.rs` | the measured operations, through the native API and as arguments of a program |
//! | `perftest.rs` | the programs and their output |
//! | `run_command.rs` | `remora run` |
//! | `namespaces.rs` | UCX and libfabric between two network namespaces |
//! | `figures.rs` | the plots |

mod args;
mod bench;
mod case;
mod figures;
mod namespaces;
mod perftest;
pub(crate) mod run_command;

use anyhow::{Result, ensure};

use self::case::Case;
use self::perftest::Perftest;
use self::run_command::RunCommand;
use crate::bare::Bare;
use crate::testbed::Testbed;
use crate::{PortName, Report};
pub(crate) use args::Args;
use bench::Bench;
use remora_options::cores::two_cores;
use remora_options::progress;

impl Args {
    /// Returns whether the options select this case over this port.
    fn wants(&self, port: PortName, case: &str) -> bool {
        self.port.is_none_or(|only| only == port)
            && self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }
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
