//! Bundles: the requests of a chain leave in one frame, and so do their answers.
//!
//! A chain is one round trip whose parts mean nothing without each other (PRISM paper, §3.4). As packets of their own they
//! would cost as many frames, of as many lengths, each way; on a port where a frame is a system call that is most of the chain's time.
//! To the machines of RC they are packets like any other, so that order, loss and repetition are what they were.
//!
//! Where frames cross a wire (they are sealed), what is on its way between chains travels with them: a train is of frames of one
//! length, and chains among READs would break it at each. Over shared memory a frame is cheap, and READs alone are put off until their
//! pointers are near.

use memory::{Mem, Owner, Pd};
use transport::Instant;
use transport::rc::prism::Extended;
use transport::rc::{Chained, Message, Plan, Reply, ReplyKind};
use wire::frame::Egress;
use wire::prism::addresses::Repr as Addresses;
use wire::prism::bundle::{self, HEAD};
use wire::{Extensions, Opcode, Qpn, bth, packet};

use super::egress::{addresses, kept_headers, request_bth};
use crate::egress::{Sent, emit_other};
use crate::gather::{fetch, gather_other};
use crate::nic::Shared;
use crate::queue_pair::{Connection, Note, QueuePair};
use crate::ring::Ring;

/// Requests, or answers, that travel together at most.
const MOST: usize = 16;

/// A request of a bundle.
struct Part<'a> {
    plan: Plan,
    extended: Option<Extended>,
    note: &'a Note,
}

impl Part<'_> {
    /// Writes it, with what stands before it; the bytes that it took. None: its memory may not be read.
    fn emit(&self, out: &mut [u8], remote: Qpn, (mem, pd, ring): (Mem<'_>, Pd, &Ring)) -> Option<usize> {
        let Part { plan, extended, note } = self;
        let first = match extended {
            Some(extended) => addresses(extended, ring, note),
            None => Addresses::default(),
        };
        let payload = first.len() + plan.len as usize;
        let bth = request_bth(plan, extended.as_ref(), payload, remote);
        put(out, &bth, &plan.ext, payload, |bytes| {
            let at = first.emit(bytes);
            plan.len == 0 || gather_other(mem, pd, ring, note, plan.offset, &mut bytes[at..])
        })
    }
}

/// Bytes of a bundled packet with so many of payload.
fn len_of(opcode: Opcode, payload: usize) -> usize {
    HEAD + opcode.header_len() + payload + usize::from(packet::pad_for(payload))
}

/// Writes a packet of a bundle at the start of `out`; None if `fill` has no payload for it.
fn put(
    out: &mut [u8],
    bth: &bth::Repr,
    ext: &Extensions,
    payload: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    let len = len_of(bth.opcode, payload);
    bundle::emit_head(len - HEAD, out);
    let (packet, _) = out[HEAD..].split_at_mut_checked(len - HEAD)?;
    let at = packet::emit_headers(bth, ext, packet);
    let (bytes, pad) = packet[at..].split_at_mut(payload);
    pad.fill(0);
    fill(bytes).then_some(len)
}

/// Bytes that a request takes in a bundle.
fn request_len(message: &Message<Note>, extended: Option<&Extended>) -> usize {
    let (opcode, before, len) = match extended {
        Some(extended) => (extended.opcode(), extended.addresses(0).len(), extended.payload(message.len)),
        // Of the plain verbs only WRITEs begin one.
        None => (Opcode::RC_RDMA_WRITE_ONLY, 0, message.len),
    };
    len_of(opcode, before + len as usize)
}

impl QueuePair {
    /// The request that would leave now, and those that travel with it. None: it travels alone; `Some(None)`: it waits for the others.
    #[inline(never)]
    pub(crate) fn request_bundle(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Option<Sent>> {
        let (pd, ring, mtu) = (self.pd, self.send.ring(), self.attributes.parameters.mtu as usize);
        let Connection { path, requester, .. } = self.connection.as_mut()?;
        let mut total = 0;
        let chained = requester.chained(MOST - 1, out.seals(), |message, extended| {
            let len = request_len(message, extended);
            let fits = total + len <= mtu;
            total += if fits { len } else { 0 };
            fits
        });
        let count = match chained {
            Chained::No => return None,
            Chained::Waits => return Some(None),
            Chained::With(count) => count,
        };
        // Planned anew: to hand the plan over, plain RC would have to store its 200 bytes.
        let first = requester.plan_any(now)?;
        let mut plans = [None; MOST];
        let (remote, head) = (path.remote, bth::Repr::new(Opcode::BUNDLE, path.remote, first.0.psn));
        let mut fill = |out: &mut [u8]| {
            let mut at = 0;
            for (number, left) in plans.iter_mut().enumerate().take(count + 1) {
                let (plan, extended) = match number {
                    0 => first,
                    _ => match requester.plan_chained(number) {
                        Some((plan, extended)) => (plan, Some(extended)),
                        None => return false,
                    },
                };
                let Some(note) = requester.note(&plan) else { return false };
                let part = Part { plan, extended, note };
                let Some(len) = part.emit(&mut out[at..], remote, (mem, pd, ring)) else { return false };
                (*left, at) = (Some(plan), at + len);
            }
            true
        };
        let (none, len) = (Extensions::default(), total as u32);
        let sent = emit_other(&mut path.way, out, &mut shared.counters, &head, &none, len, &mut fill);
        match sent {
            // Whose memory it is that may not be read comes out when each travels alone.
            Sent::Denied => return None,
            Sent::NoRoom => {}
            Sent::Yes(_) => plans.iter().flatten().for_each(|plan| self.concluded(now, plan, sent, shared)),
        }
        Some(Some(sent))
    }

    /// The answers that would leave now, if there are several and short ones among them: of those that READ memory alone, the
    /// frames are alike and make a train.
    #[inline]
    pub(crate) fn respond_bundle(
        &mut self,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        let several = self.connection.as_ref().is_some_and(|connection| connection.responder.has_values());
        if several { self.respond_together(mem, out, shared) } else { None }
    }

    #[inline(never)]
    fn respond_together(&mut self, mem: Mem<'_>, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        let (rights, mtu) = ((self.pd, self.owner), self.attributes.parameters.mtu as usize);
        let mixed = out.seals();
        let Connection { path, responder, .. } = self.connection.as_mut()?;
        let (mut count, mut total) = (0, 0);
        for (reply, _) in responder.answers(mixed).take(MOST) {
            let len = answer_len(&reply.kind);
            if total + len > mtu {
                break;
            }
            (count, total) = (count + 1, total + len);
        }
        if count < 2 {
            return None;
        }
        let (remote, psn) = (path.remote, responder.plan()?.psn);
        let head = bth::Repr::new(Opcode::BUNDLE, remote, psn);
        let (none, len) = (Extensions::default(), total as u32);
        let counters = &mut shared.counters;
        let sent = emit_other(&mut path.way, out, counters, &head, &none, len, &mut |out| {
            let mut at = 0;
            responder.answers(mixed).take(count).all(|(reply, kept)| {
                let put = put_answer(&mut out[at..], &reply, &kept, remote, (mem, rights));
                at += put.unwrap_or(0);
                put.is_some()
            })
        });
        match sent {
            // Whose memory it is that may not be read (any more) comes out when each travels alone.
            Sent::Denied => return None,
            Sent::NoRoom => {}
            Sent::Yes(_) => (0..count).for_each(|_| responder.answered_one()),
        }
        Some(sent)
    }
}

fn answer_len(kind: &ReplyKind) -> usize {
    match kind {
        ReplyKind::Memory { len, .. } => len_of(Opcode::RC_RDMA_READ_RESPONSE_ONLY, *len as usize),
        ReplyKind::Wide(size) => len_of(Opcode::RC_ATOMIC_ACKNOWLEDGE, usize::from(*size) - 8),
        ReplyKind::Snapshot(len) => len_of(Opcode::RC_RDMA_READ_RESPONSE_ONLY, usize::from(*len)),
        _ => len_of(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
    }
}

/// Writes an answer; the bytes that it took. None: it may not be read.
fn put_answer(
    out: &mut [u8],
    reply: &Reply,
    kept: &[u8; 32],
    remote: Qpn,
    (mem, rights): (Mem<'_>, (Pd, Owner)),
) -> Option<usize> {
    let (ext, bytes) = kept_headers(reply, kept);
    let payload = if let ReplyKind::Memory { len, .. } = reply.kind { len as usize } else { bytes.len() };
    let plain = bth::Repr::new(reply.opcode, remote, reply.psn);
    let bth = bth::Repr { pad: packet::pad_for(payload), ..plain };
    put(out, &bth, &ext, payload, |room| match reply.kind {
        ReplyKind::Memory { .. } => fetch(mem, rights, &reply.kind, room),
        _ => {
            room.copy_from_slice(bytes);
            true
        }
    })
}
