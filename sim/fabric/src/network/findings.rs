//! Counters and invariants of a network: conservation of packets, losslessness, deadlocks and pause storms.

use std::fmt;

use crate::engine::Picos;

/// The reason for the loss of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The buffer of a switch was full.
    Full,
    /// No path leads to the destination.
    NoPath,
    /// The link lost the packet at random.
    Loss,
    /// The link is down.
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

/// A number of packets and their bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, as packets are charged.
    pub bytes: u64,
}

impl Amount {
    #[inline]
    pub(super) fn add(&mut self, bytes: u16) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// The counters of a network.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets sent by hosts.
    pub sent: Amount,
    /// Packets that arrived at hosts.
    pub arrived: Amount,
    /// Lost packets, indexed by [`Cause`].
    pub lost: [Amount; 4],
    /// Number of arrivals at the far ends of links, without pause frames.
    pub hops: u64,
    /// Number of ECN marks.
    pub marked: u64,
    /// Number of pause frames sent, without resume frames.
    pub pauses: u64,
    /// Number of resume frames sent.
    pub resumes: u64,
}

/// The whereabouts of all packets that hosts have sent, without pause frames.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Number of packets sent by hosts.
    pub sent: u64,
    /// Number of packets delivered to hosts.
    pub delivered: u64,
    /// Number of packets lost.
    pub lost: u64,
    /// Number of packets in queues and on links.
    pub in_flight: u64,
}

impl Balance {
    /// Returns true if every packet that was sent is delivered, lost or in flight.
    pub fn holds(&self) -> bool {
        self.sent == self.delivered + self.lost + self.in_flight
    }
}

impl Totals {
    /// Returns the losses of all causes.
    pub fn lost(&self) -> Amount {
        let sum = |sum: Amount, lost: &Amount| Amount {
            packets: sum.packets + lost.packets,
            bytes: sum.bytes + lost.bytes,
        };
        self.lost.iter().fold(Amount::default(), sum)
    }
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A switch dropped a packet of a class with PFC.
    LosslessDrop {
        /// Time of the loss.
        at: Picos,
        /// Node number of the switch.
        switch: u32,
        /// Number of the input port, in the order of the switch's links.
        port: u32,
        /// Traffic class of the packet.
        class: u8,
    },
    /// Paused ports wait for each other in a cycle.
    Deadlock {
        /// Time of detection.
        at: Picos,
        /// Ports of the cycle: node number and port number.
        cycle: Vec<(u32, u32)>,
    },
    /// A port is paused nearly all the time.
    PauseStorm {
        /// Time of detection.
        at: Picos,
        /// Node number of the paused sender.
        node: u32,
        /// Number of the paused port at this node.
        port: u32,
        /// Time in picoseconds that the port was paused in the last period.
        paused: u64,
        /// Length of the period in picoseconds.
        period: u64,
    },
    /// Packets that hosts sent are neither in the network nor delivered nor lost.
    NotConserved {
        /// Time of detection.
        at: Picos,
        /// Number of packets that should be in the network.
        expected: u64,
        /// Number of packets that are in the network.
        found: u64,
    },
    /// A buffer is not empty although no packet is in the network.
    NotEmpty {
        /// Node number of the switch.
        switch: u32,
        /// Number of bytes in its buffer.
        bytes: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: &Picos| time.0 as f64 / Picos::MICROSECOND as f64;
        match self {
            Finding::LosslessDrop { at: time, switch, port, class } => write!(
                f,
                "{:.3} us: switch {switch} lost a packet of lossless class {class} that came by port {port}",
                us(time)
            ),
            Finding::Deadlock { at: time, cycle } => {
                write!(f, "{:.3} us: a deadlock of paused ports:", us(time))?;
                for (node, port) in cycle {
                    write!(f, " {node}:{port} ->")?;
                }
                cycle.first().map_or(Ok(()), |(node, port)| write!(f, " {node}:{port}"))
            }
            Finding::PauseStorm { at: time, node, port, paused, period } => write!(
                f,
                "{:.3} us: a pause storm: port {port} of node {node} was paused {} % of {:.0} us",
                us(time),
                paused * 100 / (*period).max(1),
                us(&Picos(*period))
            ),
            Finding::NotConserved { at: time, expected, found: actual } => write!(
                f,
                "{:.3} us: {expected} packets should be under way, and {actual} are: a fault of the simulator",
                us(time)
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

/// Number of findings that are kept; further ones are only counted.
const KEPT: usize = 64;

/// The violated invariants so far.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

impl Findings {
    /// Adds a finding.
    pub(super) fn add(&mut self, finding: Finding) {
        if self.kept.len() < KEPT {
            self.kept.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Returns the first findings.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// Returns the number of findings that were not kept.
    pub fn more(&self) -> u64 {
        self.more
    }
}
