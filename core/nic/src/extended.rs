//! Extended reliable connections (XRC): the machines of RC, between an initiator that only sends and a target
//! that only serves. Each request names a shared receive queue of the target's domain: where messages go, and
//! in whose protection domain memory is accessed (IBTA vol. 1 annex A14).

use remora_memory::{Key, Mem, Owner};
use remora_transport::Counters;
use remora_transport::rc::{Plan, Reply, ReplyKind};
use remora_wire::frame::Egress;
use remora_wire::{Extensions, Opcode, Qpn, bth, packet, xrceth};

use crate::context::WqeContext;
use crate::emit::{Fill, Gathered, Sent, emit_from, emit_outlined, response_bth, response_headers};
use crate::gather;
use crate::path::PeerPath;
use crate::reliable::PlannedRequest;
use crate::service_bits::{OPERATION, XRC};

/// The packet with the op-code of RC.
pub(crate) fn as_rc<'a>(packet: &packet::View<'a>) -> packet::View<'a> {
    let mut plain = *packet;
    plain.bth = packet.bth.with_opcode(Opcode(packet.bth.opcode().0 & OPERATION));
    plain
}

/// The BTH with the op-code of XRC.
fn as_xrc(bth: bth::Repr) -> bth::Repr {
    bth::Repr { opcode: Opcode(bth.opcode.0 | XRC), ..bth }
}

/// The header that names the shared receive queue.
fn srq(context: &WqeContext) -> xrceth::Repr {
    xrceth::Repr { srq: Qpn::new(context.srq & 0x00ff_ffff) }
}

/// Emits a response packet of XRC like [`emit`](crate::emit::emit).
#[cold]
#[inline(never)]
pub(crate) fn emit_reply(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    reply: &Reply,
    mem: Mem<'_>,
    owner: Owner,
) -> Sent {
    let (ext, len) = response_headers(reply);
    let bth = response_bth(reply, path.remote);
    let (kind, class) = (&reply.kind, path.reply_class(&reply.kind));
    emit_from(&mut path.address_path, class, out, counters, &as_xrc(bth), &ext, len, |bytes: &mut [u8]| {
        fetch(mem, owner, kind, bytes)
    })
}

/// Emits a request packet of XRC like [`emit`](crate::emit::emit).
#[cold]
#[inline(never)]
pub(crate) fn emit_request(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    plan: &Plan,
    gathered: Gathered<'_>,
) -> Sent {
    let bth = plan.bth(path.remote);
    let ext = Extensions { xrceth: Some(srq(gathered.context)), ..plan.ext };
    emit_outlined(&mut path.address_path, out, counters, &as_xrc(bth), &ext, plan.len, &mut |bytes| {
        gathered.fill(bytes)
    })
}

/// Fills a READ response. Its domain is that of the shared receive queue that the request named. A key
/// belongs to one domain for its whole life, so the domain of the request is still right.
fn fetch(mem: Mem<'_>, owner: Owner, kind: &ReplyKind, out: &mut [u8]) -> bool {
    let ReplyKind::Memory { key, len, .. } = *kind else { return true };
    let Some(pd) = mem.domain(Key::new(key)) else { return len == 0 };
    gather::fetch(mem, pd, owner, kind, out)
}
