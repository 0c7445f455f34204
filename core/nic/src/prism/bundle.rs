//! Bundles: the requests of an operation list are sent in one frame, and so are the responses. Operation
//! lists of short operations are one packet (`operation_list.rs`), others are several packets in one frame.
//! This module also sends single-packet PRISM requests that are not part of an operation list.
//!
//! An operation list is one round trip, whose operations belong together (PRISM paper, §3.4). With one frame
//! per packet, the frames would have different lengths, and on a port where each frame costs a system call
//! this would take most of the operation list's time. The RC state machines treat the parts as single
//! packets, so order, loss and retransmission are unchanged.
//!
//! On a network port (where frames are sealed with an ICRC), other requests between operation lists are added
//! to the bundle, because the port sends trains of frames of equal length. On shared memory, frames are
//! cheap, and only READs are delayed, until their pointers are in the cache.

use remora_memory::{Mem, Owner, Pd};
use remora_transport::Instant;
use remora_transport::rc::prism::KEPT;
use remora_transport::rc::{Followers, Kind, Message, Part, Reply, ReplyKind, Requester};
use remora_wire::frame::Egress;
use remora_wire::prism::bundle::{self, HEAD};
use remora_wire::prism::operation_list;
use remora_wire::{Extensions, Opcode, Qpn, aeth, atomic_ack, bth, packet};

use super::NextRequest;
use super::egress::{kept_bth, kept_value};
use super::operation_list::{operation_list_bth, put_operation};
use super::packet::{RequestPacket, shape};
use crate::context::WqeContext;
use crate::emit::{Sent, emit_outlined};
use crate::gather::{LocalMemory, fetch};
use crate::machine::Connection;
use crate::queue_pair::{QueuePair, View};
use crate::shared::Shared;

/// Maximum number of requests or responses in one bundle.
const MOST: usize = 16;

/// Returns the size in bytes of a bundled packet with `payload` bytes of payload.
fn len_of(opcode: Opcode, payload: usize) -> usize {
    HEAD + opcode.header_len() + payload + usize::from(packet::pad_for(payload))
}

/// Writes a packet of a bundle at the start of `out` and returns its size. `head` writes the extension
/// headers, `fill` the payload. `None` if `fill` cannot provide the payload.
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

/// Writes a request and returns its size, with its headers. `None` if its memory must not be read.
fn put_request(
    out: &mut [u8],
    part: &Part<'_, WqeContext>,
    remote: Qpn,
    local: LocalMemory<'_>,
) -> Option<usize> {
    let head = RequestPacket::of(part.message, local.ring)?;
    let fill = |bytes: &mut [u8]| head.fill(bytes, &part.message.context, local);
    let target = |headers: &mut [u8]| {
        head.target.emit(headers);
    };
    put(out, &head.bth(part, remote), head.payload, target, fill)
}

/// Writes `count` requests one after the other. Returns false if one of them cannot be written.
#[inline(always)]
fn put_all(
    requester: &Requester<WqeContext>,
    count: usize,
    out: &mut [u8],
    put: impl Fn(&mut [u8], &Part<'_, WqeContext>) -> Option<usize>,
) -> bool {
    let mut offset = 0;
    (0..count).filter_map(|ahead| requester.part(ahead)).all(|part| {
        let len = put(&mut out[offset..], &part);
        offset += len.unwrap_or(0);
        len.is_some()
    })
}

/// The size of a possible bundle, as requests are added.
struct Load {
    mtu: usize,
    /// Size in bytes as a bundle.
    bundle: usize,
    /// Size in bytes as one packet, and maximum size of the response; `None` if a response may be too long.
    list: usize,
    answers: Option<usize>,
}

impl Load {
    fn new(mtu: usize) -> Load {
        Load { mtu, bundle: 0, list: 0, answers: Some(0) }
    }

    /// Adds a message. Returns false if it does not fit.
    #[inline(always)]
    fn takes(&mut self, message: &Message<WqeContext>) -> bool {
        let (opcode, len) = shape(message);
        let mut before = 0;
        let mut answer = Some(0);
        if let Kind::Prism(extended) = &message.kind {
            before = extended.addresses(0).len();
            answer = extended.answer_len(message.len);
        }
        let bundle = self.bundle + len_of(opcode, before + len as usize);
        if bundle > self.mtu {
            return false;
        }
        self.bundle = bundle;
        self.list += operation_list::len_of(opcode, before + len as usize);
        self.answers = self.answers.zip(answer).map(|(all, one)| all + one);
        true
    }

    /// Returns true if all operations are short enough to form one packet.
    fn is_operation_list(&self) -> bool {
        self.answers.is_some_and(|len| len <= KEPT)
    }
}

/// Sends the next request, if it is one packet, together with those that can be bundled. Returns `Plain` if
/// the request is to be sent without PRISM.
#[inline(never)]
pub(crate) fn request_bundle(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    out: &mut impl Egress,
    shared: &mut Shared,
) -> NextRequest {
    let mtu = qp.parameters().mtu as usize;
    let View { id, queues, machine, offloads } = qp.view();
    let ring = queues.send.ring();
    let Some(Connection { path, requester, .. }) = machine.rc_mut() else { return NextRequest::Plain };
    let local = LocalMemory { mem, pd: id.pd, ring };
    let mut load = Load::new(mtu);
    let followers =
        requester.followers(now, MOST - 1, out.seals(path.address_path.peer), |message| load.takes(message));
    let count = match followers {
        Followers::Plain => return NextRequest::Plain,
        Followers::Wait => return NextRequest::Waits,
        Followers::Count(others) => others + 1,
    };
    let Some(first) = requester.part(0) else { return NextRequest::Plain };
    let remote = path.remote;
    let counters = shared.counters_mut();
    let sent = if count > 1 && load.is_operation_list() {
        let head = operation_list_bth(count, remote, first.psn);
        let none = Extensions::default();
        let len = load.list as u32;
        emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
            put_all(requester, count, out, |out, part| put_operation(out, part.message, local))
        })
    } else if count > 1 {
        let head = bth::Repr::new(Opcode::BUNDLE, remote, first.psn);
        let none = Extensions::default();
        let len = load.bundle as u32;
        emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
            put_all(requester, count, out, |out, part| put_request(out, part, remote, local))
        })
    } else {
        let Some(head) = RequestPacket::of(first.message, ring) else { return NextRequest::Plain };
        let ext = head.target.extensions();
        let len = head.payload as u32;
        let bth = head.bth(&first, remote);
        emit_outlined(&mut path.address_path, out, counters, &bth, &ext, len, &mut |bytes| {
            head.fill(bytes, &first.message.context, local)
        })
    };
    match sent {
        // A request whose memory must not be read fails when it is sent alone.
        Sent::Denied => return NextRequest::Plain,
        Sent::Blocked if out.has_space_per_peer() => requester.blocked(now),
        Sent::Blocked | Sent::Stopped(_) => {}
        Sent::Yes(_) => {
            requester.sent_together(now, count, counters);
            // The last request of the bundle asks for an acknowledgement.
            if let Some(congestion) = &mut offloads.congestion {
                congestion.ack_requested(now, requester.progress());
            }
        }
    }
    NextRequest::Emitted(sent)
}

/// Sends the next responses as a bundle, if there are several and short ones among them. Responses to READs
/// alone have frames of equal length and form a train instead.
#[inline]
pub(crate) fn respond_bundle(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    out: &mut impl Egress,
    shared: &mut Shared,
) -> Option<Sent> {
    let several = qp.machine().rc().is_some_and(|connection| connection.responder.has_values());
    if several { respond_together(qp, mem, out, shared) } else { None }
}

#[inline(never)]
fn respond_together(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    out: &mut impl Egress,
    shared: &mut Shared,
) -> Option<Sent> {
    let pd = qp.id().pd;
    let owner = qp.id().owner;
    let mtu = qp.parameters().mtu as usize;
    let Connection { path, responder, .. } = qp.machine_mut().rc_mut()?;
    let mixed = out.seals(path.address_path.peer);
    let mut count = 0;
    let mut total = 0;
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
    let remote = path.remote;
    let psn = responder.plan()?.psn;
    let head = bth::Repr::new(Opcode::BUNDLE, remote, psn);
    let none = Extensions::default();
    let len = total as u32;
    let counters = shared.counters_mut();
    let sent = emit_outlined(&mut path.address_path, out, counters, &head, &none, len, &mut |out| {
        let mut offset = 0;
        let mut left = count;
        responder.answers(mixed, |reply, kept| {
            let Some(len) = put_answer(&mut out[offset..], reply, kept, remote, mem, pd, owner) else {
                return false;
            };
            (offset, left) = (offset + len, left - 1);
            left > 0
        });
        left == 0
    });
    match sent {
        // A response whose memory must not be read any more fails when it is sent alone.
        Sent::Denied => return None,
        Sent::Blocked | Sent::Stopped(_) => {}
        Sent::Yes(_) => (0..count).for_each(|_| responder.answered_one()),
    }
    Some(sent)
}

fn answer_len(kind: &ReplyKind) -> usize {
    match kind {
        ReplyKind::Memory { len, .. } => len_of(Opcode::RC_RDMA_READ_RESPONSE_ONLY, *len as usize),
        ReplyKind::Wide(size) => len_of(Opcode::RC_ATOMIC_ACKNOWLEDGE, usize::from(*size) - 8),
        ReplyKind::Snapshot(len) => len_of(Opcode::RC_RDMA_READ_RESPONSE_ONLY, usize::from(*len)),
        ReplyKind::OperationList { len, .. } => len_of(Opcode::OPERATION_LIST_ANSWER, usize::from(*len)),
        _ => len_of(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
    }
}

/// Writes a response and returns its size. `None` if its memory must not be read.
fn put_answer(
    out: &mut [u8],
    reply: &Reply,
    kept: &[u8],
    remote: Qpn,
    mem: Mem<'_>,
    pd: Pd,
    owner: Owner,
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
    put(out, &bth, payload, head, |buffer| match reply.kind {
        ReplyKind::Memory { .. } => fetch(mem, pd, owner, &reply.kind, buffer),
        _ => {
            buffer.copy_from_slice(bytes);
            true
        }
    })
}
