//! The state of one run of the benchmark, and the constants of its paths.

use indicatif::ProgressBar;
use remora_verbs::irn::Settings;

use crate::{Args, Report};

/// The payload of a packet: RoCE's usual path MTU.
pub(super) const MTU: u32 = 1024;
/// The bandwidth-delay product of the paths, in packets.
pub(super) const BDP: u64 = 100;

/// A way of recovering from loss.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    /// IRN with these settings at both ends; `None` is a plain reliable connection with go-back-N.
    pub(super) irn: Option<Settings>,
}

/// State of one run of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) report: &'a mut Report,
    pub(super) bar: ProgressBar,
}
