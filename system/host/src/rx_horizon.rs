//! The receive horizon: the time up to which every frame that had arrived has been received. After a pause
//! of its driving thread, an engine finds expired timers together with the answers that they waited for. A
//! peer must not count as silent before those answers were received.

use remora_transport::Instant;

/// Number of passes after which all earlier frames count as received although each pass received frames.
const ENOUGH: u32 = 64;

/// The receive horizon of an engine. It costs nothing while no timer is due.
#[derive(Debug, Default)]
pub(crate) struct RxHorizon {
    /// Time up to which every frame that had arrived has been received.
    until: Instant,
    /// Time up to which every frame that had arrived will have been received some passes from now.
    since: Instant,
    /// Number of the pass at `since`.
    pass: u32,
}

impl RxHorizon {
    /// Returns the horizon. Called at the end of the pass with the number `pass`, at `now`, when a timer is
    /// due. `silent` tells whether the pass received nothing; `in_a_row` silent passes prove that nothing
    /// was left.
    pub(crate) fn until(&mut self, now: Instant, pass: u32, silent: bool, in_a_row: u32) -> Instant {
        let passes = pass.wrapping_sub(self.pass);
        if passes >= if silent { in_a_row } else { in_a_row.max(ENOUGH) } {
            // The clock was read at `since`, and the port was polled afterwards.
            (self.until, self.since, self.pass) = (self.since, now, pass);
        }
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_while_nobody_looked_is_taken_before_a_timer_is_judged() {
        let mut horizon = RxHorizon::default();
        // The engine stood still until 1000: frames that arrived meanwhile take three passes.
        assert_eq!(horizon.until(Instant(1000), 1, false, 1), Instant(0));
        assert_eq!(horizon.until(Instant(1001), 2, false, 1), Instant(0));
        assert_eq!(horizon.until(Instant(1002), 3, false, 1), Instant(0));
        assert_eq!(horizon.until(Instant(1003), 4, true, 1), Instant(0), "nothing is known of 1003");
        assert_eq!(
            horizon.until(Instant(5000), 5, true, 1),
            Instant(1003),
            "nor, after a pause, of what came in it"
        );
        assert_eq!(horizon.until(Instant(5001), 6, true, 1), Instant(5000));
    }

    #[test]
    fn a_port_that_looks_at_some_peers_in_turns_has_to_be_silent_for_all_of_them() {
        let mut horizon = RxHorizon::default();
        horizon.until(Instant(1000), 100, true, 3);
        let seen: Vec<u64> =
            (101..=103).map(|pass| horizon.until(Instant(900 + u64::from(pass)), pass, true, 3).0).collect();
        assert_eq!(seen, [0, 0, 1000]);
    }

    #[test]
    fn a_port_that_is_never_silent_keeps_no_timer_for_ever() {
        let mut horizon = RxHorizon::default();
        horizon.until(Instant(1), 1000, true, 1);
        let judged = (1001..).position(|pass| horizon.until(Instant(2), pass, false, 1) == Instant(1));
        assert_eq!(judged, Some(ENOUGH as usize - 1));
    }
}
