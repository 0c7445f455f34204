//! Assertions of a client's invariants between two calls of its owner.

use super::super::lookup::Lookup;
use super::{Client, State};
use crate::send_queue::Account;

impl<L: Lookup, Q: Account> Client<L, Q> {
    /// Asserts the invariants, in debug builds only. A failed client is not checked.
    #[inline(always)]
    pub(super) fn checked(&self) {
        if cfg!(debug_assertions) && self.broken.is_none() {
            self.check();
        }
    }

    /// Asserts the invariants. All slots are checked whenever none or all of them are in flight.
    fn check(&self) {
        self.queue.check();
        let pieces = self.grant.staging_count as usize;
        assert!(self.staging.len() <= pieces, "free pieces <= pieces of the grant");
        assert!(self.waiting.len() <= self.in_flight(), "operations that wait are in flight");
        let state = |slot: &u16| self.flights[usize::from(*slot)].state;
        assert!(self.idle.last().is_none_or(|slot| state(slot) == State::Idle), "a free slot is idle");
        assert!(
            self.waiting.front().is_none_or(|slot| state(slot) == State::Waiting),
            "the next to be posted waits"
        );
        if !self.idle.is_empty() && self.in_flight() > 0 {
            return;
        }
        let count = |is: fn(&State) -> bool| self.flights.iter().filter(|flight| is(&flight.state)).count();
        assert_eq!(self.idle.len(), count(|state| *state == State::Idle), "free slots = idle slots");
        assert_eq!(
            self.waiting.len(),
            count(|state| *state == State::Waiting),
            "slots in line = slots that wait"
        );
        let used = count(|state| matches!(state, State::Calling(Some(_))));
        assert_eq!(self.staging.len() + used, pieces, "free pieces + pieces in use = pieces of the grant");
    }
}
