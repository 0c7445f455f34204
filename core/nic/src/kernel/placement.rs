//! Where a kernel stands beside RPC (StRoM paper, §3.5, §5.2): on the way of incoming WRITEs to memory, and between the program
//! and its peer.

use remora_memory::{Access, Key, Mem};
use remora_transport::rc::strom::Part;
use remora_transport::{Action, Outcome};
use remora_wire::Qpn;

use super::lane::Piece;
use super::streams::PACKET;
use super::{LOOKED_AT, Look, Strom};
use crate::nic::{Nic, NicError, Shared};
use crate::queue_pair::QueuePair;

/// What the program hands a kernel of its own NIC, on behalf of a queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// Which kernel.
    pub opcode: u64,
    /// 24 bits, which its answer carries to the peer.
    pub tag: u32,
    /// Parameters, which begin with a place of the peer's ([`Place`](super::Place)); else data.
    pub params: bool,
    /// Bytes of the message from these on; it starts with those for which `first` is set and ends when none are left.
    pub left: u32,
    /// The message starts here.
    pub first: bool,
    /// At most [`PACKET`] of them.
    pub bytes: &'a [u8],
}

impl QueuePair {
    /// Does a kernel look at the WRITEs that come in?
    #[inline(always)]
    pub(crate) fn is_tapped(&self) -> bool {
        self.strom.as_ref().is_some_and(|strom| strom.tap.is_some())
    }

    /// Does what a request asks for, and shows a kernel what goes to memory. If the kernel has no room, the requester waits.
    #[inline(never)]
    pub(crate) fn execute_tapped(
        &mut self,
        mem: Mem<'_>,
        action: Action,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        match action {
            Action::Place { key, va, extent } => self.place_tapped(mem, (key, va, extent), payload, shared),
            Action::PlaceAndNotify { va, .. } => self.show(mem, va, payload, shared, |qp, shared| {
                qp.execute_outlined(mem, action, payload, shared)
            }),
            _ => self.execute_outlined(mem, action, payload, shared),
        }
    }

    /// Places what a kernel looks at on the way: piece by piece, so that the next one, and where it goes, come near while it looks at
    /// this one.
    pub(crate) fn place_tapped(
        &mut self,
        mem: Mem<'_>,
        (key, va, extent): (u32, u64, u32),
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        let whole = (extent as usize).max(payload.len());
        let span = mem.check_for(self.pd, self.owner, Key::new(key), va, whole, Access::REMOTE_WRITE);
        if let Ok(span) = span
            && let Some(look) = self.looks(shared)
        {
            for (at, piece) in payload.chunks(LOOKED_AT).enumerate() {
                span.prefetch_beside(((at + 1) * LOOKED_AT) as u64, LOOKED_AT);
                look.look(piece);
                let _ = span.write_at(at * LOOKED_AT, piece);
            }
            return Outcome::Done;
        }
        self.show(mem, va, payload, shared, |qp, _| qp.place(mem, key, va, extent, payload))
    }

    /// The kernel that only looks at what passes, if it can now.
    fn looks<'k>(&mut self, shared: &'k mut Shared) -> Option<&'k mut dyn Look> {
        let strom = self.strom.as_mut()?;
        let (place, number) = strom.tap?;
        if !shared.kernels.is_there(place, number) {
            return None;
        }
        let lane_ref = shared.kernels.find_lane_for(place, self.number, strom.lane)?;
        strom.lane = lane_ref.at;
        lane_ref.looks()
    }

    /// Places by `place`, and then shows the kernel what has been placed.
    pub(crate) fn show(
        &mut self,
        mem: Mem<'_>,
        va: u64,
        payload: &[u8],
        shared: &mut Shared,
        place: impl FnOnce(&mut QueuePair, &mut Shared) -> Outcome,
    ) -> Outcome {
        let Some(strom) = &mut self.strom else { return place(self, shared) };
        let found = strom.tap.filter(|(at, number)| shared.kernels.is_there(*at, *number));
        let Some((at, _)) = found else { return place(self, shared) };
        let Some(lane) =
            shared.kernels.find_lane_for(at, self.number, strom.lane).map(|lane_ref| lane_ref.at)
        else {
            shared.counters.kernels_busy += 1;
            return Outcome::NotReady;
        };
        strom.lane = lane;
        let outcome = place(self, shared);
        // The notice may have found its completion queue full, and ended the queue pair.
        if outcome == Outcome::Done
            && self.strom.is_some()
            && let Some(lane_ref) = shared.kernels.lane_ref(lane)
        {
            let part = Part::new(0, 0, payload.len() as u32, false, [true; 2]);
            let piece = Piece { part, passing: Some(va) };
            lane_ref.drive(self, mem, Some((&piece, payload)));
        }
        outcome
    }
}

impl Nic {
    /// From now on the kernel with this number sees what the peer of a queue pair WRITEs, packet by packet, after it has been
    /// placed in memory; with none, nobody does. The queue pair is ready to receive. Over IRN packets come as they arrive,
    /// each of them once.
    ///
    /// # Errors
    /// [`NicError::Unknown`]: no such queue pair, or no such kernel in its domain. [`NicError::NotThisService`]: it is no reliable
    /// connection, or not connected.
    pub fn attach_kernel(&mut self, qp: Qpn, kernel: Option<u32>) -> Result<(), NicError> {
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        let tap = match kernel {
            None => None,
            Some(number) => Some((self.shared.kernels.place_of_number(qp.pd, number)?, number)),
        };
        if qp.connection.is_none() && qp.irn.is_none() {
            return Err(NicError::NotThisService);
        }
        let slots = qp.send.ring().slots();
        qp.strom.get_or_insert_with(|| Box::new(Strom::new(slots, 0, 0))).tap = tap;
        Ok(())
    }

    /// Hands a kernel of this NIC a message, or a piece of one, as if it came from the peer of a queue pair: what it answers and
    /// sends goes to that peer.
    ///
    /// # Errors
    /// [`NicError::Unknown`]: no such queue pair, or no kernel for it. [`NicError::Busy`]: no lane, or four pieces wait for it; again
    /// later. [`NicError::TooSmall`]: more bytes than [`PACKET`], or than are left. [`NicError::NotThisService`]: StRoM is not agreed on with the peer.
    pub fn invoke_kernel(&mut self, mem: Mem<'_>, qp: Qpn, what: &Invocation<'_>) -> Result<(), NicError> {
        let len = what.bytes.len() as u32;
        if what.bytes.len() > PACKET || len > what.left {
            return Err(NicError::TooSmall);
        }
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        if qp.strom.is_none() {
            return Err(NicError::NotThisService);
        }
        let shared = &mut self.shared;
        shared.kernels.serves(qp.pd, what.opcode, u32::MAX).ok_or(NicError::Unknown)?;
        let ends = [what.first, len == what.left];
        let part = Part::new(what.opcode, what.tag, what.left, what.params, ends);
        let outcome = qp.hand_over(mem, &part, what.bytes, shared);
        self.attend(index);
        if outcome == Outcome::NotReady { Err(NicError::Busy) } else { Ok(()) }
    }
}
