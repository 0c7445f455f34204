//! The state of one run of the benchmark.

use indicatif::ProgressBar;

use super::args::Args;
use crate::Report;

/// The state of one run of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) report: &'a mut Report,
    pub(super) bar: ProgressBar,
    pub(super) cores: [usize; 2],
}
