//! The invariants that hold for a manager between two events.
//!
//! After each event, debug builds check the id concerned. Tests and fuzzers check all ids and tables.

use super::{Cm, Due};
use crate::{CmState, Instant};

impl Cm {
    /// Asserts the invariants of an id after an event, in debug builds only. An id is sent a message before
    /// its timer is set, so ids that wait are checked only once the timer runs.
    #[inline]
    pub(super) fn checked(&self, slot: u32) {
        if cfg!(debug_assertions) {
            let id = self.ids.get(slot);
            let waits = id.state.repeats() || id.state.lingers();
            if !waits || id.deadline < Instant::NEVER {
                id.check();
            }
            assert!(self.outgoing.len() <= self.config.max_outgoing as usize, "MADs <= max_outgoing");
            assert!(self.events.len() <= self.config.max_events as usize, "events <= max_events");
        }
    }

    /// Asserts the invariants of all ids, tables and queues.
    ///
    /// # Panics
    /// If an invariant does not hold, which is a bug of this crate.
    pub fn check(&self) {
        self.ids.check();
        for index in [&self.timers, &self.lingering] {
            index.check();
        }
        self.by_handle.check();
        self.by_remote_id.check();
        self.by_remote_qp.check();
        for (slot, id) in self.ids.iter() {
            self.checked(slot);
            id.check();
            let agrees = |present: bool, entry: Option<u32>| present == (entry == Some(slot));
            let due = Due { deadline: id.deadline, slot };
            assert!(
                agrees(id.deadline < Instant::NEVER, self.timers.get(&due)),
                "a deadline is in the timer index"
            );
            assert!(agrees(id.state.lingers(), self.lingering.get(&due)), "a lingering id is in its index");
            assert!(agrees(id.has_remote_id, self.by_remote_id.get(&id.remote_id())), "peers' ids");
            assert!(agrees(id.has_remote_qp, self.by_remote_qp.get(&id.remote_qp())), "peers' queue pairs");
            assert_eq!(self.ids.find(id.local_comm_id), Some(slot), "communication ids");
            if let Some(handle) = id.handle {
                assert!(self.by_handle.get(&handle) == Some(slot) && !self.listeners.has(handle), "handles");
            }
        }
        let count = |has: fn(&crate::cm_id::CmId) -> bool| self.ids.iter().filter(|(_, id)| has(id)).count();
        assert_eq!(self.by_handle.len(), count(|id| id.handle.is_some()), "handles");
        assert_eq!(self.timers.len(), count(|id| id.deadline < Instant::NEVER), "timers");
        assert_eq!(self.lingering.len(), count(|id| id.state.lingers()), "count of lingering ids");
        assert_eq!(self.by_remote_id.len(), count(|id| id.has_remote_id), "peers' ids");
        assert_eq!(self.by_remote_qp.len(), count(|id| id.has_remote_qp), "peers' queue pairs");
        self.listeners.check(|listener| {
            let pending = self.ids.iter().filter(|(_, id)| id.listener == Some(listener));
            pending.inspect(|(_, id)| assert_ne!(id.state, CmState::Idle)).count()
        });
    }
}
