use proptest::prelude::*;

use super::*;
use crate::aeth::{NO_CREDITS, Syndrome};
use crate::{Opcode, Psn, Qpn};

/// Returns all known op-codes.
fn known() -> Vec<Opcode> {
    (0..=255).map(Opcode).filter(|opcode| opcode.is_known()).collect()
}

/// Returns a packet with this op-code whose extension headers contain `number`.
fn packet(opcode: Opcode, number: u64, payload: &[u8]) -> Packet<'_> {
    let low = number as u32;
    let ext = Extensions {
        xrceth: opcode.has_xrceth().then_some(xrceth::Repr { srq: Qpn::new(low) }),
        deth: opcode.has_deth().then_some(deth::Repr { qkey: low, src_qp: Qpn::new(low >> 3) }),
        reth: opcode.has_reth().then_some(reth::Repr { va: number, rkey: low, dma_len: low >> 1 }),
        atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr {
            va: number,
            rkey: low,
            swap_add: !number,
            compare: number.rotate_left(17),
        }),
        aeth: opcode.has_aeth().then_some(aeth::Repr { syndrome: Syndrome(low as u8), msn: low >> 8 }),
        atomic_ack: opcode.has_atomic_ack().then_some(atomic_ack::Repr { original: number }),
        imm: opcode.has_imm().then_some(immdt::Repr { value: low }),
        ieth: opcode.has_ieth().then_some(ieth::Repr { rkey: !low }),
    };
    Packet::new(bth::Repr::new(opcode, Qpn::new(low >> 5), Psn::new(low >> 7)), ext, payload)
}

fn emitted(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0x5a; packet.buffer_len()];
    let icrc_at = packet.emit(&mut bytes);
    assert_eq!(icrc_at + icrc::LEN, bytes.len());
    assert!(bytes[icrc_at..].iter().all(|byte| *byte == 0x5a), "the ICRC's place is left alone");
    bytes
}

#[test]
fn literal_bytes() {
    let bytes = [
        0x0b, 0xb0, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0x00,
        0x2a, // BTH: SE, pad 3, AckReq
        0x00, 0x00, 0x7f, 0x00, 0x00, 0x00, 0x10, 0x00, // RETH: address
        0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x05, // key, length
        0xca, 0xfe, 0xba, 0xbe, // immediate
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0, // payload and pad
        1, 2, 3, 4, // ICRC
    ];
    let packet = Packet::parse(&bytes).unwrap();
    let expected = Packet {
        bth: bth::Repr {
            solicited: true,
            mig_req: false,
            pad: 3,
            ack_req: true,
            ..bth::Repr::new(Opcode::RC_RDMA_WRITE_ONLY_IMM, Qpn::new(0x11), Psn::new(42))
        },
        ext: Extensions {
            reth: Some(reth::Repr { va: 0x7f00_0000_1000, rkey: 0x102, dma_len: 5 }),
            imm: Some(immdt::Repr { value: 0xcafe_babe }),
            ..Extensions::NONE
        },
        payload: b"hello",
    };
    assert_eq!(packet, expected);
    assert_eq!(emitted(&packet)[..40], bytes[..40]);
    assert_eq!(
        packet.to_string(),
        "RC RDMA WRITE Only with Immediate qp=0x000011 psn=42 se ackreq \
         va=0x7f0000001000 rkey=0x00000102 len=5 imm=0xcafebabe payload=5"
    );
}

/// Checks the order of two extension headers on the wire.
#[test]
fn extension_headers_are_in_wire_order() {
    let headers = |opcode| emitted(&packet(opcode, 0x0102_0304_a5b6_c7d8, &[]))[bth::LEN..].to_vec();
    let ack = headers(Opcode::RC_ATOMIC_ACKNOWLEDGE);
    assert_eq!(ack[..12], [0xd8, 0xa5, 0xb6, 0xc7, 0x01, 0x02, 0x03, 0x04, 0xa5, 0xb6, 0xc7, 0xd8]);
    let xrc = headers(Opcode::XRC_SEND_ONLY_IMM);
    assert_eq!(xrc[..8], [0x00, 0xb6, 0xc7, 0xd8, 0xa5, 0xb6, 0xc7, 0xd8]);
    let ud = headers(Opcode::UD_SEND_ONLY_IMM);
    assert_eq!(ud[..12], [0xa5, 0xb6, 0xc7, 0xd8, 0x00, 0xb6, 0xd8, 0xfb, 0xa5, 0xb6, 0xc7, 0xd8]);
}

#[test]
fn pads_to_four() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad_for), [0, 3, 2, 1, 0, 3]);
    for len in 0..9 {
        let payload = vec![0xff; len];
        let packet = packet(Opcode::RC_SEND_ONLY, 0, &payload);
        assert_eq!(packet.buffer_len(), transport_len(12, len));
        let bytes = emitted(&packet);
        assert_eq!((bytes.len() % 4, &bytes[12..12 + len]), (0, &payload[..]));
        assert!(bytes[12 + len..bytes.len() - 4].iter().all(|byte| *byte == 0), "zeros after {len} bytes");
    }
}

#[test]
fn every_truncation_of_every_op_code_is_an_error() {
    for opcode in known() {
        let payload = [7; 4];
        let packet =
            packet(opcode, 0x0102_0304_a5b6_c7d8, &payload[..if opcode.has_payload() { 3 } else { 0 }]);
        let bytes = emitted(&packet);
        assert_eq!(Packet::parse(&bytes), Ok(packet));
        let shortest = opcode.header_len() + icrc::LEN;
        for len in 0..bytes.len() {
            match Packet::parse(&bytes[..len]) {
                Err(WireError::Truncated) => assert!(len < shortest, "{opcode} {len}"),
                Err(WireError::Length) => assert!(len >= shortest && len % 4 != 0, "{opcode} {len}"),
                Err(WireError::Pad) => assert_eq!(len, shortest, "{opcode}"),
                other => panic!("{opcode} cut to {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn pad_may_not_reach_into_the_headers() {
    let mut bytes = emitted(&packet(Opcode::RC_ACKNOWLEDGE, 0, &[]));
    for pad in 1..4 {
        bytes[1] = pad << 4;
        assert_eq!(Packet::parse(&bytes), Err(WireError::Pad));
    }
}

#[test]
fn unknown_op_codes_are_named() {
    for code in [0x15, 0x1d, 0x1e, 0x2c, 0x38, 0x3c, 0x40, 0x60, 0x66, 0x80, 0xb5, 0xb8, 0xff] {
        let mut bytes = [0; 64];
        bytes[0] = code;
        assert_eq!(Packet::parse(&bytes), Err(WireError::UnknownOpcode(code)));
    }
}

/// Checks the one-line description of an ACK as Linux sends it.
#[test]
fn an_ack_in_words() {
    let ext = Extensions {
        aeth: Some(aeth::Repr { syndrome: Syndrome::ack(NO_CREDITS), msn: 3 }),
        ..Extensions::NONE
    };
    let ack = Packet::new(bth::Repr::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(9), Psn::new(1)), ext, &[]);
    assert_eq!(ack.to_string(), "RC Acknowledge qp=0x000009 psn=1 ACK msn=3");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "extension headers of RC SEND Only")]
fn headers_that_the_op_code_does_not_have_are_a_bug() {
    let ext = Extensions { imm: Some(immdt::Repr { value: 1 }), ..Extensions::NONE };
    emit_headers(&bth::Repr::new(Opcode::RC_SEND_ONLY, Qpn::new(1), Psn::new(1)), &ext, &mut [0; 64]);
}

proptest! {
    #[test]
    fn every_packet_round_trips(
        index: prop::sample::Index,
        number: u64,
        payload in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        let opcode = *index.get(&known());
        let packet = packet(opcode, number, &payload);
        let bytes = emitted(&packet);
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        prop_assert_eq!(packet.buffer_len(), transport_len(opcode.header_len(), payload.len()));
    }

    /// Checks that arbitrary bytes cause no panic, and that a parsed packet is reproduced except for pad and
    /// reserved bytes.
    #[test]
    fn any_bytes_are_an_answer(index: prop::sample::Index, mut bytes in prop::collection::vec(any::<u8>(), 0..96)) {
        if let Some(first) = bytes.first_mut() && *first < 0xf0 {
            *first = index.get(&known()).0;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let again = emitted(&packet);
            prop_assert_eq!(again.len(), bytes.len());
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
            prop_assert_eq!(&again[..bth::LEN], &bytes[..bth::LEN]);
        }
    }
}
