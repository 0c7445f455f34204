//! Lines of the outputs, as the readers of both dialects take them.

use std::fmt::Write as _;

use super::{Dialect, HEADER};
use crate::error::{Read, ScenarioError, Source, Warnings, excerpt};
use crate::tokens::{Token, Tokens};

/// The address of a node: HPCC's outputs and hashes have it.
pub fn address(node: u32) -> u32 {
    0x0b00_0001u32.wrapping_add((node / 256) << 16).wrapping_add((node % 256) << 8)
}

/// The node of an address.
pub fn node(address: u32) -> u32 {
    (address >> 8) & 0xffff
}

/// One line of the fct output: a flow that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FctLine {
    /// Host that has the bytes.
    pub src: u32,
    /// Host that gets them.
    pub dst: u32,
    /// Ports: source, then destination.
    pub ports: [u16; 2],
    /// Bytes of the flow.
    pub size: u64,
    /// When it started, in ns.
    pub start: u64,
    /// How long it took until the sender had the last ACK, in ns.
    pub fct: u64,
    /// How long it takes alone, in ns: see [`alone`].
    pub alone: u64,
}

impl FctLine {
    /// The line, with its end. HPCC has addresses of 8 hexadecimal digits, ConWeave the numbers of nodes.
    pub fn write(&self, dialect: Dialect) -> String {
        let FctLine { src, dst, ports: [sport, dport], size, start, fct, alone } = *self;
        let rest = format!("{sport} {dport} {size} {start} {fct} {alone}");
        match dialect {
            Dialect::Hpcc => format!("{:08x} {:08x} {rest}\n", address(src), address(dst)),
            Dialect::Conweave => format!("{src} {dst} {rest}\n"),
        }
    }
}

/// Reads an fct output of either dialect: hosts of 8 characters are addresses.
///
/// # Errors
/// A line that is cut, or a word that is no number.
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

/// One link of a path, for [`alone`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Rate, in bit/s; not 0.
    pub rate: u64,
    /// Delay, in ns.
    pub delay: u64,
}

/// How long a flow takes alone, in ns: a round trip and all bytes with headers at the slowest rate. Each
/// division is cut, as the programs do. `payload` is not 0.
pub fn alone(size: u64, payload: u64, path: &[Hop]) -> u64 {
    let scaled = |bytes: u128, rate: u64| (bytes * 8_000_000_000 / u128::from(rate.max(1))) as u64;
    let payload = payload.max(1);
    let delays: u64 = path.iter().map(|hop| hop.delay).sum();
    let store: u64 = path.iter().map(|hop| scaled(u128::from(payload), hop.rate)).sum();
    let slowest = path.iter().map(|hop| hop.rate).min().unwrap_or(u64::MAX);
    let bytes = u128::from(size) + u128::from(size.div_ceil(payload)) * u128::from(HEADER);
    2 * delays + store + scaled(bytes, slowest)
}

/// One line of the pfc output, by the node that receives the frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PfcLine {
    /// When, in ns.
    pub time: u64,
    /// The node that receives the frame.
    pub node: u32,
    /// Is it a switch?
    pub is_switch: bool,
    /// Its interface, from 1: a port's number and one.
    pub interface: u32,
    /// Pause, or resume.
    pub is_pause: bool,
}

impl PfcLine {
    /// The line, with its end.
    pub fn write(&self) -> String {
        let PfcLine { time, node, is_switch, interface, is_pause } = *self;
        format!("{time} {node} {} {interface} {}\n", u8::from(is_switch), u8::from(is_pause))
    }
}

/// How often the bytes of one egress were so many KB of 1000 bytes: HPCC's qlen output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    counts: Vec<u32>,
}

impl QueueLengths {
    /// Counts so many samples, each of so many bytes.
    pub fn add(&mut self, bytes: u64, samples: u32) {
        if samples == 0 {
            return;
        }
        // A buffer beyond a million KB counts as one.
        let kb = (bytes / 1000).min(1_000_000) as usize;
        if self.counts.len() <= kb {
            self.counts.resize(kb + 1, 0);
        }
        self.counts[kb] = self.counts[kb].saturating_add(samples);
    }

    /// How many samples there were of each number of KB, from 0.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u32)> {
        self.counts.iter().copied().enumerate()
    }

    /// The line of this egress: switch, interface from 1, and the counts.
    pub fn write(&self, switch: u32, interface: u32) -> String {
        let mut line = format!("{switch} {interface}");
        for count in &self.counts {
            let _ = write!(line, " {count}");
        }
        line.push('\n');
        line
    }
}

/// The line in front of the block of one time, in ns.
pub fn qlen_time(time: u64) -> String {
    format!("time: {time}\n")
}

/// ConWeave's line of the CNPs of one host in 100 us; there is none where the total is 0.
pub fn cnp_line(time: u64, host: u32, by_ecn: u32, by_order: u32, total: u32) -> String {
    format!("{time} {host} {by_ecn} {by_order} {total}\n")
}

/// ConWeave's line of the bytes that a ToR has sent by an uplink so far.
pub fn uplink_line(time: u64, tor: u32, interface: u32, bytes: u64) -> String {
    format!("{time},{tor},{interface},{bytes}\n")
}

/// ConWeave's line of the queue pairs of a host, and of those that have something to send.
pub fn conn_line(time: u64, host: u32, queue_pairs: u64, active: u64) -> String {
    format!("{time},{host},{queue_pairs},{active}\n")
}
