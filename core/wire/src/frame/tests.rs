use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::icrc::Flow;
use crate::{Extensions, Opcode, Packet, Psn, Qpn, WireError, bth, icrc, reth};

fn endpoint(address: impl Into<IpAddr>, udp_port: u16) -> Endpoint {
    Endpoint { address: address.into().into(), udp_port }
}

fn route_v4() -> Route {
    let route = Route::new(endpoint([10, 0, 0, 1], 0xc001), endpoint([10, 0, 0, 2], crate::ROCE_PORT));
    Route { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2], ..route }
}

fn route_v6() -> Route {
    let source = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    let destination = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    Route {
        source: endpoint(source, 0xc001),
        destination: endpoint(destination, crate::ROCE_PORT),
        traffic_class: 0xab,
        hop_limit: 7,
        ..route_v4()
    }
}

/// Returns the frame of a WRITE of `payload`, as the NIC writes it.
fn frame(route: &Route, start: Start, ip_id: u16, payload: &[u8]) -> Vec<u8> {
    let reth = reth::Repr { va: 0x1000, rkey: 0x77, dma_len: payload.len() as u32 };
    let packet = Packet::new(
        bth::Repr::new(Opcode::RC_RDMA_WRITE_ONLY, Qpn::new(5), Psn::new(6)),
        Extensions { reth: Some(reth), ..Extensions::NONE },
        payload,
    );
    let bth_at = start.overhead(route.source.address.is_ipv4());
    let mut bytes = vec![0x5a; bth_at + packet.buffer_len()];
    assert_eq!(route.emit(start, ip_id, packet.buffer_len() as u16, &mut bytes), bth_at);
    let icrc_at = bth_at + packet.emit(&mut bytes[bth_at..]);
    let sealed = Flow::new(route.source, route.destination).seal(ip_id, &bytes[bth_at..icrc_at]);
    icrc::write(&mut bytes, sealed);
    bytes
}

#[test]
fn literal_bytes() {
    let bytes = frame(&route_v4(), Start::Ethernet, 3, b"hi");
    let expected = [
        0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, // Ethernet
        0x45, 0x00, 0x00, 0x40, 0x00, 0x03, 0x40, 0x00, 0x40, 0x11, 0x26,
        0xa8, // IPv4: 64 bytes, id 3, DF
        0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, //
        0xc0, 0x01, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00, // UDP: 44 bytes, no checksum
        0x0a, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x06, // BTH: MigReq, pad 2
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x77, 0x00, 0x00, 0x00,
        0x02, // RETH
        b'h', b'i', 0x00, 0x00,
    ];
    assert_eq!(bytes[..expected.len()], expected);
    assert_eq!(bytes.len(), expected.len() + icrc::LEN);
}

#[test]
fn a_frame_is_the_tail_of_the_one_that_begins_earlier() {
    for route in [route_v4(), route_v6()] {
        let whole = frame(&route, Start::Ethernet, 9, &[1, 2, 3]);
        let is_ipv4 = route.source.address.is_ipv4();
        for start in [Start::Ip, Start::Bth] {
            let skipped = Start::Ethernet.overhead(is_ipv4) - start.overhead(is_ipv4);
            assert_eq!(frame(&route, start, 9, &[1, 2, 3]), whole[skipped..]);
        }
    }
    assert_eq!([true, false].map(|v4| Start::Ethernet.overhead(v4)), [42, 62]);
    assert_eq!([true, false].map(|v4| Start::Ip.overhead(v4)), [28, 48]);
}

#[test]
fn dissected_frames_come_back() {
    for route in [route_v4(), route_v6()] {
        for start in [Start::Ethernet, Start::Ip, Start::Bth] {
            let bytes = frame(&route, start, 77, b"payload");
            let dissected = dissect(start, &bytes).unwrap();
            assert_eq!(dissected.ethernet.is_some(), start == Start::Ethernet);
            if let Some((network, udp)) = &dissected.network {
                assert_eq!(network.addresses(), (route.source.address, route.destination.address));
                assert_eq!((udp.source_port, udp.destination_port), (0xc001, 4791));
                assert_eq!(network.ip_id(), if route.source.address.is_ipv4() { 77 } else { 0 });
                assert_eq!(Flow::of(network, udp), Flow::new(route.source, route.destination));
            }
            assert_eq!(dissected.packet.payload, b"payload");
            assert_eq!(Some(dissected.icrc), icrc::read(&bytes));
            let mut again = vec![0x5a; dissected.buffer_len()];
            assert_eq!(dissected.emit(&mut again), bytes.len());
            assert_eq!(again, bytes);
        }
    }
}

#[test]
fn ethernet_padding_is_dropped() {
    let bytes = frame(&route_v4(), Start::Ethernet, 0, b"");
    let mut padded = bytes.clone();
    padded.resize(bytes.len() + 18, 0xee);
    assert_eq!(dissect(Start::Ethernet, &padded), dissect(Start::Ethernet, &bytes));
}

#[test]
fn every_truncation_is_an_error_or_a_wrong_icrc() {
    for route in [route_v4(), route_v6()] {
        let flow = Flow::new(route.source, route.destination);
        for start in [Start::Ethernet, Start::Ip, Start::Bth] {
            let bytes = frame(&route, start, 0, b"payload");
            for len in 0..bytes.len() {
                if let Ok(dissected) = dissect(start, &bytes[..len]) {
                    // No header before the BTH contains the length of the packet.
                    assert_eq!((start, len % 4), (Start::Bth, 0), "{len}");
                    assert!(!flow.accepts(0, &bytes[..len - icrc::LEN], dissected.icrc), "{len}");
                }
            }
        }
    }
}

#[test]
fn refusals_name_their_cause() {
    let with = |route: &Route, edit: &dyn Fn(&mut [u8])| {
        let mut bytes = frame(route, Start::Ethernet, 0, b"payload");
        edit(&mut bytes);
        dissect(Start::Ethernet, &bytes).unwrap_err()
    };
    let v4 = route_v4();
    let v6 = route_v6();
    assert_eq!(with(&v4, &|b| b[13] = 0x06), WireError::NotIp, "ARP");
    assert_eq!(
        with(&v4, &|b| b[12..14].copy_from_slice(&[0x86, 0xdd])),
        WireError::NotIp,
        "the EtherType differs from the IP version"
    );
    assert_eq!(
        with(&v6, &|b| b[12..14].copy_from_slice(&[0x08, 0x00])),
        WireError::NotIp,
        "the EtherType differs from the IP version"
    );
    assert_eq!(with(&v4, &|b| b[14] = 0x55), WireError::NotIp);
    assert_eq!(with(&v4, &|b| b[14] = 0x46), WireError::IpOptions);
    assert_eq!(with(&v4, &|b| b[20] = 0x60), WireError::Fragment);
    assert_eq!(with(&v4, &|b| b[22] = 63), WireError::IpChecksum);
    let tcp = |b: &mut [u8]| {
        b[23] = 6;
        b[25] += 17 - 6;
    };
    assert_eq!(with(&v4, &tcp), WireError::NotUdp, "TCP, with its checksum");
    assert_eq!(with(&v6, &|b| b[20] = 6), WireError::NotUdp, "TCP");
    assert_eq!(with(&v6, &|b| b[59] -= 4), WireError::Length, "UDP ends before IP does");
    assert_eq!(
        with(&v6, &|b| b[58..60].fill(0)),
        WireError::Length,
        "the UDP length is less than the UDP header"
    );
    assert_eq!(with(&v6, &|b| b[59] += 4), WireError::Truncated, "UDP ends after IP does");
    assert_eq!(with(&v6, &|b| b[62] = 0x1d), WireError::UnknownOpcode(0x1d));
}

#[test]
fn addresses_are_gids() {
    let four = Address::from(Ipv4Addr::new(10, 1, 2, 3));
    assert_eq!(four.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
    assert_eq!((four.as_ipv4(), four.is_ipv4()), (Some(Ipv4Addr::new(10, 1, 2, 3)), true));
    assert_eq!(IpAddr::from(four), IpAddr::from([10, 1, 2, 3]));
    assert_eq!(Endpoint { address: four, udp_port: 4791 }.to_string(), "10.1.2.3:4791");
    let six = Address::from(Ipv6Addr::LOCALHOST);
    assert_eq!((six.as_ipv4(), six.is_ipv4()), (None, false), "::1 is no IPv4 address");
    assert_eq!(IpAddr::from(six), IpAddr::from(Ipv6Addr::LOCALHOST));
    assert_eq!(Endpoint { address: six, udp_port: 1 }.to_string(), "[::1]:1");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer(
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 48 } else { 160 }),
        start in prop::sample::select(vec![Start::Ethernet, Start::Ip, Start::Bth]),
    ) {
        // Parsing must not panic, and a parsed frame must be reproduced.
        if let Ok(dissected) = dissect(start, &bytes) {
            let mut again = vec![0; dissected.buffer_len()];
            dissected.emit(&mut again);
            prop_assert_eq!(dissect(start, &again), Ok(dissected));
        }
    }

    /// Overwrites some bytes of a valid frame, which reaches more code than random bytes.
    #[test]
    fn a_damaged_frame_is_an_answer(
        six: bool,
        payload in prop::collection::vec(any::<u8>(), 0..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = frame(&if six { route_v6() } else { route_v4() }, Start::Ethernet, 0, &payload);
        for (position, value) in damage {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        if let Ok(dissected) = dissect(Start::Ethernet, &bytes) {
            let mut again = vec![0; dissected.buffer_len()];
            dissected.emit(&mut again);
            prop_assert_eq!(dissect(Start::Ethernet, &again), Ok(dissected));
        }
    }
}
