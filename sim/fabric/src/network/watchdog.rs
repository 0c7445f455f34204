//! The activity of ports between two checks of the watchers.

use super::port_id::PortId;
use crate::engine::Picos;

/// The activity of all ports since the last check.
pub(crate) struct Watchdog {
    pub(super) all: Vec<Since>,
    /// For each port: true if it has sent a packet. A separate table, because each departure writes to it.
    pub(super) sent: Vec<bool>,
    pub(super) looked: Picos,
    /// Deadlocks that were reported, by the lowest port of each.
    pub(super) reported: Vec<PortId>,
}

#[derive(Copy, Clone, Default)]
pub(super) struct Since {
    /// Mask of the paused classes, and time of the last change from or to an empty mask.
    pub(super) paused: u8,
    pub(super) changed: Picos,
    /// Picoseconds during which at least one class was paused.
    pub(super) pause: u64,
    /// Consecutive periods with a pause storm.
    pub(super) storms: u8,
}

impl Watchdog {
    pub(crate) fn new(ports: usize) -> Watchdog {
        Watchdog {
            all: vec![Since::default(); ports],
            sent: vec![false; ports],
            looked: Picos(0),
            reported: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, id: PortId) {
        self.sent[id.index()] = true;
    }

    pub(crate) fn paused(&mut self, id: PortId, classes: u8, now: Picos) {
        let since = &mut self.all[id.index()];
        if since.paused == 0 {
            since.changed = now;
        }
        since.paused |= classes;
    }

    pub(crate) fn resumed(&mut self, id: PortId, classes: u8, now: Picos) {
        let since = &mut self.all[id.index()];
        let before = since.paused;
        since.paused &= !classes;
        if before != 0 && since.paused == 0 {
            since.pause += now.since(since.changed);
        }
    }
}
