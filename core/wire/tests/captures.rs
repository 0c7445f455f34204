//! Tests that every recorded packet of Linux Soft-RoCE parses, has the ICRC that this crate computes, and is
//! reproduced byte for byte from its parsed values.
#![cfg(not(miri))]

mod pcap;

use std::collections::BTreeMap;
use std::path::Path;

use remora_wire::frame::{Dissected, Network, Start, dissect};
use remora_wire::icrc::{self, Flow, IdSpans};
use remora_wire::{Extensions, Opcode, Packet, ROCE_PORT, WireError, bth, ethernet, udp};

fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    pcap::read(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// A parsed frame that owns its payload and has no ICRC, so that nothing of the input remains in it.
struct Owned {
    ethernet: ethernet::Repr,
    network: Network,
    udp: udp::Repr,
    bth: bth::Repr,
    ext: Extensions,
    payload: Vec<u8>,
}

impl Owned {
    fn of(frame: &Dissected<'_>) -> Owned {
        let (network, udp) = frame.network.expect("an IP packet");
        let Packet { bth, ext, payload } = frame.packet;
        let ethernet = frame.ethernet.expect("an Ethernet frame");
        Owned { ethernet, network, udp, bth, ext, payload: payload.to_vec() }
    }

    /// Writes the frame, with an ICRC computed from the written bytes.
    fn emit(&self) -> Vec<u8> {
        let packet = Packet { bth: self.bth, ext: self.ext, payload: &self.payload };
        let frame = Dissected {
            ethernet: Some(self.ethernet),
            network: Some((self.network, self.udp)),
            packet,
            icrc: 0,
        };
        let mut bytes = vec![0x5a; frame.buffer_len()];
        assert_eq!(frame.emit(&mut bytes), bytes.len());
        let bth_at = bytes.len() - packet.buffer_len();
        let icrc_at = bytes.len() - icrc::LEN;
        let sealed = Flow::of(&self.network, &self.udp).seal(self.network.ip_id(), &bytes[bth_at..icrc_at]);
        icrc::write(&mut bytes, sealed);
        bytes
    }
}

/// Number of frames per op-code, and number of frames that were not RoCE.
#[derive(Default)]
struct Seen {
    opcodes: BTreeMap<u8, u32>,
    skipped: u32,
}

/// Returns true for UDP packets to RoCE's port, decided from the raw bytes without the parser under test.
fn is_roce(frame: &[u8]) -> bool {
    let port = |offset: usize| frame.get(offset..offset + 2) == Some(&ROCE_PORT.to_be_bytes());
    match (frame[12], frame[13]) {
        (0x08, 0x00) => frame[23] == 17 && port(36),
        (0x86, 0xdd) => frame[20] == 17 && port(56),
        _ => false,
    }
}

fn check(name: &str) -> Seen {
    let mut seen = Seen::default();
    let mut spans = IdSpans::new();
    for (number, bytes) in frames(name).into_iter().enumerate() {
        if !is_roce(&bytes) {
            let refused = dissect(Start::Ethernet, &bytes).expect_err("not a RoCE frame");
            assert!(matches!(refused, WireError::NotIp | WireError::NotUdp), "{name} {number}: {refused}");
            seen.skipped += 1;
            continue;
        }
        let frame =
            dissect(Start::Ethernet, &bytes).unwrap_or_else(|error| panic!("{name} {number}: {error}"));
        let (network, udp) = frame.network.unwrap();
        let ip_len = network.header_len();
        let packet_len = frame.packet.buffer_len();
        let (headers, transport) = bytes.split_at(bytes.len() - packet_len);
        let covered = &transport[..packet_len - icrc::LEN];
        let (ip, udp_bytes) = headers[ethernet::LEN..].split_at(ip_len);
        assert_eq!(icrc::compute(ip, udp_bytes, covered), frame.icrc, "{name} {number}: by definition");
        let flow = Flow::of(&network, &udp);
        assert!(flow.accepts(network.ip_id(), covered, frame.icrc), "{name} {number}: by flow");
        // Linux numbers its IPv4 packets, so only packets with small numbers are accepted like those of a
        // Remora NIC.
        let unknown = flow.accepts_unknown_id(&mut spans, covered, frame.icrc);
        let recovered = flow.syndrome(covered, frame.icrc).any_id(&mut spans);
        assert_eq!(recovered, Some(network.ip_id()), "{name} {number}: id recovered");
        assert_eq!(unknown, (network.ip_id() < 128).then_some(network.ip_id()), "{name} {number}: id unseen");

        *seen.opcodes.entry(frame.packet.bth.opcode.0).or_default() += 1;
        let owned = Owned::of(&frame);
        let original = bytes.clone();
        drop(bytes);
        assert_eq!(owned.emit(), original, "{name} {number}: emitted again");
    }
    seen
}

impl Seen {
    /// Panics unless exactly these op-codes occurred, with these counts.
    fn expect(&self, name: &str, expected: &[(Opcode, u32)], skipped: u32) {
        let expected: BTreeMap<u8, u32> = expected.iter().map(|(opcode, count)| (opcode.0, *count)).collect();
        assert_eq!((&self.opcodes, self.skipped), (&expected, skipped), "{name}");
    }
}

#[test]
fn guest_to_guest() {
    let expected = [
        (Opcode::RC_SEND_FIRST, 29),
        (Opcode::RC_SEND_MIDDLE, 37),
        (Opcode::RC_SEND_LAST, 29),
        (Opcode::RC_SEND_ONLY, 40),
        (Opcode::RC_RDMA_WRITE_FIRST, 20),
        (Opcode::RC_RDMA_WRITE_MIDDLE, 345),
        (Opcode::RC_RDMA_WRITE_LAST, 20),
        (Opcode::RC_RDMA_WRITE_ONLY, 2),
        (Opcode::RC_RDMA_READ_REQUEST, 7),
        (Opcode::RC_RDMA_READ_RESPONSE_FIRST, 5),
        (Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 15),
        (Opcode::RC_RDMA_READ_RESPONSE_LAST, 5),
        (Opcode::RC_RDMA_READ_RESPONSE_ONLY, 2),
        (Opcode::RC_ACKNOWLEDGE, 97),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 10),
        (Opcode::RC_COMPARE_SWAP, 5),
        (Opcode::RC_FETCH_ADD, 5),
        (Opcode::UC_SEND_FIRST, 8),
        (Opcode::UC_SEND_MIDDLE, 16),
        (Opcode::UC_SEND_LAST, 8),
        (Opcode::UD_SEND_ONLY, 24),
    ];
    check("rxe.pcap").expect("rxe.pcap", &expected, 0);
}

#[test]
fn with_loss() {
    let expected = [
        (Opcode::RC_RDMA_WRITE_FIRST, 53),
        (Opcode::RC_RDMA_WRITE_MIDDLE, 783),
        (Opcode::RC_RDMA_WRITE_LAST, 54),
        (Opcode::RC_ACKNOWLEDGE, 10),
    ];
    check("rxe-loss.pcap").expect("rxe-loss.pcap", &expected, 0);
}

#[test]
fn host_and_guest_over_ipv4() {
    let expected = [(Opcode::RC_SEND_ONLY, 40), (Opcode::RC_ACKNOWLEDGE, 40), (Opcode::UD_SEND_ONLY, 8)];
    check("host-guest-ipv4.pcap").expect("host-guest-ipv4.pcap", &expected, 4);
}

#[test]
fn host_and_guest_over_ipv6() {
    let expected = [(Opcode::RC_SEND_ONLY, 92), (Opcode::RC_ACKNOWLEDGE, 17)];
    check("host-guest-ipv6.pcap").expect("host-guest-ipv6.pcap", &expected, 2);
}
