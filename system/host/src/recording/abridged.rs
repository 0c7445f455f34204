//! Frames and work requests without user data: payloads, inline data and the operands of atomics are zero in
//! a recording. Immediate data is part of the headers and stays.

use remora_nic::wqe::{SLOT, Wqe, WqeOpcode, flag};
use remora_port::{Endpoint, Origin, Start};
use remora_wire::irn::Additions;
use remora_wire::{Qpn, bth, ethernet, icrc, ipv4, ipv6, packet, rma, udp};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Maximum length of a frame in a recording, in bytes.
pub(crate) const MAX_FRAME: u32 = 1 << 17;

/// Length in bytes of the operands at the end of an AtomicETH.
const OPERANDS: usize = 16;
/// Length in bytes of the value in an AtomicAckETH.
const VALUE: usize = 8;

/// A frame without payload and ICRC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abridged {
    /// The headers. The operands and results of atomics are zero.
    pub head: Vec<u8>,
    /// Length of the frame in bytes, with payload, pad and ICRC.
    pub len: u32,
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedFrame {
    /// The frame without its payload.
    pub frame: Abridged,
    /// First header of the frame.
    pub start: Start,
    /// Source endpoint, if the frame begins at the BTH.
    pub source: Endpoint,
    /// Destination endpoint, if it is not the port's own and the frame begins at the BTH.
    pub destination: Option<Endpoint>,
    /// Path on which the frame arrived, if the port knows it.
    pub origin: Option<Origin>,
    /// True if the NIC dropped the frame because of its ICRC.
    pub is_corrupt: bool,
}

impl Abridged {
    /// Returns the headers of a frame that begins with `start`. With `irn`, the additions of IRN are headers.
    pub(crate) fn new(start: Start, bytes: &[u8], irn: bool) -> Abridged {
        let Lengths { head, operands } = lengths(start, bytes, irn);
        let mut head = bytes[..head].to_vec();
        head[operands].fill(0);
        Abridged { head, len: bytes.len() as u32 }
    }

    /// Returns the bytes of the frame, with zeros for what was left out; `None` if the lengths are
    /// impossible.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let len = Some(self.len).filter(|len| *len <= MAX_FRAME)? as usize;
        let mut bytes = vec![0; len];
        bytes.get_mut(..self.head.len())?.copy_from_slice(&self.head);
        Some(bytes)
    }
}

/// Returns the queue pair that a frame is for; `None` if the frame is no packet.
pub(crate) fn destination(start: Start, bytes: &[u8]) -> Option<Qpn> {
    let transport = bytes.get(below_bth(start, bytes)?..)?;
    Some(packet::View::new(transport).ok()?.bth.dest_qp())
}

/// Returns the number of bytes before the BTH; `None` if the frame is too short to tell.
pub(crate) fn below_bth(start: Start, bytes: &[u8]) -> Option<usize> {
    let network = match start {
        Start::Bth => return Some(0),
        Start::Ip => 0,
        Start::Ethernet => ethernet::LEN,
    };
    let ip = if bytes.get(network)? >> 4 == 6 { ipv6::LEN } else { ipv4::LEN };
    Some(network + ip + udp::LEN)
}

/// The parts of a frame.
struct Lengths {
    /// Number of bytes that are headers.
    head: usize,
    /// Operands or the result of an atomic among the headers.
    operands: Range<usize>,
}

/// Returns the parts of a frame. A frame that is no packet keeps its BTH, by which a NIC knows that it is
/// none, and a message of 1RMA its first byte.
fn lengths(start: Start, bytes: &[u8], irn: bool) -> Lengths {
    let whole = Lengths { head: bytes.len(), operands: 0..0 };
    let Some(below) = below_bth(start, bytes) else { return whole };
    let Some(transport) = bytes.get(below..) else { return whole };
    let view = match packet::View::new(transport) {
        _ if transport.first().is_some_and(|byte| rma::begins(*byte)) => {
            return Lengths { head: below + 1, operands: 0..0 };
        }
        Ok(view) => view,
        Err(_) => return Lengths { head: below + bth::LEN.min(transport.len()), operands: 0..0 },
    };
    let headers = below + view.bth.opcode().header_len();
    let secret = match (view.atomic(), view.atomic_ack()) {
        (Some(_), _) => OPERANDS,
        (_, Some(_)) => VALUE,
        _ => 0,
    };
    let additions = match Additions::split(&view) {
        Ok((additions, _)) if irn => additions.len(),
        _ => 0,
    };
    Lengths { head: headers + additions, operands: headers - secret..headers }
}

/// Replaces user data in the slots of a send queue by zeros. `slots` begins with the first slot of a work
/// request.
pub(crate) fn abridge_requests(slots: &mut [u8]) {
    let mut rest = slots;
    while let Some((first, behind)) = rest.split_first_chunk_mut::<SLOT>() {
        let mut wqe = Wqe::parse(first);
        let count = wqe.slots().unwrap_or(1).max(1);
        let further = ((count - 1) * SLOT).min(behind.len());
        let (further, next) = behind.split_at_mut(further);
        if wqe.flags() & flag::INLINE != 0 || wqe.opcode().is_prism() {
            further.fill(0);
        }
        if matches!(wqe.opcode(), WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD) {
            (wqe.compare, wqe.swap_add) = (0, 0);
            *first = wqe.emit();
        }
        rest = next;
    }
}

/// Makes the ICRC of a frame one that no IPv4 identification explains, so that a NIC drops the frame.
pub(crate) fn corrupt(received: &ReceivedFrame, own: Endpoint, bytes: &mut [u8]) {
    let Some(below) = below_bth(received.start, bytes) else { return };
    let Some(transport) = bytes.get_mut(below..) else { return };
    let Some(split) = transport.len().checked_sub(icrc::LEN) else { return };
    let (covered, trailer) = transport.split_at_mut(split);
    let flow = icrc::Flow::new(received.source, received.destination.unwrap_or(own));
    let mut spans = icrc::IdSpans::new();
    let unexplained = |candidate: &u32| flow.syndrome(covered, *candidate).any_id(&mut spans).is_none();
    if let Some(wrong) = (1..).map(|number: u32| number.wrapping_mul(0x9e37_79b9)).find(unexplained) {
        icrc::write(trailer, wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::{Opcode, Psn, atomic_eth};

    /// Returns a packet, from BTH to ICRC, with 0xee as payload and operands.
    fn transport(opcode: Opcode, payload: usize) -> Vec<u8> {
        let mut ext = packet::Extensions::NONE;
        if opcode.has_atomic_eth() {
            let operand = 0xeeee_eeee_eeee_eeee;
            ext.atomic = Some(atomic_eth::Repr { va: 1, rkey: 2, swap_add: operand, compare: operand });
        }
        let bth =
            bth::Repr { pad: packet::pad_for(payload), ..bth::Repr::new(opcode, Qpn::new(9), Psn::new(7)) };
        let mut bytes = vec![0xee; packet::transport_len(opcode.header_len(), payload)];
        packet::emit_headers(&bth, &ext, &mut bytes);
        bytes
    }

    #[test]
    fn no_byte_of_user_data_is_kept_and_the_packet_keeps_its_shape() {
        for (opcode, payload) in
            [(Opcode::RC_SEND_ONLY, 100), (Opcode::RC_SEND_ONLY, 0), (Opcode::RC_COMPARE_SWAP, 0)]
        {
            let bytes = transport(opcode, payload);
            let abridged = Abridged::new(Start::Bth, &bytes, false);
            assert!(!abridged.head.contains(&0xee), "{opcode}");
            let restored = abridged.bytes().unwrap();
            let (before, after) = (packet::View::new(&bytes).unwrap(), packet::View::new(&restored).unwrap());
            assert_eq!((before.bth, before.payload.len()), (after.bth, after.payload.len()));
        }
    }

    #[test]
    fn the_additions_of_irn_are_headers() {
        let bytes = transport(Opcode::RC_SEND_ONLY, 100);
        let lengths = [false, true].map(|irn| Abridged::new(Start::Bth, &bytes, irn).head.len());
        assert_eq!(lengths, [bth::LEN, bth::LEN + remora_wire::irn::message::LEN]);
    }

    #[test]
    fn a_frame_that_is_no_packet_keeps_no_more_than_a_bth() {
        let mut bytes = transport(Opcode::RC_SEND_ONLY, 100);
        bytes[0] = 0xff;
        assert_eq!(Abridged::new(Start::Bth, &bytes, false).head.len(), bth::LEN);
        let message_of_rma = [0xe1; 80];
        assert_eq!(Abridged::new(Start::Bth, &message_of_rma, false).head, [0xe1]);
        for len in 0..60 {
            assert!(Abridged::new(Start::Ip, &bytes[..len], false).bytes().is_some());
        }
    }

    #[test]
    fn inline_data_and_operands_of_work_requests_are_zero() {
        let inline = Wqe {
            header: u64::from(WqeOpcode::SEND.0) | u64::from(flag::INLINE) << 8,
            len: 65,
            ..Wqe::default()
        };
        let atomic = Wqe { header: WqeOpcode::FETCH_ADD.0.into(), swap_add: 5, remote: 6, ..Wqe::default() };
        let mut slots = [inline.emit(), [7; SLOT], [7; SLOT], atomic.emit()].concat();
        abridge_requests(&mut slots);
        let without = Wqe { swap_add: 0, ..atomic };
        assert_eq!(slots, [inline.emit(), [0; SLOT], [0; SLOT], without.emit()].concat());
        abridge_requests(&mut slots[..3 * SLOT]);
    }
}
