//! Lines of the output files, in the formats that the programs' analysis scripts read.

use std::fmt::Write as _;

use super::{Dialect, HEADER};
use crate::error::{Read, ScenarioError, Source, Warnings, excerpt};
use crate::tokens::{Token, Tokens};

/// Returns the IPv4 address that ns-3 gives to a node. HPCC's output files and ECMP hashes use it.
pub fn address(node: u32) -> u32 {
    0x0b00_0001u32.wrapping_add((node / 256) << 16).wrapping_add((node % 256) << 8)
}

/// Returns the node number that belongs to an address made by [`address`].
pub fn node(address: u32) -> u32 {
    (address >> 8) & 0xffff
}

/// A line of the flow completion time (FCT) output: one flow that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FctLine {
    /// Node number of the sending host.
    pub src: u32,
    /// Node number of the receiving host.
    pub dst: u32,
    /// UDP source port, then UDP destination port.
    pub ports: [u16; 2],
    /// Bytes of the flow.
    pub size: u64,
    /// Start of the flow, in ns.
    pub start: u64,
    /// Completion time, in ns: from the start until the sender has the last ACK.
    pub fct: u64,
    /// Completion time on an idle network, in ns, as computed by [`alone`].
    pub alone: u64,
}

impl FctLine {
    /// Formats the line, including its line feed. HPCC names hosts by addresses of 8 hexadecimal digits,
    /// ConWeave by node numbers.
    pub fn write(&self, dialect: Dialect) -> String {
        let FctLine { src, dst, ports: [sport, dport], size, start, fct, alone } = *self;
        let rest = format!("{sport} {dport} {size} {start} {fct} {alone}");
        match dialect {
            Dialect::Hpcc => format!("{:08x} {:08x} {rest}\n", address(src), address(dst)),
            Dialect::Conweave => format!("{src} {dst} {rest}\n"),
        }
    }
}

/// Reads an FCT output of either dialect. A host of exactly 8 characters is a hexadecimal address.
///
/// # Errors
/// Fails if a line is incomplete or if a word is not a number.
pub fn parse_fct(source: Source<'_>) -> Result<Read<Vec<FctLine>>, ScenarioError> {
    source.check_size()?;
    let mut tokens = Tokens::of(source);
    let mut lines = Vec::new();
    while tokens.peek().is_some() {
        let [src, dst] = [tokens.need("a host")?, tokens.need("a host")?];
        let [src, dst] = [host(&tokens, src)?, host(&tokens, dst)?];
        let port = u64::from(u16::MAX);
        let ports = [tokens.number("a port", port)? as u16, tokens.number("a port", port)? as u16];
        let mut number = |what| tokens.number(what, u64::MAX);
        let [size, start] = [number("a size")?, number("a start")?];
        let [fct, alone] = [number("a completion time")?, number("a completion time alone")?];
        lines.push(FctLine { src, dst, ports, size, start, fct, alone });
    }
    Ok(Warnings::of(source).with(lines))
}

fn host(tokens: &Tokens<'_>, token: Token<'_>) -> Result<u32, ScenarioError> {
    let number = match token.text.len() {
        8 => u32::from_str_radix(token.text, 16).ok().map(node),
        _ => token.text.parse().ok(),
    };
    number.ok_or_else(|| {
        let says = format!("`{}` is not a host: write its number or its address", excerpt(token.text));
        tokens.error(token, says)
    })
}

/// A link of a path, as input of [`alone`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Link rate, in bit/s; not 0.
    pub rate: u64,
    /// Propagation delay, in ns.
    pub delay: u64,
}

/// Computes the completion time of a flow on an idle network, in ns: twice the propagation delays, plus one
/// payload at the rate of each link, plus all bytes and headers at the rate of the slowest link. `payload` is
/// the payload of a full packet in bytes and not 0. Each division is rounded down, as in the ns-3 programs.
pub fn alone(size: u64, payload: u64, path: &[Hop]) -> u64 {
    let scaled = |bytes: u128, rate: u64| (bytes * 8_000_000_000 / u128::from(rate.max(1))) as u64;
    let payload = payload.max(1);
    let delays: u64 = path.iter().map(|hop| hop.delay).sum();
    let store: u64 = path.iter().map(|hop| scaled(u128::from(payload), hop.rate)).sum();
    let slowest = path.iter().map(|hop| hop.rate).min().unwrap_or(u64::MAX);
    let bytes = u128::from(size) + u128::from(size.div_ceil(payload)) * u128::from(HEADER);
    2 * delays + store + scaled(bytes, slowest)
}

/// A line of the PFC output: a pause or resume frame that a node received.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PfcLine {
    /// Time of arrival, in ns.
    pub time: u64,
    /// Node number of the receiver.
    pub node: u32,
    /// True if the receiver is a switch.
    pub is_switch: bool,
    /// Interface of the receiver, in the numbering of ns-3: the port number plus one.
    pub interface: u32,
    /// True for a pause, false for a resume.
    pub is_pause: bool,
}

impl PfcLine {
    /// Formats the line, including its line feed.
    pub fn write(&self) -> String {
        let PfcLine { time, node, is_switch, interface, is_pause } = *self;
        format!("{time} {node} {} {interface} {}\n", u8::from(is_switch), u8::from(is_pause))
    }
}

/// Histogram of the length of one egress queue, in steps of 1000 bytes: HPCC's `qlen` output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    counts: Vec<u32>,
}

impl QueueLengths {
    /// Adds `samples` samples of a queue that holds `bytes` bytes.
    pub fn add(&mut self, bytes: u64, samples: u32) {
        if samples == 0 {
            return;
        }
        // Lengths above 1 GB share the last bucket, so that the histogram's memory is bounded.
        let kb = (bytes / 1000).min(1_000_000) as usize;
        if self.counts.len() <= kb {
            self.counts.resize(kb + 1, 0);
        }
        self.counts[kb] = self.counts[kb].saturating_add(samples);
    }

    /// Returns each length in units of 1000 bytes, from 0, with its number of samples.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u32)> {
        self.counts.iter().copied().enumerate()
    }

    /// Formats the line of this queue: node number of the switch, interface from 1, then the counts.
    pub fn write(&self, switch: u32, interface: u32) -> String {
        let mut line = format!("{switch} {interface}");
        for count in &self.counts {
            let _ = write!(line, " {count}");
        }
        line.push('\n');
        line
    }
}

/// Formats the line that precedes each block of queue lengths; `time` is in ns.
pub fn qlen_time(time: u64) -> String {
    format!("time: {time}\n")
}

/// Formats ConWeave's line for the CNPs that one host sent within 100 µs. ConWeave writes no line for a host
/// that sent none.
pub fn cnp_line(time: u64, host: u32, by_ecn: u32, by_order: u32, total: u32) -> String {
    format!("{time} {host} {by_ecn} {by_order} {total}\n")
}

/// Formats ConWeave's line for the bytes that a ToR switch has sent on one uplink since the start of the run.
pub fn uplink_line(time: u64, tor: u32, interface: u32, bytes: u64) -> String {
    format!("{time},{tor},{interface},{bytes}\n")
}

/// Formats ConWeave's line for the queue pairs of one host; `active` counts those that have data left to
/// send.
pub fn conn_line(time: u64, host: u32, queue_pairs: u64, active: u64) -> String {
    format!("{time},{host},{queue_pairs},{active}\n")
}
