//! Encoding of PRISM packets, and delivery of results on the requester.

use remora_memory::{Access, Mem, Pd};
use remora_transport::Counters;
use remora_transport::rc::prism::Extended;
use remora_transport::rc::{Reply, ReplyKind};
use remora_wire::frame::Egress;
use remora_wire::prism::Flags;
use remora_wire::prism::addresses::Repr as Addresses;
use remora_wire::prism::operands::number;
use remora_wire::{Extensions, Qpn, aeth, atomic_ack, bth, packet};

use crate::context::WqeContext;
use crate::emit::{Sent, emit_outlined};
use crate::gather::{LocalMemory, gather_outlined};
use crate::path::PeerPath;
use crate::ring::Ring;
use crate::wqe::{SLOT, Wqe};

/// Sends a request packet with a part of the message: its flags besides AckReq, and the addresses before the
/// payload.
pub(crate) fn emit_request(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: bth::Repr,
    ext: &Extensions,
    extended: &Extended,
    context: &WqeContext,
    offset: u32,
    len: u32,
    local: LocalMemory<'_>,
) -> Sent {
    let addresses = match bth.opcode.is_first() || bth.opcode.is_only() {
        true => addresses(extended, local.ring, context),
        false => Addresses::default(),
    };
    let all = addresses.len() as u32 + len;
    let bth = bth::Repr { resv7: extended.flags().bits(), pad: packet::pad_for(all as usize), ..bth };
    emit_outlined(&mut path.address_path, out, counters, &bth, ext, all, &mut |bytes| {
        let start = addresses.emit(bytes);
        len == 0 || gather_outlined(local.mem, local.pd, local.ring, context, offset, &mut bytes[start..])
    })
}

/// Returns the addresses in the first packet of a request.
pub(super) fn addresses(extended: &Extended, ring: &Ring, context: &WqeContext) -> Addresses {
    // The second slot is read only for the fields that the first slot lacks.
    let redirect = if extended.flags().has(Flags::REDIRECT) { second(ring, context).header } else { 0 };
    extended.addresses(redirect)
}

/// Sends a response whose data the responder keeps: a wide value, or the result of a short READ.
#[cold]
#[inline(never)]
pub(crate) fn emit_kept(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    reply: &Reply,
    kept: &[u8],
) -> Sent {
    let (original, bytes) = kept_value(&reply.kind, kept);
    let ext = Extensions {
        aeth: reply.aeth.map(|(syndrome, msn)| aeth::Repr { syndrome, msn }),
        atomic_ack: original.map(|original| atomic_ack::Repr { original }),
        ..Extensions::default()
    };
    let bth = kept_bth(reply, path.remote, bytes.len());
    emit_outlined(&mut path.address_path, out, counters, &bth, &ext, bytes.len() as u32, &mut |buffer| {
        buffer.copy_from_slice(bytes);
        true
    })
}

/// Returns the BTH of a short response with `len` bytes of payload. The response to an operation list carries
/// the number of PSNs that it covers.
#[inline]
pub(super) fn kept_bth(reply: &Reply, remote: Qpn, len: usize) -> bth::Repr {
    let resv7 = if let ReplyKind::OperationList { count, .. } = reply.kind { count } else { 0 };
    bth::Repr { pad: packet::pad_for(len), resv7, ..bth::Repr::new(reply.opcode, remote, reply.psn) }
}

/// Returns the value for the AtomicAckETH of a short response, if any, and the payload.
pub(super) fn kept_value<'k>(kind: &ReplyKind, kept: &'k [u8]) -> (Option<u64>, &'k [u8]) {
    match *kind {
        // The most significant 8 bytes are at the position of an ordinary atomic's value.
        ReplyKind::Wide(size) => (Some(number(&kept[..8])[0]), &kept[8..usize::from(size)]),
        ReplyKind::Snapshot(len) | ReplyKind::OperationList { len, .. } => (None, &kept[..usize::from(len)]),
        ReplyKind::Value(original) => (Some(original), &[]),
        _ => (None, &[]),
    }
}

/// Returns the second slot of a work request, with its redirection and the location of its result.
fn second(ring: &Ring, context: &WqeContext) -> Wqe {
    let mut slot = [0; SLOT];
    ring.load(context.index, &mut slot);
    Wqe::parse(&slot)
}

/// Writes a result to the location that the work request names, in host byte order. Returns false if the
/// location must not be written or is too small.
#[cold]
#[inline(never)]
pub(crate) fn put_result(
    mem: Mem<'_>,
    pd: Pd,
    ring: &Ring,
    context: &WqeContext,
    head: u64,
    rest: &[u8],
) -> bool {
    let result = second(ring, context).sge();
    if result.len == 0 {
        return true;
    }
    let (lower, odd) = rest.as_chunks::<8>();
    let mut words = [0; 4];
    if !odd.is_empty() || lower.len() >= words.len() {
        return false;
    }
    // In network order, the most significant word is first.
    for (word, bytes) in words.iter_mut().zip(lower.iter().rev()) {
        *word = u64::from_be_bytes(*bytes);
    }
    let words = &mut words[..=lower.len()];
    words[lower.len()] = head;
    if cfg!(target_endian = "big") {
        words.reverse();
    }
    let span = mem.check(pd, result.lkey, result.addr, result.len as usize, Access::LOCAL_WRITE);
    span.is_ok_and(|span| span.write_words(words))
}
