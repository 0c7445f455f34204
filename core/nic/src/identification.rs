//! The check of frames whose IPv4 identification the port does not show. The ICRC covers the identification,
//! so it can be recovered from the ICRC and tested for plausibility.
//!
//! Remora NICs number the frames of a train from 0, so their identifications are below 128. Strangers count
//! their packets, as Soft-RoCE does. Their identification is recovered from the ICRC, and it must advance: by
//! less than [`AHEAD`], and one more for each microsecond that the sender was quiet, because Linux counts the
//! packets of all flows between two hosts together. A sender that was quiet for 65 ms may therefore continue
//! anywhere. The identification may go back by at most [`BEHIND`]: two CPUs of the sender number packets in
//! one order and send them in another.

use remora_transport::Instant;
use remora_wire::icrc::{IdSpans, Syndrome};

/// Maximum distance by which a stranger's identification may be ahead of its last one.
const AHEAD: u64 = 1024;
/// Maximum distance by which a stranger's identification may be behind its last one.
const BEHIND: u16 = 64;
/// Nanoseconds for which a sender's other flows may use one identification.
const NS_PER_ID: u64 = 1000;

/// An identification and the time of its arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    id: u16,
    time: Instant,
}

impl Last {
    /// Returns true if a frame with this identification is plausible at `now`.
    fn is_followed_by(&self, id: u16, now: Instant) -> bool {
        self.is_ahead_of(id) || u64::from(id.wrapping_sub(self.id)) < AHEAD + now.since(self.time) / NS_PER_ID
    }

    /// Returns true if the identification is slightly older, so that its frame was overtaken.
    fn is_ahead_of(&self, id: u16) -> bool {
        (1..=BEHIND).contains(&self.id.wrapping_sub(id))
    }

    /// Returns the state after a frame with this identification: the newer one of both.
    fn then(self, id: u16, now: Instant) -> Last {
        Last { id: if self.is_ahead_of(id) { self.id } else { id }, time: now }
    }
}

/// The identifications of the frames that one sender has sent to one queue pair.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Identifications {
    /// No intact frame has arrived.
    #[default]
    Unseen,
    /// The sender numbers frames like a Remora NIC. The first frame with another identification is dropped,
    /// because it may be corrupt; a second one that follows it is accepted.
    Small {
        /// Identification of the frame that was dropped.
        other: Option<Last>,
    },
    /// The sender counts its packets, as strangers do; the last identification.
    Counted(Last),
}

impl Identifications {
    /// Returns true if the frame with this syndrome is intact.
    #[inline]
    pub(crate) fn admit(&mut self, syndrome: Syndrome, spans: &mut IdSpans, now: Instant) -> bool {
        if let Some(id) = syndrome.small_id(spans) {
            match self {
                Identifications::Small { .. } => {}
                Identifications::Unseen => *self = Identifications::Small { other: None },
                // A stranger's numbers wrap around.
                Identifications::Counted(last) => *last = last.then(id, now),
            }
            return true;
        }
        self.admit_stranger(syndrome, spans, now)
    }

    #[cold]
    #[inline(never)]
    fn admit_stranger(&mut self, syndrome: Syndrome, spans: &mut IdSpans, now: Instant) -> bool {
        let Some(id) = syndrome.any_id(spans) else { return false };
        let new = Last { id, time: now };
        let admitted = match self {
            Identifications::Unseen => true,
            Identifications::Small { other } => {
                other.replace(new).is_some_and(|other| other.is_followed_by(id, now))
            }
            Identifications::Counted(last) => last.is_followed_by(id, now),
        };
        if admitted {
            *self = Identifications::Counted(match self {
                Identifications::Counted(last) => last.then(id, now),
                _ => new,
            });
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use remora_wire::frame::{Endpoint, Route};
    use remora_wire::icrc::Flow;

    use super::*;

    const TRANSPORT: [u8; 76] = [0x2a; 76];
    const MS: u64 = 1_000_000;

    fn flow() -> Flow {
        let end =
            |last: u8| Endpoint { address: std::net::Ipv4Addr::new(10, 0, 0, last).into(), udp_port: 4791 };
        let route = Route::new(end(1), end(2));
        Flow::new(route.source, route.destination)
    }

    /// Frames of one sender, one after the other.
    #[derive(Default)]
    struct Sender {
        known: Identifications,
        spans: IdSpans,
        now: u64,
    }

    impl Sender {
        fn sends(&mut self, id: u16) -> bool {
            let syndrome = flow().syndrome(&TRANSPORT, flow().seal(id, &TRANSPORT));
            self.known.admit(syndrome, &mut self.spans, Instant(self.now))
        }

        /// A frame whose ICRC no identification explains.
        fn sends_corrupt(&mut self, id: u16) -> bool {
            let mut broken = TRANSPORT;
            broken[40] ^= 1;
            let syndrome = flow().syndrome(&broken, flow().seal(id, &TRANSPORT));
            self.known.admit(syndrome, &mut self.spans, Instant(self.now))
        }
    }

    #[test]
    fn a_stranger_may_begin_anywhere_and_must_advance_by_less_than_1024() {
        for first in [128, 5000, 50_102, 65_000, u16::MAX] {
            let mut sender = Sender::default();
            assert!(sender.sends(first));
            for (step, fine) in
                [(1, true), (1023, true), (1024, false), (0, true), (u16::MAX - 64, false), (700, true)]
            {
                let Identifications::Counted(last) = sender.known else { panic!("a stranger's") };
                let next = last.id.wrapping_add(step);
                // Small ones are a Remora NIC's, too, and always pass.
                assert_eq!(sender.sends(next), fine || next < 128, "{} and {step}", last.id);
            }
            assert!(!sender.sends_corrupt(first.wrapping_add(1)));
        }
    }

    /// Seen of Soft-RoCE with two CPUs: 52753, then 52745.
    ///
    /// Regression: frames of Soft-RoCE with two CPUs that overtook each other by a few identifications
    /// were dropped as corrupt.
    #[test]
    fn a_strangers_frames_that_overtook_each_other_by_up_to_64_are_taken() {
        let mut sender = Sender::default();
        assert!(sender.sends(52_753) && sender.sends(52_745) && sender.sends(52_754));
        assert!(sender.sends(52_754 - 64) && !sender.sends(52_754 - 65));
        assert!(sender.sends(52_754 + 1023), "what is late does not set the last one back");
        let mut round = Sender::default();
        assert!(round.sends(65_530) && round.sends(3) && round.sends(65_531) && round.sends(5));
        assert!(!round.sends(65_400), "further than 64 behind");
    }

    #[test]
    fn a_stranger_that_was_quiet_may_be_further_ahead_and_after_65_ms_anywhere() {
        let mut sender = Sender::default();
        assert!(sender.sends(40_000));
        sender.now += MS;
        assert!(!sender.sends(40_000 + 2024), "1024 and one for each microsecond");
        assert!(sender.sends(40_000 + 2023));
        sender.now += 65 * MS;
        assert!(sender.sends(39_000));
        sender.now += 64 * MS;
        assert!(!sender.sends(38_935), "65 behind");
        // What is refused does not count: it is not for ever.
        sender.now += MS;
        assert!(sender.sends(38_935));
    }

    #[test]
    fn a_stranger_whose_numbers_go_round_passes_through_those_of_a_remora_nic() {
        for step in [1, 63, 977, 1023] {
            let mut sender = Sender::default();
            let mut id = 65_000_u16;
            for _ in 0..3000 {
                assert!(sender.sends(id), "{id} by {step}");
                id = id.wrapping_add(step);
            }
        }
    }

    #[test]
    fn one_frame_of_a_remora_nic_with_another_number_is_corrupt_and_two_in_order_are_a_strangers() {
        let mut sender = Sender::default();
        assert!(sender.sends(0) && sender.sends(3));
        assert!(!sender.sends(30_000), "25 bits of check are left, not 16");
        assert!(sender.sends(0) && sender.sends(127));
        assert!(!sender.sends(20_000), "it does not follow the other");
        assert!(sender.sends(20_001), "a stranger that began with a small number");
        assert!(!sender.sends(30_000) && sender.sends(20_002));
    }

    #[test]
    fn a_corrupt_frame_is_refused_whatever_is_known() {
        let mut sender = Sender::default();
        assert!(!sender.sends_corrupt(0) && sender.known == Identifications::Unseen);
        assert!(sender.sends(9) && !sender.sends_corrupt(10));
        let mut stranger = Sender::default();
        assert!(stranger.sends(900) && !stranger.sends_corrupt(901));
    }
}
