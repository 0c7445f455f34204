//! Packets for kernels over IRN, at the responder. A kernel takes its bytes in order: what comes before its
//! turn is kept, one payload for each bit of the bitmaps, which bounds what is kept as BDP-FC bounds what is
//! on its way.
//!
//! What has been kept was acknowledged selectively and will not be sent again. So if its kernel has no
//! capacity when its turn comes, the order waits for the kernel.

use super::{Pending, Responder, Step};
use crate::rc::Seq;
use crate::rc::irn::Bitmap;
use crate::rc::strom::Part;
use crate::{Action, Counters};
use remora_wire::NakCode;

/// Which of the packets ahead are kept for a kernel.
pub(super) struct Kept {
    bits: Bitmap,
    /// The kernel of the first one had no capacity.
    stalled: bool,
}

impl Responder {
    /// StRoM is agreed with the peer. Returns how many payloads may have to be kept.
    pub fn enable_strom(&mut self) -> u32 {
        let size = self.receiver.reach();
        self.kept = Some(Box::new(Kept { bits: Bitmap::new(size), stalled: false }));
        size
    }

    /// A packet for a kernel: handed over in its turn, kept until then.
    pub(super) fn rpc<'a>(
        &mut self,
        part: Part,
        seq: Seq,
        in_order: bool,
        payload: &'a [u8],
    ) -> Result<(Step, &'a [u8]), NakCode> {
        let slot = self.slot(seq);
        let kept = self.kept.as_mut().ok_or(NakCode::INVALID_REQUEST)?;
        if in_order {
            return Ok((Step::Execute(Action::Rpc(part)), payload));
        }
        kept.bits.set(seq);
        Ok((Step::Keep { slot, part }, payload))
    }

    fn slot(&self, seq: Seq) -> u32 {
        (seq % Seq::from(self.receiver.reach())) as u32
    }

    /// Is the packet there, for a kernel?
    #[inline]
    pub(super) fn is_kept(&self, seq: Seq) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.bits.ones() > 0 && kept.bits.get(seq))
    }

    /// What is due for the packet expected next, if that was kept for a kernel.
    #[inline]
    pub(super) fn kept_due(&mut self) -> Option<Step> {
        let seq = self.receiver.expected();
        if !self.is_kept(seq) {
            return None;
        }
        if self.is_stalled() {
            return Some(Step::Nothing);
        }
        self.pending = Some(Pending::Kept);
        Some(Step::Kept { slot: self.slot(seq) })
    }

    /// The kernel has what was kept for it.
    pub(super) fn handed_over(&mut self, counters: &mut Counters) {
        counters.rx_rpc_requests += u64::from(self.receiver.front() != Some(super::Ends::Nothing));
        if let Some(kept) = &mut self.kept {
            kept.bits.clear(self.receiver.expected());
        }
        self.take_step();
    }

    /// The kernel has no capacity.
    pub(super) fn stall(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.stalled = true;
        }
    }

    /// Does the order wait for a kernel?
    pub fn is_stalled(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.stalled)
    }

    /// The kernel has capacity again: what is due now.
    pub fn go_on(&mut self) -> Step {
        if let Some(kept) = &mut self.kept {
            kept.stalled = false;
        }
        self.due()
    }
}
