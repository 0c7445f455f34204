//! Assertions of a client's invariants between two calls of its owner.

use super::client::Client;
use super::flight::State;

impl Client {
    /// Asserts the invariants, in debug builds only. A failed client is not checked.
    #[inline(always)]
    pub(super) fn checked(&self) {
        if cfg!(debug_assertions) && self.is_whole() {
            self.check();
        }
    }

    /// Asserts the invariants. All places are checked whenever none or all of them are in flight.
    fn check(&self) {
        let (idle, waiting, swaps) = self.counts();
        let busy = self.in_flight();
        assert!(
            waiting.len() + swaps <= busy,
            "swaps that wait or are under way are of operations in flight"
        );
        let state = |place: &u16| self.flights[usize::from(*place)].state;
        assert!(idle.last().is_none_or(|place| state(place) == State::Idle), "a free place is idle");
        assert!(waiting.front().is_none_or(|place| state(place) == State::Waiting), "the next swap waits");
        if !idle.is_empty() && busy > 0 {
            return;
        }
        let count = |state: State| self.flights.iter().filter(|flight| flight.state == state).count();
        assert_eq!(idle.len(), count(State::Idle), "free places = idle places");
        assert_eq!(swaps, count(State::Swapping), "swaps under way = operations that swap");
        assert_eq!(waiting.len(), count(State::Waiting), "swaps in line = operations that wait");
    }
}
