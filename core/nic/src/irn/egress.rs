//! Egress over IRN: acknowledgements of responses, then what the responder has, then requests.

use remora_memory::Mem;
use remora_transport::rc::irn::{Plan, Reply, Requester};
use remora_transport::rc::{self, ReplyKind};
use remora_transport::state::State;
use remora_transport::{Counters, Instant, Status};
use remora_wire::frame::Egress;
use remora_wire::irn::{Additions, sack};
use remora_wire::{Extensions, NakCode, Opcode, Qpn, Syndrome, aeth, atomic_ack, bth, packet};

use super::Irn;
use crate::egress::{Fill, Gathered, Sent, emit, fatal_event};
use crate::gather;
use crate::kernel::{Judged, Kernels};
use crate::nic::Shared;
use crate::prism;
use crate::queue_pair::{QueuePair, WqeContext};
use crate::reliable;

impl QueuePair {
    /// Could a queue pair that is not plain RC have something to send?
    #[inline(never)]
    pub fn wants_turn_outlined(&self) -> bool {
        let Some(irn) = &self.irn else {
            let begins = self.state == State::Rts && self.send.has_work();
            if self.loopback {
                return begins && !self.waiting;
            }
            return self.unreliable.is_some() && (self.is_sending() || begins);
        };
        irn.responder.has_reply()
            || self.state == State::Rts && self.send.has_work()
            || irn.requester.has_unsent()
    }

    /// The next response packet, or (N)ACK of one, over IRN.
    #[inline]
    pub fn respond_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_receive() {
            return None;
        }
        if self.cnp_due {
            return self.notify_peer(out, shared);
        }
        let irn = self.irn.as_ref()?;
        if !irn.requester.owes_ack() && !irn.responder.has_reply() {
            return None;
        }
        self.reply_irn(now, mem, out, shared)
    }

    #[inline(never)]
    fn reply_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        let held = self.is_held(now) || self.waits_for_bytes(now);
        let rights = (self.pd, self.owner);
        let irn = self.irn.as_mut()?;
        if let Some(sent) = acknowledge(irn, out, shared) {
            return Some(sent);
        }
        let mut reply = irn.responder.plan().filter(|reply| !held || !reply.kind.has_data())?;
        let judged = self.judge_reply(now, mem, &reply.kind, shared);
        if judged == Judged::Unfit {
            return None;
        }
        let fetch = |kind: &ReplyKind, bytes: &mut [u8], kernels: &Kernels| match judged {
            Judged::Fit => {
                bytes.copy_from_slice(&kernels.judged()[..bytes.len()]);
                true
            }
            _ => gather::fetch(mem, rights, kind, bytes),
        };
        let irn = self.irn.as_mut()?;
        let (mut sent, mut code) = (Sent::Denied, NakCode::REMOTE_OPERATIONAL_ERROR);
        if judged != Judged::Refused {
            (sent, code) = (answer(irn, out, shared, &reply, fetch), NakCode::REMOTE_ACCESS_ERROR);
        }
        if sent == Sent::Denied {
            // The region went away under a READ that was allowed when it came, or a kernel does not let its bytes leave.
            let instead = irn.responder.deny(&reply, code, &mut shared.counters);
            let Some(instead) = instead else { return Some(sent) };
            reply = instead;
            sent = answer(irn, out, shared, &reply, |_, _, _| false);
        }
        if sent == Sent::NoRoom && out.has_rooms() {
            irn.responder.blocked(now);
        }
        if matches!(sent, Sent::Yes(_)) && irn.responder.sent(now, &reply, &mut shared.counters) {
            let access =
                reply.aeth.map(|(syndrome, _)| syndrome) == Some(Syndrome::nak(NakCode::REMOTE_ACCESS_ERROR));
            self.fail(fatal_event(self.number, access), shared);
        }
        Some(sent)
    }

    /// The next request packet over IRN.
    #[inline]
    pub fn request_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_send() || self.is_held(now) {
            return None;
        }
        let plan = loop {
            self.submit::<reliable::Irn>(mem, shared);
            if let Some(plan) = self.irn.as_mut()?.requester.plan(now) {
                break plan;
            }
            if self.prism.is_some()
                && let Some(sent) = self.request_prism_irn(now, mem, out, shared)
            {
                return Some(sent);
            }
            // Local work and failures may have come to the front without any packet; then there may be more to submit.
            if !self.retire::<reliable::Irn>(shared) || !self.send.has_work() {
                return None;
            }
        };
        let (pd, send) = (self.pd, &self.send);
        let Irn { path, requester, .. } = &mut **self.irn.as_mut()?;
        let context = requester.context(&plan)?;
        let bth = request_bth(&plan, path.remote);
        let added = plan.additions.len();
        let answer = shared.kernels.answer(context);
        let gathered = Gathered { mem, pd, ring: send.ring(), context, offset: plan.offset, answer };
        let sent = emit(
            &mut path.address_path,
            out,
            &mut shared.counters,
            &bth,
            &plan.ext,
            plan.len + added as u32,
            |bytes| {
                let (head, payload) = bytes.split_at_mut(added);
                plan.additions.emit(head);
                payload.is_empty() || gathered.fill(payload)
            },
        );
        self.concluded_irn(now, &plan, sent, Requester::sent, (out, shared))
    }

    /// The next packet of an operation of PRISM.
    #[cold]
    #[inline(never)]
    fn request_prism_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        let (pd, ring) = (self.pd, self.send.ring());
        let Irn { path, requester, .. } = &mut **self.irn.as_mut()?;
        let (plan, extended) = requester.plan_prism(now)?;
        let context = requester.context(&plan)?;
        let head = (request_bth(&plan, path.remote), &plan.ext);
        let (what, place) = ((&extended, context), (plan.offset, plan.len));
        let sent = prism::emit_request(path, out, &mut shared.counters, head, what, place, (mem, pd, ring));
        self.concluded_irn(now, &plan, sent, Requester::sent_prism, (out, shared))
    }

    /// What follows from what became of a request; `left` tells the requester that it has gone out.
    #[inline(always)]
    fn concluded_irn(
        &mut self,
        now: Instant,
        plan: &Plan,
        sent: Sent,
        left: impl FnOnce(&mut Requester<WqeContext>, Instant, &Plan, &mut Counters),
        (out, shared): (&impl Egress, &mut Shared),
    ) -> Option<Sent> {
        let requester = &mut self.irn.as_mut()?.requester;
        match sent {
            Sent::Yes(_) => {
                left(requester, now, plan, &mut shared.counters);
                if let Some(congestion) = &mut self.congestion {
                    congestion.asked(now, requester.progress());
                }
            }
            Sent::Denied => {
                requester.refuse(plan, Status::LocalProtection);
                self.retire::<reliable::Irn>(shared);
            }
            Sent::NoRoom if out.has_rooms() => requester.blocked(now),
            Sent::NoRoom => {}
        }
        Some(sent)
    }
}

/// The (N)ACK of responses that the requester owes.
fn acknowledge(irn: &mut Irn, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
    let (owed_ack, psn) = irn.requester.owed_ack()?;
    let syndrome = match owed_ack.sack {
        None => Syndrome::ack(aeth::NO_CREDITS),
        Some(_) => Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
    };
    let additions = Additions { sack: psn.sack.map(|psn| sack::Repr { psn }), ..Additions::default() };
    let ext = Extensions { aeth: Some(aeth::Repr { syndrome, msn: 0 }), ..Extensions::default() };
    let bth = bth::Repr::new(Opcode::IRN_READ_ACKNOWLEDGE, irn.path.remote, psn.cumulative);
    let sent = emit(
        &mut irn.path.address_path,
        out,
        &mut shared.counters,
        &bth,
        &ext,
        additions.len() as u32,
        |bytes| {
            additions.emit(bytes);
            true
        },
    );
    if matches!(sent, Sent::Yes(_)) {
        irn.requester.owed_ack_sent(&owed_ack);
    }
    Some(sent)
}

/// A packet of the responder's.
fn answer(
    irn: &mut Irn,
    out: &mut impl Egress,
    shared: &mut Shared,
    reply: &Reply,
    fetch: impl FnOnce(&ReplyKind, &mut [u8], &Kernels) -> bool,
) -> Sent {
    if reply.kind.is_kept() {
        let Reply { opcode, psn, aeth, kind, .. } = *reply;
        let plain = rc::Reply { opcode, psn, aeth, kind };
        let kept = irn.responder.kept(reply);
        return prism::emit_kept(&mut irn.path, out, &mut shared.counters, &plain, &kept);
    }
    let mut ext = Extensions {
        aeth: reply.aeth.map(|(syndrome, msn)| aeth::Repr { syndrome, msn }),
        ..Extensions::default()
    };
    let added = reply.additions.len();
    let len = match reply.kind {
        ReplyKind::Memory { len, .. } => len,
        ReplyKind::Value(original) => {
            ext.atomic_ack = Some(atomic_ack::Repr { original });
            0
        }
        _ => added as u32,
    };
    let bth = bth::Repr {
        pad: packet::pad_for(len as usize),
        ..bth::Repr::new(reply.opcode, irn.path.remote, reply.psn)
    };
    let Shared { counters, kernels, .. } = shared;
    emit(&mut irn.path.address_path, out, counters, &bth, &ext, len, |bytes| {
        if added > 0 {
            reply.additions.emit(bytes);
            return true;
        }
        fetch(&reply.kind, bytes, kernels)
    })
}

fn request_bth(plan: &Plan, remote: Qpn) -> bth::Repr {
    bth::Repr {
        solicited: plan.solicited,
        ack_req: plan.ack_req,
        pad: packet::pad_for(plan.len as usize),
        ..bth::Repr::new(plan.opcode, remote, plan.psn)
    }
}
