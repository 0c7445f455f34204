//! Validation of one request packet. With IRN a packet may arrive before the earlier packets of its message,
//! so only its own headers are available (IRN paper, §5). Lengths and access rights follow IBTA C9-70 and
//! following.

use super::reads::Wanted;
use crate::rc::Allowed;
use crate::rc::responder::{atomic, notice};
use crate::rc::strom;
use crate::{Atomic, Notice};
use remora_wire::irn::Additions;
use remora_wire::{NakCode, Opcode, Operation, packet, reth};

/// Maximum length of a message in bytes (IBTA vol. 1 §9.7.7).
const LONGEST: u32 = 1 << 31;

/// A valid request packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// WRITE: the payload goes to `va`; `extent` bytes, to the end of the message, must be writable.
    Place { key: u32, va: u64, extent: u32 },
    /// Last packet of a WRITE with immediate data, which uses receive work request `number`.
    PlaceAndNotify { key: u32, va: u64, extent: u32, number: u32, notice: Notice },
    /// SEND: the payload goes to receive work request `number`. The last packet has a notice.
    Deliver { number: u32, offset: u32, notice: Option<Notice> },
    /// READ or atomic operation `number`.
    Fetch { number: u32, wanted: Wanted },
    /// A packet for a kernel.
    Rpc(strom::Part),
}

/// Validates a packet whose IRN headers and payload have been separated.
pub(super) fn judge(
    packet: &packet::View<'_>,
    additions: &Additions,
    payload: &[u8],
    mtu: u32,
    allowed: Allowed,
) -> Result<Request, NakCode> {
    let opcode = packet.bth.opcode();
    let len = payload.len() as u32;
    if !fits(opcode, len, mtu) {
        return Err(NakCode::INVALID_REQUEST);
    }
    let request = match opcode.operation() {
        Some(Operation::Send) => send(packet, additions, len, mtu),
        Some(Operation::Write) if allowed.write => write(packet, additions, len, mtu),
        Some(Operation::Rpc | Operation::RpcWrite) => {
            let reth = packet.reth().or(additions.reth);
            strom::judge(packet, reth, None, len).ok().map(Request::Rpc)
        }
        Some(Operation::ReadRequest) if allowed.read && len == 0 => read(packet, additions),
        Some(Operation::CompareSwap | Operation::FetchAdd) if allowed.atomic && len == 0 => {
            atomic_of(packet, additions)
        }
        _ => None,
    };
    request.ok_or(NakCode::INVALID_REQUEST)
}

/// Returns true if a packet with this op-code may have a payload of `len` bytes.
#[inline]
fn fits(opcode: Opcode, len: u32, mtu: u32) -> bool {
    match (opcode.is_first() || opcode.is_middle(), opcode.is_last()) {
        (true, _) => len == mtu,
        (_, true) => (1..=mtu).contains(&len),
        _ => len <= mtu,
    }
}

/// A packet of a WRITE without immediate data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Remote key of the accessed region.
    pub key: u32,
    /// Virtual address of the payload's first byte.
    pub va: u64,
    /// Number of bytes from `va` to the end of the message, all of which must be writable.
    pub extent: u32,
    /// Payload of the packet.
    pub payload: &'a [u8],
    /// True for the last packet of the message.
    pub(super) ends: bool,
}

/// Validates a packet that is probably part of a WRITE without immediate data. Returns `None` if it is
/// another packet or malformed; [`judge`] must then validate it.
#[inline]
pub(super) fn plain_write<'a>(packet: &packet::View<'a>, mtu: u32) -> Option<Write<'a>> {
    let opcode = packet.bth.opcode();
    let (reth, payload) = match opcode {
        Opcode::RC_RDMA_WRITE_ONLY | Opcode::RC_RDMA_WRITE_FIRST => (packet.reth()?, packet.payload),
        Opcode::RC_RDMA_WRITE_MIDDLE | Opcode::RC_RDMA_WRITE_LAST => {
            let (additions, payload) = Additions::split(packet).ok()?;
            (additions.reth?, payload)
        }
        _ => return None,
    };
    let ends = opcode.is_last() || opcode.is_only();
    let len = payload.len() as u32;
    let fine = fits(opcode, len, mtu) && spans(&reth, len, ends);
    fine.then_some(Write { key: reth.rkey, va: reth.va, extent: reth.dma_len, payload, ends })
}

/// Returns true if `len`, the payload length of a WRITE packet, is consistent with the remaining length in
/// its RETH.
#[inline]
fn spans(reth: &reth::Repr, len: u32, ends: bool) -> bool {
    reth.dma_len <= LONGEST && if ends { len == reth.dma_len } else { len < reth.dma_len }
}

/// Returns true if `offset` is a valid message offset for a packet with this op-code.
fn stands(packet: &packet::View<'_>, offset: u32, mtu: u32) -> bool {
    let opcode = packet.bth.opcode();
    let starts = opcode.is_first() || opcode.is_only();
    if starts { offset == 0 } else { offset > 0 && offset.is_multiple_of(mtu) }
}

fn total(offset: u32, len: u32) -> Option<u32> {
    offset.checked_add(len).filter(|total| *total <= LONGEST)
}

fn send(packet: &packet::View<'_>, additions: &Additions, len: u32, mtu: u32) -> Option<Request> {
    let message = additions.message.filter(|message| stands(packet, message.offset, mtu))?;
    let total = total(message.offset, len)?;
    let ends = packet.bth.opcode().is_last() || packet.bth.opcode().is_only();
    let notice = ends.then(|| notice(packet, total, false));
    Some(Request::Deliver { number: message.number, offset: message.offset, notice })
}

fn write(packet: &packet::View<'_>, additions: &Additions, len: u32, mtu: u32) -> Option<Request> {
    let reth = packet.reth().or(additions.reth)?;
    let ends = packet.bth.opcode().is_last() || packet.bth.opcode().is_only();
    if !spans(&reth, len, ends) {
        return None;
    }
    let reth::Repr { va, rkey: key, dma_len: extent } = reth;
    if packet.imm().is_none() {
        return Some(Request::Place { key, va, extent });
    }
    let message = additions.message.filter(|message| stands(packet, message.offset, mtu))?;
    let notice = notice(packet, total(message.offset, len)?, true);
    Some(Request::PlaceAndNotify { key, va, extent, number: message.number, notice })
}

fn read(packet: &packet::View<'_>, additions: &Additions) -> Option<Request> {
    let reth::Repr { va, rkey: key, dma_len: len } = packet.reth().filter(|reth| reth.dma_len <= LONGEST)?;
    Some(Request::Fetch { number: additions.fetch?.number, wanted: Wanted::Memory { key, va, len } })
}

fn atomic_of(packet: &packet::View<'_>, additions: &Additions) -> Option<Request> {
    let eth = packet.atomic()?;
    let atomic: Atomic = atomic(packet.bth.opcode(), eth.swap_add, eth.compare);
    let wanted = Wanted::Atomic { key: eth.rkey, va: eth.va, atomic };
    Some(Request::Fetch { number: additions.fetch?.number, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::irn::{fetch, message};
    use remora_wire::{Extensions, Packet, Psn, Qpn, atomic_eth, bth, ieth, immdt};

    const ALL: Allowed = Allowed { write: true, read: true, atomic: true };
    const MTU: u32 = 256;

    /// Builds a packet with all headers that its op-code and IRN require, and passes the parsed packet to a
    /// closure.
    fn with_packet<T>(
        opcode: Opcode,
        len: u32,
        offset: u32,
        left: u32,
        look: impl FnOnce(&packet::View<'_>, &Additions, &[u8]) -> T,
    ) -> T {
        let reth = reth::Repr { va: 0x1000, rkey: 5, dma_len: left };
        let eth = atomic_eth::Repr { va: 0x1000, rkey: 5, swap_add: 1, compare: 2 };
        let ext = Extensions {
            reth: opcode.has_reth().then_some(reth),
            atomic: opcode.has_atomic_eth().then_some(eth),
            imm: opcode.has_imm().then_some(immdt::Repr { value: 9 }),
            ieth: opcode.has_ieth().then_some(ieth::Repr { rkey: 8 }),
            ..Extensions::NONE
        };
        let mut all = (0..8).map(|bits| Additions {
            reth: (bits & 1 != 0).then_some(reth),
            message: (bits & 2 != 0).then_some(message::Repr { number: 7, offset }),
            fetch: (bits & 4 != 0).then_some(fetch::Repr { number: 3 }),
            sack: None,
        });
        let additions =
            all.find(|additions| additions.fit(opcode, None)).expect("the additions of the op-code");
        let mut payload = vec![0; additions.len() + len as usize];
        additions.emit(&mut payload);
        let packet = Packet::new(bth::Repr::new(opcode, Qpn::new(1), Psn::new(1)), ext, &payload);
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes);
        let view = packet::View::new(&bytes).expect("a packet");
        let (split, rest) = Additions::split(&view).expect("additions");
        assert_eq!((split, rest.len()), (additions, len as usize));
        look(&view, &split, rest)
    }

    /// Validates such a packet.
    fn verdict(
        opcode: Opcode,
        len: u32,
        offset: u32,
        left: u32,
        allowed: Allowed,
    ) -> Result<Request, NakCode> {
        with_packet(opcode, len, offset, left, |packet, additions, payload| {
            judge(packet, additions, payload, MTU, allowed)
        })
    }

    #[test]
    fn lengths_are_those_of_the_position() {
        let invalid = Err(NakCode::INVALID_REQUEST);
        for (opcode, good, bad) in [
            (Opcode::RC_SEND_FIRST, vec![256], vec![0, 1, 255]),
            (Opcode::RC_SEND_ONLY, vec![0, 1, 256], vec![257]),
            (Opcode::RC_RDMA_WRITE_FIRST, vec![256], vec![255]),
        ] {
            for len in good {
                let left = if opcode.is_first() { len + 1 } else { len };
                assert!(verdict(opcode, len, 0, left, ALL).is_ok(), "{opcode} {len}");
            }
            for len in bad {
                assert_eq!(verdict(opcode, len, 0, len, ALL), invalid, "{opcode} {len}");
            }
        }
        assert_eq!(verdict(Opcode::RC_SEND_LAST, 0, 256, 0, ALL), invalid);
        assert!(verdict(Opcode::RC_SEND_MIDDLE, 256, 512, 0, ALL).is_ok());
    }

    #[test]
    fn offsets_are_those_of_the_position() {
        for (opcode, good, bad) in [
            (Opcode::RC_SEND_FIRST, 0, 256),
            (Opcode::RC_SEND_MIDDLE, 256, 0),
            (Opcode::RC_SEND_MIDDLE, 512, 300),
            (Opcode::RC_SEND_LAST_INV, 256, 1),
            (Opcode::RC_RDMA_WRITE_LAST_IMM, 256, 0),
            (Opcode::RC_RDMA_WRITE_ONLY_IMM, 0, 256),
        ] {
            assert!(verdict(opcode, 256, good, 256, ALL).is_ok(), "{opcode} {good}");
            assert!(verdict(opcode, 256, bad, 256, ALL).is_err(), "{opcode} {bad}");
        }
        let beyond = (1 << 31) - 256 + 256;
        assert!(verdict(Opcode::RC_SEND_LAST, 256, beyond - 256, 0, ALL).is_ok());
        assert!(verdict(Opcode::RC_SEND_LAST, 256, beyond, 0, ALL).is_err());
    }

    #[test]
    fn a_write_packet_tells_how_much_is_left_of_its_message() {
        for (opcode, left, good) in [
            (Opcode::RC_RDMA_WRITE_MIDDLE, 257, true),
            (Opcode::RC_RDMA_WRITE_MIDDLE, 256, false),
            (Opcode::RC_RDMA_WRITE_LAST, 256, true),
            (Opcode::RC_RDMA_WRITE_LAST, 257, false),
            (Opcode::RC_RDMA_WRITE_LAST, 255, false),
            (Opcode::RC_RDMA_WRITE_FIRST, 1 << 31, true),
            (Opcode::RC_RDMA_WRITE_FIRST, (1 << 31) + 1, false),
        ] {
            assert_eq!(verdict(opcode, 256, 256, left, ALL).is_ok(), good, "{opcode} {left}");
        }
        let expected = Request::Place { key: 5, va: 0x1000, extent: 300 };
        assert_eq!(verdict(Opcode::RC_RDMA_WRITE_MIDDLE, 256, 0, 300, ALL), Ok(expected));
    }

    #[test]
    fn the_last_packet_of_a_message_brings_its_notice() {
        let Ok(Request::Deliver { number: 7, offset: 512, notice: Some(notice) }) =
            verdict(Opcode::RC_SEND_LAST_IMM, 100, 512, 0, ALL)
        else {
            panic!("the packet ends a SEND")
        };
        assert_eq!((notice.len, notice.imm, notice.write), (612, Some(9), false));
        let Ok(Request::PlaceAndNotify { number: 7, notice, .. }) =
            verdict(Opcode::RC_RDMA_WRITE_LAST_IMM, 100, 512, 100, ALL)
        else {
            panic!("the packet ends a WRITE with immediate data")
        };
        assert_eq!((notice.len, notice.imm, notice.write), (612, Some(9), true));
    }

    #[test]
    fn the_usual_way_of_a_write_judges_as_the_general_one() {
        let mut plain = 0;
        for opcode in (0..0x18).map(Opcode).filter(|opcode| opcode.is_request()) {
            let lengths = [0, 1, 255, 256, 257]
                .map(|len: u32| [len.wrapping_sub(1), len, len + 1, (1 << 31) + 1].map(|left| (len, left)));
            for (len, left) in lengths.into_iter().flatten() {
                with_packet(opcode, len, 0, left, |packet, additions, payload| {
                    let usual = plain_write(packet, MTU).map(|write| {
                        let ends = opcode.is_last() || opcode.is_only();
                        assert_eq!((write.payload, write.ends), (payload, ends));
                        Request::Place { key: write.key, va: write.va, extent: write.extent }
                    });
                    let general = judge(packet, additions, payload, MTU, ALL).ok();
                    let placed = general.filter(|request| matches!(request, Request::Place { .. }));
                    assert_eq!(usual, placed, "{opcode}, {len} bytes of {left}");
                    plain += usize::from(usual.is_some());
                });
            }
        }
        // First and Middle: a full packet with more to come. Last: 1, 255, 256 bytes. Only: also 0 bytes.
        assert_eq!(plain, 1 + 1 + 3 + 4);
    }

    #[test]
    fn each_right_is_needed_for_what_it_allows() {
        let none = Allowed::default();
        for (opcode, allowed) in [
            (Opcode::RC_RDMA_WRITE_ONLY, Allowed { write: true, ..none }),
            (Opcode::RC_RDMA_READ_REQUEST, Allowed { read: true, ..none }),
            (Opcode::RC_COMPARE_SWAP, Allowed { atomic: true, ..none }),
            (Opcode::RC_FETCH_ADD, Allowed { atomic: true, ..none }),
        ] {
            assert!(verdict(opcode, 0, 0, 0, allowed).is_ok(), "{opcode}");
            assert_eq!(verdict(opcode, 0, 0, 0, none), Err(NakCode::INVALID_REQUEST), "{opcode}");
        }
        assert!(verdict(Opcode::RC_SEND_ONLY, 0, 0, 0, none).is_ok());
        assert!(
            verdict(Opcode::RC_RDMA_READ_REQUEST, 4, 0, 4, ALL).is_err(),
            "a READ request has no payload"
        );
    }
}
