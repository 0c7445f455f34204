//! READs whose bytes a kernel judges before they leave (StRoM paper, §3.5: a send kernel).

use remora_memory::{Access, Key, Mem, Owner, Pd};
use remora_transport::rc::ReplyKind;
use remora_transport::state::Service;
use remora_transport::{Action, Instant, Outcome};
use remora_wire::{NakCode, Qpn};

use super::table::Kernels;
use super::{AGAIN_NS, BEHIND, Check, READINGS, Strom, UNFIT_NS, Verdict};

use crate::nic::{Nic, NicError, Shared};
use crate::queue_pair::QueuePair;

/// What became of bytes that a READ asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Nobody judges them.
    Unasked,
    /// They leave, from the [room](Kernels::judged) where they were judged. They are judged before a frame is lent: what is stored to a frame
    /// and then waited with takes its lines from a peer that polls.
    Fit,
    /// Later, perhaps.
    Unfit,
    /// They do not.
    Refused,
}

/// Since when bytes of a READ are not fit to leave, and when they are looked at again.
#[derive(Copy, Clone, Debug)]
pub(super) struct Unfit {
    since: Instant,
    again: Option<Instant>,
}

impl Unfit {
    /// When the bytes are looked at again.
    pub fn deadline(&self) -> Instant {
        self.again.unwrap_or(Instant::NEVER)
    }

    /// Time has come to `now`.
    pub fn expire(&mut self, now: Instant) {
        self.again = self.again.filter(|again| *again > now);
    }
}

impl Kernels {
    /// What judges for a queue pair, where, and how many steps its kernel has made; none: it is gone.
    fn judge_of(&mut self, (place, number): (u32, u32)) -> Option<(&mut dyn Check, &mut [u8], &mut u64)> {
        let kernel = self.deployed.get_mut(place as usize)?.as_mut()?;
        let there = kernel.base.number == number && !kernel.base.leaving;
        let lane = kernel.lanes.first_mut().filter(|_| there)?;
        Some((lane.checks()?, &mut self.room, &mut kernel.base.steps))
    }

    /// Bytes of memory that a READ asked for are judged.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        judge: (u32, u32),
        mem: Mem<'_>,
        (pd, owner): (Pd, Owner),
        (key, va, len): (u32, u64, u32),
    ) -> Judged {
        let Some((check, room, steps)) = self.judge_of(judge) else { return Judged::Refused };
        *steps += 1;
        let len = len as usize;
        let Some(room) = room.get_mut(..len + check.behind().min(BEHIND)) else { return Judged::Refused };
        let span = mem.check_for(pd, owner, Key::new(key), va, room.len(), Access::REMOTE_READ);
        let Ok(span) = span else { return Judged::Refused };
        for before in 0..READINGS {
            span.read(room);
            let (bytes, behind) = room.split_at(len);
            match check.check(bytes, behind, before) {
                Verdict::Leave => return Judged::Fit,
                Verdict::Again => {}
                Verdict::Refuse => return Judged::Refused,
            }
        }
        Judged::Unfit
    }

    /// Bytes that are fit to leave, until others are judged.
    #[inline]
    pub(crate) fn judged(&self) -> &[u8] {
        &self.room
    }
}

impl QueuePair {
    /// Who judges what its peer READs.
    #[inline(always)]
    pub(crate) fn judge(&self) -> Option<(u32, u32)> {
        self.strom.as_ref()?.judge
    }

    /// Do bytes of a READ wait until they are looked at again?
    #[inline(always)]
    pub(crate) fn waits_for_bytes(&self, now: Instant) -> bool {
        let unfit = self.strom.as_ref().and_then(|strom| strom.unfit);
        unfit.and_then(|unfit| unfit.again).is_some_and(|again| again > now)
    }

    /// Judges the bytes of the response that is about to leave, if that is to be done. Unfit ones are looked at again.
    #[inline]
    pub(crate) fn judge_reply(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        reply: &ReplyKind,
        shared: &mut Shared,
    ) -> Judged {
        let ReplyKind::Memory { key, va, len: len @ 1.. } = *reply else { return Judged::Unasked };
        let rights = (self.pd, self.owner);
        let Some(strom) = &mut self.strom else { return Judged::Unasked };
        let Some(judge) = strom.judge else { return Judged::Unasked };
        let judged = shared.kernels.judge(judge, mem, rights, (key, va, len));
        let since = strom.unfit.map_or(now, |unfit| unfit.since);
        let waits = judged == Judged::Unfit && now < since.after(UNFIT_NS);
        strom.unfit = waits.then(|| Unfit { since, again: Some(now.after(AGAIN_NS)) });
        if judged == Judged::Unfit && !waits { Judged::Refused } else { judged }
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
        self.execute_outlined(mem, action, &[], shared)
    }
}

impl Nic {
    /// From now on a kernel judges what the peer of a queue pair READs before it leaves, each READ of one packet at most; with none,
    /// nobody does. If the kernel is removed, such READs end as errors of the responder's. The peer need know nothing of it.
    ///
    /// # Errors
    /// [`NicError::Unknown`]: no such queue pair, or no such kernel in its domain. [`NicError::NotThisService`]: it is not of RC, or speaks
    /// PRISM; or the kernel does not judge.
    pub fn check_reads(&mut self, qp: Qpn, kernel: Option<u32>) -> Result<(), NicError> {
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        let kernels = &mut self.shared.kernels;
        let judge = match kernel {
            None => None,
            Some(number) => Some((kernels.place_of_number(qp.pd, number)?, number)),
        };
        let reliable = qp.service == Service::Rc && (qp.connection.is_some() || qp.irn.is_some());
        if !reliable || qp.has_prism() || judge.is_some_and(|judge| kernels.judge_of(judge).is_none()) {
            return Err(NicError::NotThisService);
        }
        let slots = qp.send.ring().slots();
        let strom = qp.strom.get_or_insert_with(|| Box::new(Strom::new(slots, 0, 0)));
        // Another judge gives what was not fit all its time again.
        (strom.judge, strom.unfit) = (judge, None);
        Ok(())
    }
}
