//! Writing of one packet into a frame of the port.

use remora_memory::{Mem, Pd};
use remora_transport::Counters;
use remora_transport::rc::{Reply, ReplyKind};
use remora_wire::frame::{Class, Egress, Peer};
use remora_wire::{Extensions, Qpn, aeth, atomic_ack, bth, icrc, packet};

use crate::context::WqeContext;
use crate::gather;
use crate::headers::Headers;
use crate::path::AddressPath;
use crate::ring::Ring;

/// The result of one attempt to send a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes(usize),
    Blocked,
    /// The port accepts no frame for this transmit queue, but may accept frames for others.
    Stopped(usize),
    /// The payload could not be read, because access to the memory is denied.
    Denied,
}

#[inline]
pub(crate) fn response_bth(reply: &Reply, remote: Qpn) -> bth::Repr {
    let len = if let ReplyKind::Memory { len, .. } = reply.kind { len } else { 0 };
    bth::Repr { pad: packet::pad_for(len as usize), ..bth::Repr::new(reply.opcode, remote, reply.psn) }
}

#[inline]
pub(crate) fn response_headers(reply: &Reply) -> (Extensions, u32) {
    let mut ext = Extensions {
        aeth: reply.aeth.map(|(syndrome, msn)| aeth::Repr { syndrome, msn }),
        ..Extensions::default()
    };
    match reply.kind {
        ReplyKind::Memory { len, .. } => (ext, len),
        ReplyKind::Value(original) => {
            ext.atomic_ack = Some(atomic_ack::Repr { original });
            (ext, 0)
        }
        // `prism::emit_kept` emits the bytes that the responder keeps.
        _ => (ext, 0),
    }
}

/// The source of a packet's payload. Plain RC uses types of its own instead of closures: a closure cannot be
/// `#[inline]`, and so it would be called, with its captures in memory.
pub(crate) trait Fill {
    /// Fills `payload`. Returns false if access to the memory is denied.
    fn fill(self, payload: &mut [u8]) -> bool;
}

impl<F: FnOnce(&mut [u8]) -> bool> Fill for F {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        self(payload)
    }
}

/// Data of a message, starting at `offset`.
#[derive(Copy, Clone)]
pub(crate) struct Gathered<'a> {
    pub mem: Mem<'a>,
    pub pd: Pd,
    pub ring: &'a Ring,
    pub context: &'a WqeContext,
    pub offset: u32,
    /// The data of the whole message if a StRoM kernel sends it, else `None`.
    pub answer: Option<&'a [u8]>,
}

impl Fill for Gathered<'_> {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        let Some(bytes) = self.answer else {
            return gather::gather(self.mem, self.pd, self.ring, self.context, self.offset, payload);
        };
        let start = self.offset as usize;
        let part = bytes.get(start..start + payload.len());
        part.map(|part| payload.copy_from_slice(part)).is_some()
    }
}

/// Writes one packet in the traffic class of its path; `fill` writes the payload.
#[inline(always)]
pub(crate) fn emit(
    address_path: &mut AddressPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: &bth::Repr,
    ext: &Extensions,
    len: u32,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Sent {
    let class = address_path.class;
    emit_from(address_path, class, out, counters, bth, ext, len, fill)
}

/// Writes one packet: headers, payload, pad and ICRC. Always inlined, so that plain RC does not pay for the
/// other callers.
#[inline(always)]
pub(crate) fn emit_from(
    address_path: &mut AddressPath,
    class: Class,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: &bth::Repr,
    ext: &Extensions,
    len: u32,
    payload_of: impl Fill,
) -> Sent {
    let headers = bth.opcode.header_len();
    let total = packet::transport_len(headers, len as usize);
    let route = &address_path.route;
    // The layer with which frames begin is read from the port once; a port never changes it.
    let (peer, seals) = (address_path.peer, out.seals(address_path.peer));
    let below_bth = address_path.headers.get_or_insert_with(|| Headers::new(route, out.start(peer)));
    let below = below_bth.len();
    out.mark(route.ip_fields());
    let Some(lease) = out.lend(peer, class, below + total) else { return lend_failure(out, peer, class) };
    below_bth.emit(lease.ip_id, total, lease.bytes);
    let frame = &mut lease.bytes[below..below + total];
    packet::emit_headers(bth, ext, frame);
    let (payload, rest) = frame[headers..].split_at_mut(len as usize);
    if !payload.is_empty() && !payload_of.fill(payload) {
        return Sent::Denied;
    }
    // Pad and ICRC nearly always have four bytes together, for which one store is enough.
    match <&mut [u8; icrc::LEN]>::try_from(&mut *rest) {
        Ok(four) => *four = [0; icrc::LEN],
        Err(_) => rest.fill(0),
    }
    if seals {
        let (covered, trailer) = frame.split_at_mut(total - icrc::LEN);
        icrc::write(trailer, address_path.sending.seal(lease.ip_id, covered));
    }
    out.commit();
    count(counters, total);
    Sent::Yes(total)
}

/// Does the same as [`emit`]; compiled out of line, so that other services do not enlarge the RC path.
#[cold]
#[inline(never)]
pub(crate) fn emit_outlined(
    address_path: &mut AddressPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: &bth::Repr,
    ext: &Extensions,
    len: u32,
    fill: &mut dyn FnMut(&mut [u8]) -> bool,
) -> Sent {
    emit(address_path, out, counters, bth, ext, len, fill)
}

/// Returns the reason why the port provided no frame. Always inlined, because most ports have only one
/// possible reason, and the test then disappears.
#[inline(always)]
fn lend_failure(out: &impl Egress, peer: Peer, class: Class) -> Sent {
    if out.has_space_per_queue() {
        let queue = usize::from(out.queue(peer, class) % 64);
        if out.stopped() >> queue & 1 == 1 {
            return Sent::Stopped(queue);
        }
    }
    Sent::Blocked
}

#[inline]
fn count(counters: &mut Counters, bytes: usize) {
    counters.sent_pkts += 1;
    counters.sent_bytes += bytes as u64;
}
