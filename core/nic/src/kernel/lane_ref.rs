//! A lane that was looked up, with its kernel and the line of those that can go on: a packet looks once.

use std::collections::VecDeque;

use remora_memory::Mem;
use remora_wire::Qpn;
use remora_wire::strom::split;

use super::Look;
use super::lane::{Lane, Piece};
use super::table::{Deployed, Kernels};
use crate::queue_pair::QueuePair;

/// Where a lane is: the place of its kernel, and its number there.
pub(super) type At = (u32, u32);

/// A lane in reach.
pub(super) struct LaneRef<'k> {
    pub at: At,
    kernel: &'k mut Deployed,
    ready: &'k mut VecDeque<At>,
    freed: &'k mut bool,
}

impl Kernels {
    /// The lane of the kernel at `place` for a queue pair, whose last one was `hint`. None: there is none, or it has no room for a packet.
    #[inline]
    pub(super) fn find_lane_for(&mut self, place: u32, qp: Qpn, hint: At) -> Option<LaneRef<'_>> {
        let kernel = self.deployed.get_mut(place as usize)?.as_mut()?;
        let hint = if hint.0 == place { hint.1 } else { u32::MAX };
        let number = kernel.lane_for(qp, hint)?;
        let lane_ref =
            LaneRef { at: (place, number), kernel, ready: &mut self.ready, freed: &mut self.freed };
        lane_ref.lane().has_room().then_some(lane_ref)
    }

    /// A lane that was found before.
    #[inline]
    pub(super) fn lane_ref(&mut self, at: At) -> Option<LaneRef<'_>> {
        let kernel = self.deployed.get_mut(at.0 as usize)?.as_mut()?;
        Some(LaneRef { at, kernel, ready: &mut self.ready, freed: &mut self.freed })
    }
}

impl<'k> LaneRef<'k> {
    /// Its kernel, if that only looks at what passes, and is about to.
    pub fn looks(self) -> Option<&'k mut dyn Look> {
        let Deployed { lanes, base } = self.kernel;
        let look = lanes[self.at.1 as usize].looks()?;
        base.steps += 1;
        Some(look)
    }

    fn lane(&self) -> &Lane {
        &self.kernel.lanes[self.at.1 as usize]
    }

    /// A request whose kernel knows what it will read first waits in its lane until the packets that came with it have been looked at:
    /// so many wait for memory together. False: it is to be handed over now. The caller has seen that there is room.
    pub fn put_off(&mut self, mem: Mem<'_>, piece: &Piece, bytes: &[u8]) -> bool {
        let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { return false };
        let Deployed { lanes, base } = &mut *self.kernel;
        let lane = &mut lanes[self.at.1 as usize];
        if lane.prefetch(base, params, None, mem).is_none() {
            return false;
        }
        lane.put(piece, bytes);
        if !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(self.at);
        }
        true
    }

    /// Do so many packets wait that it should begin, though more may come together with them? Or else whoever has many requests on
    /// their way would be refused.
    pub fn is_crowded(&self) -> bool {
        self.lane().is_crowded()
    }

    /// Gives the lane its turn, with what has just come to it. The caller has seen that there is room for that.
    pub fn drive(self, qp: &mut QueuePair, mem: Mem<'_>, direct: Option<(&Piece, &[u8])>) {
        let Deployed { lanes, base } = &mut *self.kernel;
        let lane = &mut lanes[self.at.1 as usize];
        let again = lane.turn(base, qp, mem, direct);
        if again && !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(self.at);
        }
        *self.freed = true;
        self.kernel.feed(self.ready);
    }
}

impl Kernels {
    /// The next lane that can go on, and whom it serves.
    pub(super) fn next_ready(&mut self) -> Option<(At, Option<Qpn>)> {
        let at = self.ready.pop_front()?;
        let kernel = self.deployed[at.0 as usize].as_mut();
        let lane = kernel.and_then(|kernel| kernel.lanes.get_mut(at.1 as usize));
        let qp = lane.and_then(|lane| {
            lane.queued = false;
            lane.qp
        });
        Some((at, qp))
    }
}
