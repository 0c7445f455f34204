//! The state of one run of the benchmark.

use indicatif::ProgressBar;

use crate::testbed::pair::{Peer, Raw};
use crate::{Args, Report};

/// State of one run of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) report: &'a mut Report,
    pub(super) bar: ProgressBar,
    pub(super) peer: Peer,
    pub(super) raw: Raw,
    pub(super) cores: [usize; 2],
    /// True if these processes have created thousands of queue pairs before.
    pub(super) had_many: bool,
}
