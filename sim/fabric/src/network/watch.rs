//! What watches a network all the time: conservation, losslessness, deadlocks, pause storms.

use std::fmt;

use crate::engine::Picos;

/// Why a network lost a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A buffer was full.
    Full,
    /// No path leads to its host.
    NoPath,
    /// Its link loses packets at random.
    Loss,
    /// Its link is down.
    Down,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Full => "buffer full",
            Cause::NoPath => "no path",
            Cause::Loss => "loss on the link",
            Cause::Down => "link down",
        })
    }
}

/// Packets and what they are charged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes that they are charged.
    pub bytes: u64,
}

impl Amount {
    #[inline]
    pub(super) fn add(&mut self, bytes: u16) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// What a network did so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What hosts sent.
    pub sent: Amount,
    /// What arrived at hosts.
    pub arrived: Amount,
    /// What was lost, by [`Cause`] in its order.
    pub lost: [Amount; 4],
    /// Packets that arrived at the far end of a link, pause frames not counted.
    pub hops: u64,
    /// Packets that switches marked.
    pub marked: u64,
    /// Pause frames that were sent, those that resume not counted.
    pub pauses: u64,
    /// Pause frames that resume.
    pub resumes: u64,
}

/// Where the packets are that hosts have sent. Pause frames are not counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Packets that hosts sent.
    pub sent: u64,
    /// Those that arrived at their hosts.
    pub delivered: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those in queues and on links.
    pub in_flight: u64,
}

impl Balance {
    /// Is each packet that was sent delivered, lost or in flight?
    pub fn holds(&self) -> bool {
        self.sent == self.delivered + self.lost + self.in_flight
    }
}

impl Totals {
    /// What was lost, for all causes.
    pub fn lost(&self) -> Amount {
        let sum = |sum: Amount, lost: &Amount| Amount {
            packets: sum.packets + lost.packets,
            bytes: sum.bytes + lost.bytes,
        };
        self.lost.iter().fold(Amount::default(), sum)
    }
}

/// Something that should not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A switch lost a packet of a class that it pauses.
    LosslessDrop {
        /// When.
        at: Picos,
        /// Node number of the switch.
        switch: u32,
        /// Number of the port by which the packet came, in the order of the switch's links.
        port: u32,
        /// Class of the packet.
        class: u8,
    },
    /// Ports wait for each other in a cycle.
    Deadlock {
        /// When it was found.
        at: Picos,
        /// The ports of the cycle: node and port number.
        cycle: Vec<(u32, u32)>,
    },
    /// A port is paused nearly all the time.
    PauseStorm {
        /// When it was found.
        at: Picos,
        /// Node number of whom is paused.
        node: u32,
        /// Number of its port.
        port: u32,
        /// Picoseconds of pause in the period that was looked at.
        paused: u64,
        /// Length of the period.
        period: u64,
    },
    /// Packets or bytes that hosts sent are neither there, nor arrived, nor lost.
    NotConserved {
        /// When.
        at: Picos,
        /// Packets that should be under way.
        expected: u64,
        /// Packets that are.
        found: u64,
    },
    /// At the end a buffer is not empty though nothing is under way.
    NotEmpty {
        /// Node number of the switch.
        switch: u32,
        /// Bytes that it holds.
        bytes: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |at: &Picos| at.0 as f64 / Picos::MICROSECOND as f64;
        match self {
            Finding::LosslessDrop { at, switch, port, class } => write!(
                f,
                "{:.3} us: switch {switch} lost a packet of lossless class {class} that came by port {port}",
                us(at)
            ),
            Finding::Deadlock { at, cycle } => {
                write!(f, "{:.3} us: a deadlock of paused ports:", us(at))?;
                for (node, port) in cycle {
                    write!(f, " {node}:{port} ->")?;
                }
                cycle.first().map_or(Ok(()), |(node, port)| write!(f, " {node}:{port}"))
            }
            Finding::PauseStorm { at, node, port, paused, period } => write!(
                f,
                "{:.3} us: a pause storm: port {port} of node {node} was paused {} % of {:.0} us",
                us(at),
                paused * 100 / (*period).max(1),
                us(&Picos(*period))
            ),
            Finding::NotConserved { at, expected, found } => write!(
                f,
                "{:.3} us: {expected} packets should be under way, and {found} are: a fault of the simulator",
                us(at)
            ),
            Finding::NotEmpty { switch, bytes } => {
                write!(
                    f,
                    "at the end the empty switch {switch} counts {bytes} bytes: a fault of the simulator"
                )
            }
        }
    }
}

/// Findings that are kept; further ones are counted.
const KEPT: usize = 64;

/// Findings so far.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

impl Findings {
    /// Adds one.
    pub(super) fn add(&mut self, finding: Finding) {
        if self.kept.len() < KEPT {
            self.kept.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// The first ones.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// How many there are beyond those.
    pub fn more(&self) -> u64 {
        self.more
    }
}
