//! Egress of IRN: sends acknowledgements of responses, then responses, then requests. The function
//! `respond_irn` is separate from go-back-N's `respond`, because IRN has a replacement for a denied response
//! and has neither bundles nor delayed ACKs.

use remora_memory::Mem;
use remora_transport::rc::irn::{Plan, Reply};
use remora_transport::rc::{self, ReplyKind};
use remora_transport::{Counters, Instant};
use remora_wire::frame::Egress;
use remora_wire::irn::{Additions, sack};
use remora_wire::{Extensions, NakCode, Opcode, Syndrome, aeth, atomic_ack, bth, packet};

use crate::emit::{Fill, Gathered, Sent, emit_from};
use crate::extras::Extras;
use crate::gather;
use crate::irn::Irn;
use crate::kernel::{CheckResult, Kernels, check_reply, waits_for_bytes};
use crate::path::PeerPath;
use crate::prism;
use crate::queue_pair::QueuePair;
use crate::queue_pair::egress::{EmitRequest, fatal_event};
use crate::reliable::{self, PlannedRequest};
use crate::shared::{Shared, SharedView};

impl QueuePair {
    /// Sends the next response packet, or the (N)ACK of a response.
    #[inline]
    pub(crate) fn respond_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_receive() {
            return None;
        }
        if let Some(sent) = self.notify_if_due(out, shared) {
            return Some(sent);
        }
        let irn = self.machine.irn()?;
        if !irn.requester.has_pending_ack() && !irn.responder.has_reply() {
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
        let held = self.is_held(now) || waits_for_bytes(self, now);
        let pd = self.id.pd;
        let owner = self.id.owner;
        let irn = self.machine.irn_mut()?;
        let sent = acknowledge(irn, out, shared);
        if let Some(sent) = self.unless_stopped(out, sent) {
            return Some(sent);
        }
        let irn = self.machine.irn_mut()?;
        let mut reply = irn.responder.plan().filter(|reply| !held || !reply.kind.has_data())?;
        let checked = check_reply(self, now, mem, &reply.kind, shared);
        if checked == CheckResult::Failed {
            return None;
        }
        let fetch = |kind: &ReplyKind, bytes: &mut [u8], kernels: &Kernels| match checked {
            CheckResult::Passed => {
                bytes.copy_from_slice(&kernels.checked_bytes()[..bytes.len()]);
                true
            }
            _ => gather::fetch(mem, pd, owner, kind, bytes),
        };
        let irn = self.machine.irn_mut()?;
        let mut sent = Sent::Denied;
        let mut code = NakCode::REMOTE_OPERATIONAL_ERROR;
        if checked != CheckResult::Refused {
            (sent, code) = (answer(irn, out, shared, &reply, fetch), NakCode::REMOTE_ACCESS_ERROR);
        }
        if sent == Sent::Denied {
            // The memory region was deregistered after the READ request was accepted, or a kernel refuses to
            // send its data.
            let instead = irn.responder.deny(&reply, code, shared.counters_mut());
            let Some(instead) = instead else { return Some(sent) };
            reply = instead;
            sent = answer(irn, out, shared, &reply, |_, _, _| false);
        }
        if sent == Sent::Blocked && out.has_space_per_peer() {
            irn.responder.blocked(now);
        }
        if matches!(sent, Sent::Yes(_)) && irn.responder.sent(now, &reply, shared.counters_mut()) {
            self.fail(fatal_event(self.id.number, &reply.aeth), shared);
        }
        self.unless_stopped(out, Some(sent))
    }
}

impl EmitRequest for reliable::Irn {
    const OPERATION_LISTS: bool = false;

    #[inline(always)]
    fn is_idle(_: &QueuePair) -> bool {
        false
    }

    #[inline(always)]
    fn delay_ack<X: Extras>(_: &QueuePair, _: &mut Plan) {}

    #[inline(always)]
    fn emit_request<X: Extras>(
        path: &mut PeerPath,
        out: &mut impl Egress,
        counters: &mut Counters,
        plan: &Plan,
        gathered: Gathered<'_>,
    ) -> Sent {
        let bth = plan.bth(path.remote);
        let added = plan.additions.len();
        let len = plan.len + added as u32;
        let class = path.address_path.class;
        let payload = AfterAdditions { additions: plan.additions, gathered };
        emit_from(&mut path.address_path, class, out, counters, &bth, &plan.ext, len, payload)
    }
}

/// The additional headers of IRN, and the data of a message behind them.
struct AfterAdditions<'a> {
    additions: Additions,
    gathered: Gathered<'a>,
}

impl Fill for AfterAdditions<'_> {
    #[inline(always)]
    fn fill(self, bytes: &mut [u8]) -> bool {
        let (head, payload) = bytes.split_at_mut(self.additions.len());
        self.additions.emit(head);
        payload.is_empty() || self.gathered.fill(payload)
    }
}

/// Sends the (N)ACK of responses that the requester owes.
fn acknowledge(irn: &mut Irn, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
    let (pending_ack, psn) = irn.requester.pending_ack()?;
    let syndrome = match pending_ack.sack {
        None => Syndrome::ack(aeth::NO_CREDITS),
        Some(_) => Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
    };
    let additions = Additions { sack: psn.sack.map(|psn| sack::Repr { psn }), ..Additions::default() };
    let ext = Extensions { aeth: Some(aeth::Repr { syndrome, msn: 0 }), ..Extensions::default() };
    let bth = bth::Repr::new(Opcode::IRN_READ_ACKNOWLEDGE, irn.path.remote, psn.cumulative);
    let sent = emit_from(
        &mut irn.path.address_path,
        irn.path.ack_class,
        out,
        shared.counters_mut(),
        &bth,
        &ext,
        additions.len() as u32,
        |bytes: &mut [u8]| {
            additions.emit(bytes);
            true
        },
    );
    if matches!(sent, Sent::Yes(_)) {
        irn.requester.pending_ack_sent(&pending_ack);
    }
    Some(sent)
}

/// Sends a packet of the responder.
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
        return prism::emit_kept(&mut irn.path, out, shared.counters_mut(), &plain, &kept);
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
    let SharedView { counters, kernels, .. } = shared.view();
    let class = irn.path.reply_class(&reply.kind);
    emit_from(&mut irn.path.address_path, class, out, counters, &bth, &ext, len, |bytes: &mut [u8]| {
        if added > 0 {
            reply.additions.emit(bytes);
            return true;
        }
        fetch(&reply.kind, bytes, kernels)
    })
}
