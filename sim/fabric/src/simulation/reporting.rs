//! Observers: callers that are notified of events at ports, with the bytes of the frames.

use super::Simulation;
use super::observer::{Observer, Seen};
use crate::network::{EventSet, PortId};

impl Simulation {
    /// Sets the observer, which replaces an earlier one.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Observes a direction of a link from now on.
    pub fn observe(&mut self, port: PortId, events: EventSet) {
        self.network.observe(port, events);
    }

    /// Observes all pause frames that arrive.
    pub fn observe_pauses(&mut self) {
        self.network.observe_pauses();
    }

    /// Reports the observations since the last report to the observer.
    #[cold]
    #[inline(never)]
    pub(super) fn report(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        self.network.take_observations(&mut self.observations);
        for observation in &self.observations {
            observer.observe(&Seen { observation, frames: &self.frames, sealed: self.config.icrc });
        }
        self.observations.clear();
    }
}
