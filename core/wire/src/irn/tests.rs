use super::*;
use crate::{Extensions, Packet, Psn, Qpn, aeth, atomic_eth, bth, icrc, ieth, immdt};

const RETH_OF: reth::Repr = reth::Repr { va: 0x1122_3344_5566_7788, rkey: 0xaabb_ccdd, dma_len: 0x0102 };
const MESSAGE_OF: message::Repr = message::Repr { number: 7, offset: 0x0400 };
const FETCH_OF: fetch::Repr = fetch::Repr { number: 9 };
const SACK_OF: sack::Repr = sack::Repr { psn: Psn::new(0x0a0b0c) };

fn extensions(opcode: Opcode, syndrome: Syndrome) -> Extensions {
    Extensions {
        reth: opcode.has_reth().then_some(RETH_OF),
        atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr {
            va: 1,
            rkey: 2,
            swap_add: 3,
            compare: 4,
        }),
        aeth: opcode.has_aeth().then_some(aeth::Repr { syndrome, msn: 5 }),
        imm: opcode.has_imm().then_some(immdt::Repr { value: 6 }),
        ieth: opcode.has_ieth().then_some(ieth::Repr { rkey: 7 }),
        ..Extensions::NONE
    }
}

/// Returns op-code, syndrome and additions as shown in `docs/reference/wire/offloads.md`.
fn cases() -> Vec<(u8, Syndrome, Additions)> {
    let ack = Syndrome::ack(0x1f);
    let missing = Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR);
    let none = Additions::default();
    let message = Additions { message: Some(MESSAGE_OF), ..none };
    let rest = Additions { reth: Some(RETH_OF), ..none };
    let mut cases: Vec<_> =
        [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0b, 0x16, 0x17].map(|op| (op, ack, message)).to_vec();
    cases.extend([0x06, 0x0a, 0x0d, 0x0e, 0x0f, 0x10, 0x18, 0x19, 0x1c].map(|op| (op, ack, none)));
    cases.extend([0x07, 0x08, 0x1a, 0x1b].map(|op| (op, ack, rest)));
    cases.push((0x09, ack, Additions { message: Some(MESSAGE_OF), ..rest }));
    cases.extend([0x0c, 0x13, 0x14].map(|op| (op, ack, Additions { fetch: Some(FETCH_OF), ..none })));
    for op in [0x11, 0x1f] {
        cases.extend([ack, Syndrome::rnr(3), Syndrome::nak(NakCode(2))].map(|other| (op, other, none)));
        cases.push((op, missing, Additions { sack: Some(SACK_OF), ..none }));
    }
    cases
}

/// Returns the bytes of a packet with these additions, followed by the payload.
fn frame(opcode: Opcode, syndrome: Syndrome, additions: &Additions, payload: &[u8]) -> Vec<u8> {
    let mut behind = vec![0; additions.len()];
    assert_eq!(additions.emit(&mut behind), behind.len());
    behind.extend_from_slice(payload);
    let bth = bth::Repr::new(opcode, Qpn::new(1), Psn::new(2));
    let whole = Packet::new(bth, extensions(opcode, syndrome), &behind);
    let mut bytes = vec![0; whole.buffer_len()];
    whole.emit(&mut bytes);
    bytes
}

#[test]
fn every_packet_has_the_additions_of_its_op_code_and_they_come_back() {
    for (opcode, syndrome, additions) in cases() {
        let opcode = Opcode(opcode);
        let payload: &[u8] = if opcode.has_payload() { b"abcde" } else { b"" };
        let bytes = frame(opcode, syndrome, &additions, payload);
        let parsed = packet::View::new(&bytes).unwrap();
        assert_eq!(Additions::split(&parsed), Ok((additions, payload)), "{opcode}");
        assert!(additions.fit(opcode, parsed.aeth().map(|aeth| aeth.syndrome)), "{opcode}");
        assert!(additions.len() <= MAX_LEN);
    }
}

#[test]
fn additions_that_the_packet_has_no_room_for_are_an_error() {
    for (opcode, syndrome, additions) in cases() {
        let bytes = frame(Opcode(opcode), syndrome, &Additions::default(), b"");
        let parsed = packet::View::new(&bytes).unwrap();
        let expected =
            if additions.is_empty() { Ok((additions, &b""[..])) } else { Err(WireError::Truncated) };
        assert_eq!(Additions::split(&parsed), expected, "{:#x}", opcode);
    }
}

#[test]
fn literal_bytes_of_a_write_last_with_immediate_and_of_a_nack() {
    let additions = Additions { reth: Some(RETH_OF), message: Some(MESSAGE_OF), ..Additions::default() };
    let bytes = frame(Opcode::RC_RDMA_WRITE_LAST_IMM, Syndrome::ack(0), &additions, b"xy");
    let expected: &[&[u8]] = &[
        &[0x09, 0x60, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2],
        &[0, 0, 0, 6],
        &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 1, 2],
        &[0, 0, 0, 7, 0, 0, 4, 0],
        b"xy\0\0",
        &[0; icrc::LEN],
    ];
    assert_eq!(bytes, expected.concat());

    let additions = Additions { sack: Some(SACK_OF), ..Additions::default() };
    let missing = Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR);
    let bytes = frame(Opcode::IRN_READ_ACKNOWLEDGE, missing, &additions, b"");
    let expected: &[&[u8]] = &[
        &[0x1f, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2],
        &[0x60, 0, 0, 5],
        &[0, 0x0a, 0x0b, 0x0c],
        &[0; icrc::LEN],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn other_services_have_no_additions() {
    let missing = Some(Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR));
    for code in 0x20..=0xff {
        assert!(Additions::default().fit(Opcode(code), missing), "{code:#x}");
    }
}
