//! READs whose bytes a kernel judges before they leave (StRoM paper, §3.5: a send kernel).

use memory::{Access, Key, Mem, Owner, Pd};
use transport::{Action, Outcome};
use transport::rc::ReplyKind;
use wire::{NakCode, Qpn};

use super::table::Kernels;
use super::{BEHIND, Check, READINGS, Strom, Verdict};
use crate::egress::Fill;
use crate::nic::{Nic, NicError, Shared};
use crate::queue_pair::QueuePair;

/// Bytes that a READ asked for, and who judges them; without a judge none of them leaves.
pub(crate) struct Checked<'a> {
    pub mem: Mem<'a>,
    pub rights: (Pd, Owner),
    pub kind: &'a ReplyKind,
    pub judge: Option<&'a mut dyn Check>,
}

impl Fill for Checked<'_> {
    fn fill(self, payload: &mut [u8]) -> bool {
        let (ReplyKind::Memory { key, va, .. }, Some(judge)) = (*self.kind, self.judge) else { return false };
        let (len, more) = (payload.len(), judge.behind().min(BEHIND));
        let (pd, owner) = self.rights;
        let span = self.mem.check_for(pd, owner, Key::new(key), va, len + more, Access::REMOTE_READ);
        let Ok(span) = span else { return false };
        let mut behind = [0; BEHIND];
        let behind = &mut behind[..more];
        for before in 0..READINGS {
            span.read(payload);
            if span.read_at(len, behind).is_err() {
                return false;
            }
            match judge.check(payload, behind, before) {
                Verdict::Leave => return true,
                Verdict::Again => {}
                Verdict::Refuse => return false,
            }
        }
        false
    }
}

impl Kernels {
    /// What judges for a queue pair; none: it is gone.
    pub(crate) fn judge(&mut self, (place, number): (u32, u32)) -> Option<&mut dyn Check> {
        let kernel = self.deployed.get_mut(place as usize)?.as_mut()?;
        let there = kernel.base.number == number && !kernel.base.leaving;
        let lane = kernel.lanes.first_mut().filter(|_| there)?;
        kernel.base.steps += 1;
        lane.checks()
    }
}

impl QueuePair {
    /// Who judges what its peer READs.
    #[inline(always)]
    pub(crate) fn judge(&self) -> Option<(u32, u32)> {
        self.strom.as_ref()?.judge
    }

    /// Takes a READ of so many bytes that is judged: they leave by one packet, or the first ones would have left when the last are judged.
    #[inline(never)]
    pub(crate) fn execute_judged(
        &mut self,
        mem: Mem<'_>,
        action: Action,
        len: u32,
        shared: &mut Shared,
    ) -> Outcome {
        if len > self.attributes.parameters.mtu {
            return Outcome::Nak(NakCode::INVALID_REQUEST);
        }
        self.execute_other(mem, action, &[], shared)
    }
}

impl Nic {
    /// From now on a kernel judges what the peer of a queue pair READs before it leaves, each READ of one packet at most; with none,
    /// nobody does. If the kernel is removed, such READs end as errors of the responder's. The peer need know nothing of it.
    ///
    /// # Errors
    /// [`NicError::Unknown`]: no such queue pair, or no such kernel in its domain. [`NicError::NotThisService`]: it is no reliable
    /// connection, or speaks PRISM; or the kernel does not judge.
    pub fn check_reads(&mut self, qp: Qpn, kernel: Option<u32>) -> Result<(), NicError> {
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        let kernels = &mut self.shared.kernels;
        let judge = match kernel {
            None => None,
            Some(number) => Some((kernels.place_of_number(qp.pd, number)?, number)),
        };
        let reliable = qp.connection.is_some() || qp.irn.is_some();
        if !reliable || qp.speaks_prism() || judge.is_some_and(|judge| kernels.judge(judge).is_none()) {
            return Err(NicError::NotThisService);
        }
        let slots = qp.send.ring().slots();
        qp.strom.get_or_insert_with(|| Box::new(Strom::new(slots, 0, 0))).judge = judge;
        Ok(())
    }
}
