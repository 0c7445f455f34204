//! Detection of a program that spins on memory until its peer has written there. Such a program posts, and
//! polls for its own completions, but does not poll for received packets. Therefore its port stays watched
//! in addition to its calls.
//!
//! It is noticed by frames that wait for a tick although the program calls the engine. A probe finds out
//! whether it still spins: when a packet has woken the attendant, the packet is left to the program for a
//! moment.

use remora_transport::Instant;

/// Number of consecutive probes whose packets a program may take and still count as spinning, because it
/// also polls for its own completions.
const TAKEN: u32 = 8;
/// Number of wakes before the first probe. `RARELY` is the maximum number between later probes.
const FIRST: u32 = 4;
const RARELY: u32 = 64;
/// Nanoseconds without a packet after which the program is forgotten.
const FORGOTTEN: u64 = 100_000_000;

/// Observations of a program that spins on memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Spinner {
    last_packet: Instant,
    wakes: u32,
    interval: u32,
    taken: u32,
}

impl Spinner {
    pub(crate) fn new(now: Instant) -> Spinner {
        Spinner { last_packet: now, wakes: 0, interval: FIRST, taken: 0 }
    }

    /// Records that a packet has woken the attendant. Returns whether a probe is due.
    pub(crate) fn packet(&mut self, now: Instant) -> bool {
        self.last_packet = now;
        self.wakes += 1;
        self.wakes >= self.interval
    }

    /// Records the result of a probe: whether the program took the packet. Returns whether the program
    /// still counts as spinning.
    pub(crate) fn probed(&mut self, taken: bool) -> bool {
        if taken {
            self.taken += 1;
            return self.taken < TAKEN;
        }
        *self = Spinner { wakes: 0, interval: (self.interval * 2).min(RARELY), taken: 0, ..*self };
        true
    }

    /// Returns whether no packet has arrived for a long time.
    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        now.since(self.last_packet) > FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of wakes until the next probe.
    fn wakes(spinner: &mut Spinner) -> u32 {
        (1..).find(|_| spinner.packet(Instant(5))).expect("a probe comes")
    }

    #[test]
    fn a_spinner_is_probed_ever_more_rarely() {
        let mut spinner = Spinner::new(Instant(0));
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(wakes(&mut spinner));
            assert!(spinner.probed(false));
        }
        assert_eq!(seen, [4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn who_takes_the_packets_of_eight_probes_in_a_row_is_none() {
        let mut spinner = Spinner::new(Instant(0));
        assert_eq!(wakes(&mut spinner), 4);
        for _ in 0..7 {
            assert!(spinner.probed(true));
            assert_eq!(wakes(&mut spinner), 1, "the next wake is a probe, too");
        }
        assert!(spinner.probed(false), "one completion ends the spin");
        assert_eq!(wakes(&mut spinner), 8);
        for _ in 0..7 {
            assert!(spinner.probed(true));
        }
        assert!(!spinner.probed(true));
    }

    #[test]
    fn who_gets_no_packet_for_long_is_forgotten() {
        let mut spinner = Spinner::new(Instant(0));
        spinner.packet(Instant(7));
        assert!(!spinner.is_forgotten(Instant(7 + FORGOTTEN)));
        assert!(spinner.is_forgotten(Instant(8 + FORGOTTEN)));
    }
}
