//! The state of one run of the benchmark.

use indicatif::ProgressBar;

use super::args::Args;
use crate::{PortName, Report};

/// The fraction 1/N of each round to run.
#[derive(Copy, Clone, Debug)]
pub(super) struct Part(pub(super) u32);

impl Part {
    /// Returns this part of `all`, and at least 1.
    pub(super) fn of(self, all: usize) -> usize {
        (all / self.0 as usize).max(1)
    }
}

/// State of one run of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) report: &'a mut Report,
    pub(super) bar: ProgressBar,
    pub(super) cores: [usize; 2],
}

/// Returns the path of a case over a port.
pub(super) fn path(port: PortName, case: &str) -> String {
    format!("{}/{case}", port.name())
}
