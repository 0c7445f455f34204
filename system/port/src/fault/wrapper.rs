//! [`Fault`]: a port with fault injection.

use super::held::{Held, Until};
use super::verbs::IncidentKind;
use super::{Direction, Facts, Policy, Rules, Tally, Verdict};
use crate::clock::{Clock, Monotonic};
use crate::staging::{Addressed, Staging, forward};
use crate::{Counters, Port};
use remora_wire::Qpn;
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start};
use std::ops::Range;
use std::os::fd::RawFd;

/// A wrapper that drops, duplicates, reorders, delays and corrupts frames of a port according to [`Rules`].
///
/// A held frame is sent, or handed on, in a later `flush` or `receive`, so the caller must keep polling the
/// port. [`Port::arm`] refuses sleep while frames are held. On a port without ICRC a corrupt frame could
/// not be detected; it is dropped there, as the receiving NIC would have done. If no rule applies to sent
/// frames, they are built directly in the port, as without the wrapper.
#[derive(Debug)]
pub struct Fault<P, C = Monotonic> {
    port: P,
    clock: C,
    policy: Policy,
    staging: Staging,
    outgoing: Held<Addressed>,
    incoming: Held<Facets>,
    scratch: Vec<u8>,
    overflowed: u64,
    /// The times, in nanoseconds of the clock, at which no frame passes.
    down: Vec<Range<u64>>,
}

/// The properties of a received frame besides its bytes.
#[derive(Copy, Clone, Debug)]
struct Facets {
    start: Start,
    sealed: bool,
    source: Endpoint,
    destination: Option<Endpoint>,
    origin: Option<Origin>,
}

impl<P: Port> Fault<P> {
    /// Wraps `port`. Delays are in real time.
    pub fn new(port: P, rules: &Rules) -> Self {
        Fault::with_clock(port, rules, Monotonic::new())
    }
}

impl<P: Port, C: Clock> Fault<P, C> {
    /// Wraps `port`. Delays are measured by this clock.
    pub fn with_clock(port: P, rules: &Rules, mut clock: C) -> Self {
        let opened = clock.now_ns();
        let down = rules.verbs.incidents.iter().filter_map(|incident| match incident.kind {
            IncidentKind::PortDown(ms) => {
                let begin = opened.saturating_add(incident.at_ms.saturating_mul(MS));
                Some(begin..begin.saturating_add(ms.saturating_mul(MS)))
            }
            _ => None,
        });
        Fault {
            down: down.collect(),
            port,
            clock,
            policy: Policy::new(rules),
            staging: Staging::default(),
            outgoing: Held::new(rules.hold),
            incoming: Held::new(rules.hold),
            scratch: Vec::new(),
            overflowed: 0,
        }
    }

    /// Returns the wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the wrapped port, mutably, to create peers for example.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the counts of decisions about frames of this direction.
    pub fn tally(&self, direction: Direction) -> Tally {
        self.policy.tally(direction)
    }

    /// Returns the number of frames that passed unchanged because too many were held already.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Returns true if any frame of this direction may have a fault.
    fn looks(&self, direction: Direction) -> bool {
        !self.down.is_empty() || self.policy.looks(direction)
    }

    /// Sends frames that are due. Returns false if the port has no space for a frame that is due.
    fn send_due(&mut self) -> bool {
        if self.outgoing.is_empty() {
            return true;
        }
        let now = self.clock.now_ns();
        let port = &mut self.port;
        loop {
            match self.outgoing.put_back(now, |header, bytes| forward(port, header, bytes).is_some()) {
                Some(true) => {}
                Some(false) => return false,
                None => return true,
            }
        }
    }

    /// Hands on received frames that are due, and returns their number.
    fn hand_on_due(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        if self.incoming.is_empty() {
            return 0;
        }
        let now = self.clock.now_ns();
        let mut handed = 0;
        while handed < budget {
            let put = |Facets { start, sealed, source, destination, origin }, bytes: &[u8]| {
                take(Ingress { bytes, start, sealed, source, destination, origin });
                true
            };
            if self.incoming.put_back(now, put).is_none() {
                break;
            }
            handed += 1;
        }
        handed
    }
}

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

/// Decides on a frame. The clock is read only if the time matters.
fn judge(
    policy: &mut Policy,
    down: &[Range<u64>],
    clock: &mut impl Clock,
    direction: Direction,
    facts: &Facts,
) -> Verdict {
    let now = if down.is_empty() && !policy.is_timed() { 0 } else { clock.now_ns() };
    match down.iter().any(|times| times.contains(&now)) {
        true => Verdict::Drop,
        false => policy.judge_at(direction, facts, now),
    }
}

/// Returns the condition until which a frame with this verdict is held; `None` if it is not held.
fn held_until(verdict: Verdict, now_ns: u64) -> Option<Until> {
    match verdict {
        Verdict::Reorder { frames } => Some(Until::Passed(frames)),
        Verdict::Delay { ns } => Some(Until::Time(now_ns.saturating_add(ns))),
        Verdict::Duplicate => Some(Until::Now),
        Verdict::Pass | Verdict::Drop | Verdict::Corrupt { .. } => None,
    }
}

impl<P: Port, C: Clock> Egress for Fault<P, C> {
    crate::forward::forward_egress!();

    fn mark(&mut self, fields: IpFields) {
        self.staging.mark(fields);
        self.port.mark(fields);
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        if !self.looks(Direction::Send) {
            return self.port.lend(peer, class, len);
        }
        // A frame for which the port had no space must be sent before any new one.
        if !self.send_due() {
            return None;
        }
        Some(self.staging.lend(peer, len))
    }

    fn commit(&mut self) {
        if !self.looks(Direction::Send) {
            return self.port.commit();
        }
        let Some((header, bytes)) = self.staging.take() else { return };
        let peer = header.peer;
        let known = self.port.peer_endpoint(peer);
        let (facts, bth) = Facts::of(self.port.start(peer), bytes, Direction::Send, known);
        let verdict = judge(&mut self.policy, &self.down, &mut self.clock, Direction::Send, &facts);
        self.outgoing.passed();
        match verdict {
            Verdict::Drop => return,
            Verdict::Corrupt { .. } if !self.port.seals(peer) => return,
            Verdict::Corrupt { at: offset, mask } => {
                if let Some(byte) = bytes.get_mut(bth + offset) {
                    *byte ^= mask;
                }
            }
            _ => {}
        }
        let now = if verdict == Verdict::Pass { 0 } else { self.clock.now_ns() };
        let passes = match held_until(verdict, now) {
            None => true,
            Some(_) if self.outgoing.is_full() => {
                self.overflowed += 1;
                true
            }
            Some(until) => {
                self.outgoing.hold(until, now, header, bytes);
                verdict == Verdict::Duplicate
            }
        };
        // The frame itself is sent before its duplicate, which waits for the next flush. `lend` has made
        // sure that no other frame waits for space, so a frame that finds none now is the next to be sent.
        if passes && forward(&mut self.port, header, bytes).is_none() {
            self.outgoing.hold(Until::Now, now, header, bytes);
        }
    }

    fn flush(&mut self) {
        self.send_due();
        self.port.flush();
    }
}

impl<P: Port, C: Clock> Port for Fault<P, C> {
    crate::forward::forward_port!();

    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        if !self.outgoing.is_empty() {
            self.flush();
        }
        let mut handed = self.hand_on_due(budget, take);
        if handed == budget {
            return handed;
        }
        let Fault { port, clock, policy, incoming, scratch, overflowed, down, .. } = self;
        port.receive(budget - handed, &mut |frame| {
            let known = (frame.start == Start::Bth).then_some(frame.source);
            let (facts, bth) = Facts::of(frame.start, frame.bytes, Direction::Receive, known);
            let verdict = judge(policy, down, clock, Direction::Receive, &facts);
            incoming.passed();
            match verdict {
                Verdict::Drop => return,
                Verdict::Corrupt { .. } if !frame.sealed => return,
                Verdict::Corrupt { at: offset, mask } => {
                    scratch.clear();
                    scratch.extend_from_slice(frame.bytes);
                    if let Some(byte) = scratch.get_mut(bth + offset) {
                        *byte ^= mask;
                    }
                    handed += 1;
                    return take(Ingress { bytes: scratch, ..frame });
                }
                _ => {}
            }
            let now = if verdict == Verdict::Pass { 0 } else { clock.now_ns() };
            match held_until(verdict, now) {
                None => {}
                Some(_) if incoming.is_full() => *overflowed += 1,
                Some(until) => {
                    let Ingress { start, sealed, source, destination, origin, .. } = frame;
                    let facets = Facets { start, sealed, source, destination, origin };
                    incoming.hold(until, now, facets, frame.bytes);
                    if verdict != Verdict::Duplicate {
                        return;
                    }
                }
            }
            handed += 1;
            take(frame);
        });
        handed
    }

    fn arm(&mut self) -> bool {
        self.flush();
        let held = !self.outgoing.is_empty() || !self.incoming.is_empty();
        self.port.arm() || held
    }

    fn counters(&self) -> Counters {
        let mut counters = self.port.counters();
        for direction in [Direction::Send, Direction::Receive] {
            counters.faults.sum(&self.policy.tally(direction));
        }
        counters
    }
}
