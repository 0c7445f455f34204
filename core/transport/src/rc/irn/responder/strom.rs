//! Packets for kernels at an IRN responder. A kernel processes its bytes in order, so packets that arrive
//! after a gap are kept. There is one buffer per bit of the bitmaps, so BDP-FC also bounds the memory for
//! kept packets.
//!
//! Kept packets were selectively acknowledged and are not retransmitted. If a kernel has no capacity for a
//! kept packet, all later packets wait for that kernel.

use super::kept::Kept;
use super::{Pending, Responder, Step};
use crate::rc::Seq;
use crate::rc::irn::Bitmap;
use crate::rc::strom::Part;
use crate::{Action, Counters};
use remora_wire::NakCode;

impl Responder {
    /// Enables StRoM, because the peer agreed on it. Returns the number of payload buffers that the caller
    /// must provide.
    pub fn enable_strom(&mut self) -> u32 {
        let size = self.receiver.reach();
        self.kept = Some(Box::new(Kept { bits: Bitmap::new(size), stalled: false }));
        size
    }

    /// Returns the step for a packet to a kernel: execute it if it is in order, otherwise keep it.
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

    /// Returns true if packet `seq` is kept for a kernel.
    #[inline]
    pub(super) fn is_kept(&self, seq: Seq) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.bits.ones() > 0 && kept.bits.get(seq))
    }

    /// Returns the step for packet `rcv_nxt` if it is kept for a kernel.
    #[inline]
    pub(super) fn kept_due(&mut self) -> Option<Step> {
        let seq = self.receiver.rcv_nxt();
        if !self.is_kept(seq) {
            return None;
        }
        if self.is_stalled() {
            return Some(Step::Nothing);
        }
        self.pending = Some(Pending::Kept);
        Some(Step::Kept { slot: self.slot(seq) })
    }

    /// Records that the kernel took the kept packet.
    pub(super) fn handed_over(&mut self, counters: &mut Counters) {
        counters.rx_rpc_requests += u64::from(self.receiver.front() != Some(super::Ends::Nothing));
        if let Some(kept) = &mut self.kept {
            kept.bits.clear(self.receiver.rcv_nxt());
        }
        self.take_step();
    }

    /// Records that the kernel has no capacity.
    pub(super) fn stall(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.stalled = true;
        }
    }

    /// Returns true if the order waits for a kernel.
    pub fn is_stalled(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.stalled)
    }

    /// Continues after the kernel has capacity, and returns the next step.
    pub fn go_on(&mut self) -> Step {
        if let Some(kept) = &mut self.kept {
            kept.stalled = false;
        }
        self.due()
    }
}
