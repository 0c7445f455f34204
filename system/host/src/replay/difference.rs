//! The first difference between a recording and its replay, and the numbers of replayed events.

use remora_transport::Instant;
use remora_wire::Qpn;

/// The first difference between a recording and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the event, counted from 1.
    pub event: u64,
    /// Time of the call in which the difference was found, in nanoseconds of the recorded NIC's clock.
    pub time: Instant,
    /// Kind of the event.
    pub kind: &'static str,
    /// The queue pair that the event is about, if it is about one.
    pub qp: Option<Qpn>,
    /// The recording.
    pub expected: String,
    /// The replay.
    pub found: String,
}

/// Numbers of events by kind.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commands.
    pub commands: u64,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Completions.
    pub completions: u64,
}
