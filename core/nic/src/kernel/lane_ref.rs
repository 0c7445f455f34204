//! A reference to a lane, its kernel and the queue of ready lanes, so that one lookup serves a packet.

use std::collections::VecDeque;

use remora_memory::Mem;
use remora_wire::Qpn;
use remora_wire::strom::split;

use super::Look;
use super::base::{LaneId, Piece};
use super::lane::{AnswerSender, Lane};
use super::table::{Deployed, Kernels};

/// A reference to a lane, its kernel and the queue of ready lanes.
pub(super) struct LaneRef<'k> {
    pub id: LaneId,
    kernel: &'k mut Deployed,
    ready: &'k mut VecDeque<LaneId>,
    freed: &'k mut bool,
}

impl Kernels {
    /// Returns the lane of the kernel at `place` for a queue pair, whose last lane was `hint`. `None` if no
    /// lane is free or the inbox is full.
    #[inline]
    pub(super) fn find_lane_for(&mut self, place: u32, qp: Qpn, hint: LaneId) -> Option<LaneRef<'_>> {
        let kernel = self.deployed.get_mut(place as usize)?.as_mut()?;
        let hint = if hint.place == place { hint.index } else { u32::MAX };
        let index = kernel.lane_for(qp, hint)?;
        let lane_ref =
            LaneRef { id: LaneId { place, index }, kernel, ready: &mut self.ready, freed: &mut self.freed };
        lane_ref.lane().has_capacity().then_some(lane_ref)
    }

    /// Returns a lane by its identity; `None` if it does not exist any more.
    #[inline]
    pub(super) fn lane_ref(&mut self, id: LaneId) -> Option<LaneRef<'_>> {
        let kernel = self.deployed.get_mut(id.place as usize)?.as_mut()?;
        Some(LaneRef { id, kernel, ready: &mut self.ready, freed: &mut self.freed })
    }
}

impl<'k> LaneRef<'k> {
    /// Returns the kernel's observer of WRITEs, if it has one, and counts one step.
    pub(crate) fn looks(self) -> Option<&'k mut dyn Look> {
        let Deployed { lanes, base } = self.kernel;
        let look = lanes[self.id.index as usize].looks()?;
        base.steps += 1;
        Some(look)
    }

    fn lane(&self) -> &Lane {
        &self.kernel.lanes[self.id.index as usize]
    }

    /// Delays a request whose kernel gives a prefetch hint until the packets that arrived with it were
    /// processed, so that the cache misses overlap. Returns false if the request must be processed
    /// immediately. The caller has checked the capacity of the inbox.
    pub(crate) fn put_off(&mut self, mem: Mem<'_>, piece: &Piece, bytes: &[u8]) -> bool {
        let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { return false };
        let Deployed { lanes, base } = &mut *self.kernel;
        let lane = &mut lanes[self.id.index as usize];
        if lane.prefetch(base, params, None, mem).is_none() {
            return false;
        }
        lane.put(piece, bytes);
        if !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(self.id);
        }
        true
    }

    /// Returns true if enough packets wait for the lane to start now. Otherwise a requester with many
    /// requests would receive RNR NAKs.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lane().is_crowded()
    }

    /// Runs the lane's turn, with the packet that has just arrived, if any. The caller has checked the
    /// capacity of the inbox.
    pub(crate) fn drive(self, qp: &mut impl AnswerSender, mem: Mem<'_>, direct: Option<(&Piece, &[u8])>) {
        let Deployed { lanes, base } = &mut *self.kernel;
        let lane = &mut lanes[self.id.index as usize];
        let again = lane.turn(base, qp, mem, direct);
        if again && !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(self.id);
        }
        *self.freed = true;
        self.kernel.feed(self.ready);
    }
}

impl Kernels {
    /// Returns the next lane that can continue, and the queue pair that it serves.
    pub(super) fn next_ready(&mut self) -> Option<(LaneId, Option<Qpn>)> {
        let id = self.ready.pop_front()?;
        let kernel = self.deployed[id.place as usize].as_mut();
        let lane = kernel.and_then(|kernel| kernel.lanes.get_mut(id.index as usize));
        let qp = lane.and_then(|lane| {
            lane.queued = false;
            lane.qp
        });
        Some((id, qp))
    }
}
