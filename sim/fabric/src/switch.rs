//! A switch between the links and the nodes: the bottleneck of many senders to one receiver.
//!
//! A frame that has crossed its link waits in the buffer of its node's port. The port sends at its rate,
//! first come, first served. A frame that does not fit the buffer is lost: no pause frames, a plain tail
//! drop. A port may mark frames that allow it (ECN). The more bytes wait, the likelier a mark is.

use std::collections::VecDeque;

use remora_transport::Instant;
use remora_wire::ethernet;
use remora_wire::frame::{Network, Start};

use remora_fault::Random;

/// When a port marks: as RED, by the bytes that wait when a frame comes (DCQCN paper, §3.1 and figure 5).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// `K_min`: up to so many bytes nothing is marked.
    pub k_min: usize,
    /// `K_max`: beyond so many bytes everything is.
    pub k_max: usize,
    /// `P_max` in thousandths: how likely a mark is at `K_max`.
    pub p_max_thousandths: u32,
}

impl Default for Marks {
    /// The DCQCN paper's (§5): 5 KB, 200 KB, 1 %.
    fn default() -> Marks {
        Marks { k_min: 5_000, k_max: 200_000, p_max_thousandths: 10 }
    }
}

impl Marks {
    /// How likely a mark is while `held` bytes wait.
    pub(crate) fn likelihood(&self, held: usize) -> f64 {
        if held <= self.k_min {
            return 0.0;
        }
        if held > self.k_max {
            return 1.0;
        }
        let part = (held - self.k_min) as f64 / (self.k_max - self.k_min).max(1) as f64;
        part * f64::from(self.p_max_thousandths) / 1000.0
    }
}

/// Latency, rate, buffer and marking of every port of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// From the last bit's departure to its arrival at the node, nanoseconds.
    pub latency_ns: u64,
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    /// Bytes of frames that a port holds at most, the one that is leaving among them.
    pub buffer: usize,
    /// When it marks; never, if not given.
    pub marks: Option<Marks>,
}

/// A port that leads to one node.
pub(crate) struct Port {
    config: SwitchConfig,
    /// Departures still to come, and the bytes that leave with each.
    departures: VecDeque<(Instant, usize)>,
    held: usize,
    free_at: Instant,
    /// Frames that did not fit the buffer.
    pub dropped: u64,
    /// Most bytes ever held.
    pub most: usize,
    /// Frames that this port marked.
    pub marked: u64,
    random: Random,
}

/// How a frame leaves the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// When it arrives at its node.
    pub at: Instant,
    /// It is to be marked, if it may be.
    pub mark: bool,
}

impl Port {
    pub fn new(config: SwitchConfig, seed: u64) -> Port {
        let departures = VecDeque::new();
        let random = Random::new(seed);
        Port { config, departures, held: 0, free_at: Instant(0), dropped: 0, most: 0, marked: 0, random }
    }

    /// Bytes that wait at `now`.
    pub fn held(&mut self, now: Instant) -> usize {
        while let Some((_, gone)) = self.departures.pop_front_if(|(departure, _)| *departure <= now) {
            self.held -= gone;
        }
        self.held
    }

    /// A frame of `len` bytes comes. Returns when it leaves, if it fits the buffer.
    pub fn take(&mut self, now: Instant, len: usize) -> Option<Departure> {
        if self.held(now) + len > self.config.buffer {
            self.dropped += 1;
            return None;
        }
        let likelihood = self.config.marks.map_or(0.0, |marks| marks.likelihood(self.held));
        let mark = self.random.chance(likelihood);
        self.held += len;
        self.most = self.most.max(self.held);
        let transmission = (len as u64 * 8_000_000_000).checked_div(self.config.rate).unwrap_or(0);
        self.free_at = self.free_at.max(now).after(transmission);
        self.departures.push_back((self.free_at, len));
        Some(Departure { at: self.free_at.after(self.config.latency_ns), mark })
    }
}

/// Sets "congestion experienced" in a frame that may be marked. Returns false if it may not (RFC 3168 §5).
pub(crate) fn mark(start: Start, frame: &mut [u8]) -> bool {
    let at = match start {
        Start::Bth => return false,
        Start::Ip => 0,
        Start::Ethernet => ethernet::LEN,
    };
    let Some(Ok((mut network, _))) = frame.get(at..).map(Network::parse) else { return false };
    let ecn = match &mut network {
        Network::V4(header) => {
            let before = header.ecn;
            header.ecn = 3;
            before
        }
        Network::V6(header) => {
            let before = header.traffic_class & 3;
            header.traffic_class |= 3;
            before
        }
    };
    if ecn != 0 {
        network.emit(&mut frame[at..]);
    }
    ecn != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand bytes take a microsecond.
    const CONFIG: SwitchConfig =
        SwitchConfig { latency_ns: 500, rate: 8_000_000_000, buffer: 3_000, marks: None };

    fn arrival(port: &mut Port, now: u64, len: usize) -> Option<Instant> {
        port.take(Instant(now), len).map(|passed| passed.at)
    }

    #[test]
    fn frames_leave_one_after_the_other_at_the_rate_and_arrive_a_latency_later() {
        let mut port = Port::new(CONFIG, 0);
        let arrivals: Vec<_> = (0..3).map(|_| arrival(&mut port, 100, 1000)).collect();
        assert_eq!(arrivals, [1_600, 2_600, 3_600].map(|at| Some(Instant(at))));
        // An idle port begins at once.
        assert_eq!(arrival(&mut port, 10_000, 500), Some(Instant(11_000)));
    }

    #[test]
    fn what_just_fits_is_taken_and_one_byte_more_is_lost() {
        let mut port = Port::new(CONFIG, 0);
        assert!(port.take(Instant(0), 2_999).is_some());
        assert_eq!(port.take(Instant(0), 2), None);
        assert!(port.take(Instant(0), 1).is_some());
        assert_eq!((port.dropped, port.most), (1, 3_000));
        // There is space again in the moment in which a frame has left, not before.
        assert_eq!(port.take(Instant(2_998), 1), None);
        assert!(port.take(Instant(2_999), 2_999).is_some());
    }

    #[test]
    fn nothing_is_marked_up_to_k_min_everything_beyond_k_max_and_p_max_of_it_between() {
        let marks = Marks { k_min: 1_000, k_max: 3_000, p_max_thousandths: 500 };
        assert_eq!(
            [0, 1_000, 2_000, 3_000, 3_001].map(|held| marks.likelihood(held)),
            [0.0, 0.0, 0.25, 0.5, 1.0]
        );
        let config = SwitchConfig { buffer: 1 << 20, marks: Some(marks), ..CONFIG };
        let counts = [0usize, 2_000, 3_001].map(|held| {
            let marked = (0..10_000).filter(|seed| {
                let mut port = Port::new(config, *seed);
                port.take(Instant(0), held);
                port.take(Instant(0), 1).unwrap().mark
            });
            marked.count()
        });
        assert_eq!((counts[0], counts[2]), (0, 10_000));
        assert!((2_200..2_800).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn a_mark_changes_the_ecn_field_and_its_checksum_and_only_where_it_may() {
        use remora_wire::frame::{Endpoint, Route};
        let v4 = |host| Endpoint { address: std::net::Ipv4Addr::new(10, 0, 0, host).into(), udp_port: 4791 };
        let v6 = |host| Endpoint {
            address: std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into(),
            udp_port: 4791,
        };
        let routes = [Route::new(v4(1), v4(2)), Route::new(v6(1), v6(2))];
        for (route, start) in routes.into_iter().zip([Start::Ip, Start::Ethernet]) {
            for (class, expected) in [(0, 0), (1, 3), (2, 3), (3, 3), (0xb8, 0xb8), (0xba, 0xbb)] {
                let mut frame = vec![0; 200];
                Route { traffic_class: class, ..route }.emit(start, 7, 100, &mut frame);
                let at = if start == Start::Ip { 0 } else { ethernet::LEN };
                let ip = if start == Start::Ip { 20 } else { 40 };
                frame.truncate(at + ip + 8 + 100);
                assert_eq!(mark(start, &mut frame), class & 3 != 0);
                let mut wanted = vec![0; frame.len()];
                Route { traffic_class: expected, ..route }.emit(start, 7, 100, &mut wanted);
                assert_eq!(frame, wanted, "class {class:#x}");
            }
        }
        assert!(!mark(Start::Bth, &mut [0; 64]));
        assert!(!mark(Start::Ip, &mut [0; 10]));
    }
}
