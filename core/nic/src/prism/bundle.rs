//! Bundles: the requests of a chain leave in one frame, and so do their answers: as one packet if all are short (`chained.rs`), else as packets in one frame. Of
//! PRISM's requests one that travels alone leaves from here, too, if it is one packet.
//!
//! A chain is one round trip whose parts mean nothing without each other (PRISM paper, §3.4). As packets of their own they
//! would cost as many frames, of as many lengths, each way; on a port where a frame is a system call that is most of the chain's time.
//! To the machines of RC they are packets like any other, so that order, loss and repetition are what they were.
//!
//! Where frames cross a wire (they are sealed), what is on its way between chains travels with them: a train is of frames of one
//! length, and chains among READs would break it at each. Over shared memory a frame is cheap, and READs alone are put off until their
//! pointers are near.

use remora_memory::{Mem, Owner, Pd};
use remora_transport::Instant;
use remora_transport::rc::prism::{Extended, KEPT, Verb};
use remora_transport::rc::{Chained, Kind, Message, Part, Reply, ReplyKind, Requester};
use remora_wire::frame::Egress;
use remora_wire::prism::Flags;
use remora_wire::prism::addresses::Repr as Addresses;
use remora_wire::prism::bundle::{self, HEAD};
use remora_wire::prism::chain::{self, Target};
use remora_wire::{Extensions, Opcode, Qpn, aeth, atomic_ack, atomic_eth, bth, packet, reth};

use super::chained::{chain_bth, put_operation};
use super::egress::{addresses, kept_bth, kept_value};
use crate::egress::{Sent, emit_outlined};
use crate::gather::{fetch, gather_outlined};
use crate::nic::Shared;
use crate::queue_pair::{Connection, QueuePair, WqeContext};
use crate::ring::Ring;

/// Requests, or answers, that travel together at most.
const MOST: usize = 16;

/// Bytes of a bundled packet with so many of payload.
fn len_of(opcode: Opcode, payload: usize) -> usize {
    HEAD + opcode.header_len() + payload + usize::from(packet::pad_for(payload))
}

/// Writes a packet of a bundle at the start of `out`: `head` its extension headers, `fill` its payload; the bytes that it took. None
/// if `fill` has no payload for it.
#[inline(always)]
fn put(
    out: &mut [u8],
    bth: &bth::Repr,
    payload: usize,
    head: impl FnOnce(&mut [u8]),
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    let headers = bth.opcode.header_len();
    let len = headers + payload + usize::from(bth.pad);
    let packet = out.get_mut(..HEAD + len)?;
    bundle::emit_head(len, packet);
    let (headers, rest) = packet[HEAD..].split_at_mut(headers);
    bth.emit(headers);
    head(&mut headers[bth::LEN..]);
    let (bytes, pad) = rest.split_at_mut(payload);
    if !pad.is_empty() {
        pad.fill(0);
    }
    fill(bytes).then_some(HEAD + len)
}

/// What follows the BTH of an operation.
fn target_of(extended: &Extended, dma_len: u32) -> Target {
    let (va, rkey) = (extended.va, extended.rkey());
    match extended.verb() {
        Verb::Read | Verb::Write => Target::Range(reth::Repr { va, rkey, dma_len }),
        Verb::CompareSwap | Verb::FetchAdd => {
            let Extended { operand, compare, .. } = *extended;
            Target::Atomic(atomic_eth::Repr { va, rkey, swap_add: operand, compare })
        }
    }
}

/// Op-code of a request that travels with others, and how many bytes its packet has behind its addresses.
fn shape(message: &Message<WqeContext>) -> (Opcode, u32) {
    match &message.kind {
        Kind::Prism(extended) => (extended.opcode(), extended.payload(message.len)),
        // Of the plain verbs only WRITEs begin a bundle.
        _ => (Opcode::RC_RDMA_WRITE_ONLY, message.len),
    }
}

/// The packet of a request, but for its bytes.
pub(super) struct Head {
    pub opcode: Opcode,
    pub flags: Flags,
    pub target: Target,
    addresses: Addresses,
    pub payload: usize,
}

impl Head {
    /// None: it is none that leaves by this way.
    #[inline(always)]
    pub fn of(message: &Message<WqeContext>, ring: &Ring) -> Option<Head> {
        let Message { kind, context, len: dma_len, .. } = message;
        let (opcode, len) = shape(message);
        let (flags, target, addresses) = match *kind {
            Kind::Prism(ref extended) => {
                (extended.flags(), target_of(extended, *dma_len), addresses(extended, ring, context))
            }
            Kind::Write { va, rkey } => {
                let range = Target::Range(reth::Repr { va, rkey, dma_len: len });
                (Flags::NONE, range, Addresses::default())
            }
            _ => return None,
        };
        let payload = addresses.len() + len as usize;
        Some(Head { opcode, flags, target, addresses, payload })
    }

    /// Its BTH.
    #[inline(always)]
    fn bth(&self, part: &Part<'_, WqeContext>, remote: Qpn) -> bth::Repr {
        let plain = bth::Repr::new(self.opcode, remote, part.psn);
        let (solicited, ack_req) = (part.message.solicited, part.ack_req);
        bth::Repr {
            solicited,
            ack_req,
            resv7: self.flags.bits(),
            pad: packet::pad_for(self.payload),
            ..plain
        }
    }

    /// Writes what follows its headers. False: it may not be read.
    #[inline(always)]
    pub fn fill(
        &self,
        bytes: &mut [u8],
        context: &WqeContext,
        (mem, pd, ring): (Mem<'_>, Pd, &Ring),
    ) -> bool {
        let at = self.addresses.emit(bytes);
        let rest = &mut bytes[at..];
        rest.is_empty() || gather_outlined(mem, pd, ring, context, 0, rest)
    }
}

/// Writes a request, with what stands before it; the bytes that it took. None: its memory may not be read.
fn put_request(
    out: &mut [u8],
    part: &Part<'_, WqeContext>,
    remote: Qpn,
    place: (Mem<'_>, Pd, &Ring),
) -> Option<usize> {
    let head = Head::of(part.message, place.2)?;
    let fill = |bytes: &mut [u8]| head.fill(bytes, &part.message.context, place);
    let target = |headers: &mut [u8]| {
        head.target.emit(headers);
    };
    put(out, &head.bth(part, remote), head.payload, target, fill)
}

/// Writes `count` requests that travel together, one behind the other. False: one of them cannot be written.
#[inline(always)]
fn put_all(
    requester: &Requester<WqeContext>,
    count: usize,
    out: &mut [u8],
    put: impl Fn(&mut [u8], &Part<'_, WqeContext>) -> Option<usize>,
) -> bool {
    let mut at = 0;
    (0..count).filter_map(|ahead| requester.part(ahead)).all(|part| {
        let len = put(&mut out[at..], &part);
        at += len.unwrap_or(0);
        len.is_some()
    })
}

/// What could travel together, as it is counted up.
struct Load {
    mtu: usize,
    /// Bytes as a bundle.
    bundle: usize,
    /// Bytes as one packet, and those of its answers at most; None: an answer can be too long for that.
    chain: usize,
    answers: Option<usize>,
}

impl Load {
    fn new(mtu: usize) -> Load {
        Load { mtu, bundle: 0, chain: 0, answers: Some(0) }
    }

    /// Is there room for another one? Then it is in.
    #[inline(always)]
    fn takes(&mut self, message: &Message<WqeContext>) -> bool {
        let (opcode, len) = shape(message);
        let (mut before, mut answer) = (0, Some(0));
        if let Kind::Prism(extended) = &message.kind {
            before = extended.addresses(0).len();
            answer = extended.answer_len(message.len);
        }
        let bundle = self.bundle + len_of(opcode, before + len as usize);
        if bundle > self.mtu {
            return false;
        }
        self.bundle = bundle;
        self.chain += chain::len_of(opcode, before + len as usize);
        self.answers = self.answers.zip(answer).map(|(all, one)| all + one);
        true
    }

    /// Are all short enough to be one packet?
    fn is_chain(&self) -> bool {
        self.answers.is_some_and(|len| len <= KEPT)
    }
}

impl QueuePair {
    /// The request that would leave now, if it is one packet, and those that travel with it. None: it leaves by its plan; `Some(None)`: it
    /// waits for the others.
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
        let mut load = Load::new(mtu);
        let chained = requester.chained(now, (MOST - 1, out.seals()), |message| load.takes(message));
        let count = match chained {
            Chained::No => return None,
            Chained::Waits => return Some(None),
            Chained::With(others) => others + 1,
        };
        let (remote, first, counters) = (path.remote, requester.part(0)?, &mut shared.counters);
        let sent = if count > 1 && load.is_chain() {
            let head = chain_bth(count, remote, first.psn);
            let (none, len) = (Extensions::default(), load.chain as u32);
            emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
                put_all(requester, count, out, |out, part| put_operation(out, part.message, (mem, pd, ring)))
            })
        } else if count > 1 {
            let head = bth::Repr::new(Opcode::BUNDLE, remote, first.psn);
            let (none, len) = (Extensions::default(), load.bundle as u32);
            emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
                put_all(requester, count, out, |out, part| put_request(out, part, remote, (mem, pd, ring)))
            })
        } else {
            let head = Head::of(first.message, ring)?;
            let (ext, len) = (head.target.extensions(), head.payload as u32);
            let bth = head.bth(&first, remote);
            emit_outlined(&mut path.address_path, out, counters, &bth, &ext, len, &mut |bytes| {
                head.fill(bytes, &first.message.context, (mem, pd, ring))
            })
        };
        match sent {
            // Whose memory it is that may not be read comes out when each travels alone.
            Sent::Denied => return None,
            Sent::NoRoom if out.has_rooms() => requester.blocked(now),
            Sent::NoRoom => {}
            Sent::Yes(_) => {
                requester.sent_together(now, count, counters);
                // The last of them asks for an answer.
                if let Some(congestion) = &mut self.congestion {
                    congestion.asked(now, requester.progress());
                }
            }
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
        responder.answers(mixed, |reply, _| {
            let len = answer_len(&reply.kind);
            let fits = total + len <= mtu && count < MOST;
            if fits {
                (count, total) = (count + 1, total + len);
            }
            fits
        });
        if count < 2 {
            return None;
        }
        let (remote, psn) = (path.remote, responder.plan()?.psn);
        let head = bth::Repr::new(Opcode::BUNDLE, remote, psn);
        let (none, len) = (Extensions::default(), total as u32);
        let counters = &mut shared.counters;
        let sent = emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
            let (mut at, mut left) = (0, count);
            responder.answers(mixed, |reply, kept| {
                let Some(len) = put_answer(&mut out[at..], reply, kept, remote, (mem, rights)) else {
                    return false;
                };
                (at, left) = (at + len, left - 1);
                left > 0
            });
            left == 0
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
        ReplyKind::Chain(len, _) => len_of(Opcode::CHAIN_ANSWER, usize::from(*len)),
        _ => len_of(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
    }
}

/// Writes an answer; the bytes that it took. None: it may not be read.
fn put_answer(
    out: &mut [u8],
    reply: &Reply,
    kept: &[u8],
    remote: Qpn,
    (mem, rights): (Mem<'_>, (Pd, Owner)),
) -> Option<usize> {
    let (original, bytes) = kept_value(&reply.kind, kept);
    let payload = if let ReplyKind::Memory { len, .. } = reply.kind { len as usize } else { bytes.len() };
    let bth = kept_bth(reply, remote, payload);
    let head = |headers: &mut [u8]| {
        if let Some((syndrome, msn)) = reply.aeth {
            aeth::Repr { syndrome, msn }.emit(headers);
        }
        if let Some(original) = original {
            atomic_ack::Repr { original }.emit(&mut headers[aeth::LEN..]);
        }
    };
    put(out, &bth, payload, head, |room| match reply.kind {
        ReplyKind::Memory { .. } => fetch(mem, rights, &reply.kind, room),
        _ => {
            room.copy_from_slice(bytes);
            true
        }
    })
}
