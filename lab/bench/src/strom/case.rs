//! The measured tasks, and the ways to do each.

use super::place::LONGEST;
use crate::PortName;

/// A way to do a task.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A kernel on the peer's NIC.
    Strom,
    /// A READ that a kernel on the peer's NIC judges before its bytes leave.
    StromRead,
    /// A READ judged by that kernel in the form of WebAssembly, as users write it.
    Wasm,
    /// A sequence of dependent READs.
    Reads,
    /// A call of the peer's program over TCP.
    Tcp,
    /// A READ without a check that the object is consistent.
    Read,
    /// A READ whose check value the client computes; the client repeats the READ if the value is wrong.
    ReadAndCheck,
    /// Plain WRITEs of the same bytes.
    Write,
    /// WRITEs of 128 bytes each, after the sender has partitioned the data.
    SenderPartitions,
}

impl Way {
    /// Returns whether the way uses a StRoM kernel built into this software.
    pub(crate) fn is_strom(self) -> bool {
        matches!(self, Way::Strom | Way::StromRead)
    }

    /// Returns the name of the way in the rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Strom => "strom",
            Way::StromRead => "strom-read",
            Way::Wasm => "strom-wasm",
            Way::Reads => "reads",
            Way::Tcp => "tcp-rpc",
            Way::Read => "read",
            Way::ReadAndCheck => "read+crc64",
            Way::Write => "write",
            Way::SenderPartitions => "sender-partitions",
        }
    }
}

/// A task that the ways are compared on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Fetches the value of a random key of a list with this many elements (Figure 7).
    Walk(u64),
    /// Fetches a value of this many bytes from a hash table (Figure 8).
    Get(usize),
    /// Fetches a consistent object of this many bytes (Figure 9). The second number is the share of first
    /// reads, in thousandths, that find a torn object (Figure 10).
    Check(usize, u32),
    /// Distributes a stream to 1024 partitions (Figure 11).
    Shuffle,
    /// Counts the different values of a stream (Figure 13).
    Count,
}

impl Task {
    /// Returns all tasks.
    pub(crate) fn all() -> Vec<Task> {
        let mut all: Vec<Task> = [4, 8, 16, 32].map(Task::Walk).to_vec();
        all.extend([64, 256, 1024, LONGEST].map(Task::Get));
        all.extend([64, 128, 256, 512, 1024, 2048, LONGEST].map(|len| Task::Check(len, 0)));
        for len in [64, 512, LONGEST] {
            all.extend([10, 100, 500].map(|failing| Task::Check(len, failing)));
        }
        all.extend([Task::Shuffle, Task::Count]);
        all
    }

    /// Returns the path of the task behind the port's name, without the way.
    pub(crate) fn path(self) -> String {
        match self {
            Task::Walk(elements) => format!("walk/{elements}"),
            Task::Get(len) => format!("get/{len}"),
            Task::Check(len, 0) => format!("check/{len}"),
            Task::Check(len, failing) => format!("check/{len}/failing-{}%", failing / 10),
            Task::Shuffle => "shuffle/16777216".to_owned(),
            Task::Count => "count/1048576".to_owned(),
        }
    }

    /// Returns the ways to measure: StRoM's, then those that it is compared to.
    pub(crate) fn ways(self) -> &'static [Way] {
        match self {
            Task::Walk(_) => &[Way::Strom, Way::Reads, Way::Tcp],
            Task::Get(_) => &[Way::Strom, Way::Reads, Way::Tcp, Way::Wasm],
            Task::Check(_, 0) => &[Way::StromRead, Way::Strom, Way::Read, Way::ReadAndCheck],
            Task::Check(..) => &[Way::StromRead, Way::Strom, Way::ReadAndCheck],
            Task::Shuffle => &[Way::Strom, Way::Write, Way::SenderPartitions],
            Task::Count => &[Way::Strom, Way::Write],
        }
    }

    /// Returns StRoM's way that has a bound.
    pub(crate) fn judged(self) -> Way {
        match self {
            Task::Check(..) => Way::StromRead,
            _ => Way::Strom,
        }
    }

    /// Returns the name and the unit of the measured quantity.
    pub(crate) fn metric(self) -> (&'static str, &'static str) {
        match self {
            Task::Walk(_) | Task::Get(_) | Task::Check(_, 0) => ("latency_p50", "ns"),
            Task::Check(..) => ("latency_mean", "ns"),
            Task::Shuffle => ("time", "ns"),
            Task::Count => ("bandwidth", "B/s"),
        }
    }

    /// Returns the bound of the ratio of StRoM's figure to another way's. Objects have a bound only where the
    /// kernel checks them as they are READ, not where they are fetched by RPC.
    pub(crate) fn bound(self, port: PortName, way: Way) -> Option<Bound> {
        match (self, way, port) {
            // The paper's bound: 8 % over a plain READ.
            (Task::Check(_, 0), Way::Read, PortName::Udp) => Some(Bound::Within(1.08)),
            (Task::Check(_, 100..), Way::ReadAndCheck, _) => Some(Bound::Within(1.0)),
            (Task::Check(..), Way::ReadAndCheck, _) => Some(Bound::Within(1.05)),
            (Task::Shuffle, Way::Write, PortName::Shm) => Some(Bound::Within(3.6)),
            (Task::Shuffle, Way::Write, PortName::Udp) => Some(Bound::Within(1.8)),
            (Task::Shuffle, Way::SenderPartitions, _) => Some(Bound::Within(1.0)),
            (Task::Count, Way::Write, PortName::Shm) => Some(Bound::AtLeast(0.5)),
            (Task::Count, Way::Write, PortName::Udp) => Some(Bound::AtLeast(0.75)),
            _ => None,
        }
    }
}

/// The bound of a ratio.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    /// Largest allowed ratio.
    Within(f64),
    /// Least allowed ratio.
    AtLeast(f64),
}
