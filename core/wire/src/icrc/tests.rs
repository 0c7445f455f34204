use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::frame::{Network, Route};

/// An ACK sent by Linux Soft-RoCE, from the IPv4 header on.
const LINUX_ACK: [u8; 48] = [
    0x45, 0x00, 0x00, 0x30, 0xac, 0xfe, 0x40, 0x00, 0x40, 0x11, 0x79, 0x20, 0x0a, 0x4d, 0x00, 0x03, 0x0a,
    0x4d, 0x00, 0x02, 0xc2, 0xac, 0x12, 0xb7, 0x00, 0x1c, 0x00, 0x00, 0x11, 0x00, 0xff, 0xff, 0x00, 0x00,
    0x00, 0x26, 0x00, 0x55, 0xb4, 0x3e, 0x1f, 0x00, 0x00, 0x01, 0x90, 0x34, 0x52, 0x4b,
];

/// Maximum frame length in bytes; shorter under Miri, which is slow.
const LONGEST: usize = if cfg!(miri) { 400 } else { 9000 };

fn endpoint(address: impl Into<IpAddr>, udp_port: u16) -> Endpoint {
    Endpoint { address: address.into().into(), udp_port }
}

fn any_route() -> impl Strategy<Value = Route> {
    let v4 = any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<(u128, u128)>()
        .prop_map(|(a, b)| (Ipv6Addr::from(a | 1 << 127).into(), Ipv6Addr::from(b | 1 << 127).into()));
    (prop_oneof![v4, v6], any::<(u16, u16, u8, u8)>()).prop_map(|((a, b), (sport, dport, class, hops))| {
        Route { traffic_class: class, hop_limit: hops, ..Route::new(endpoint(a, sport), endpoint(b, dport)) }
    })
}

/// Computes the ICRC by definition for the headers of `route`.
fn by_definition(route: &Route, ip_id: u16, transport: &[u8]) -> u32 {
    let (_, network, udp) = route.headers(ip_id, (transport.len() + LEN) as u16);
    let mut ip_bytes = [0; 40];
    let ip_len = network.emit(&mut ip_bytes);
    let mut udp_bytes = [0; 8];
    udp.emit(&mut udp_bytes);
    compute(&ip_bytes[..ip_len], &udp_bytes, transport)
}

#[test]
fn literal_bytes_of_linux() {
    let (ip, rest) = LINUX_ACK.split_at(20);
    let (udp, transport) = rest.split_at(8);
    let (transport, _) = transport.split_at(16);
    assert_eq!(read(&LINUX_ACK), Some(0x4b52_3490));
    assert_eq!(compute(ip, udp, transport), 0x4b52_3490);
    let flow = Flow::new(
        endpoint(Ipv4Addr::new(10, 77, 0, 3), 0xc2ac),
        endpoint(Ipv4Addr::new(10, 77, 0, 2), crate::ROCE_PORT),
    );
    assert_eq!(flow.seal(0xacfe, transport), 0x4b52_3490);
    assert!(flow.accepts(0xacfe, transport, 0x4b52_3490));
    assert!(!flow.accepts(0xacff, transport, 0x4b52_3490));
}

#[test]
fn write_and_read_are_little_endian() {
    let mut bytes = [0; 6];
    write(&mut bytes, 0x0102_0304);
    assert_eq!(bytes, [0, 0, 4, 3, 2, 1]);
    assert_eq!(read(&bytes), Some(0x0102_0304));
    assert_eq!(read(&bytes[..3]), None);
}

/// Compares `compute` with an independent bitwise CRC, because `compute` and `seal` share a library.
#[test]
fn the_polynomial_is_that_of_ethernet() {
    let (ip, rest) = LINUX_ACK.split_at(20);
    let mut bytes = vec![0xff; 8];
    bytes.extend_from_slice(ip);
    bytes.extend_from_slice(&rest[..24]);
    for masked in [1, 8, 10, 11, 26, 27, 32] {
        bytes[8 + masked] = 0xff;
    }
    let mut state = !0u32;
    for byte in bytes {
        state ^= u32::from(byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { state >> 1 ^ 0xedb8_8320 } else { state >> 1 };
        }
    }
    assert_eq!(!state, 0x4b52_3490);
}

/// Flips each bit of a frame and checks that the ICRC covers exactly the bits that the definition does not
/// mask.
#[test]
fn exactly_the_masked_bits_are_free() {
    for (source, destination, masked) in [
        (
            IpAddr::from([10, 0, 0, 1]),
            IpAddr::from([10, 0, 0, 2]),
            vec![(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)],
        ),
        (
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2]),
            vec![(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)],
        ),
    ] {
        let mut bytes = [0x11; 100];
        let route = Route::new(endpoint(source, 7), endpoint(destination, 4791));
        let bth = route.emit(crate::Start::Ip, 5, 24, &mut bytes);
        let icrc = |bytes: &[u8]| compute(&bytes[..bth - 8], &bytes[bth - 8..bth], &bytes[bth..bth + 20]);
        let right = icrc(&bytes);
        // Miri is slow, so only every thirteenth bit is flipped, over all positions in a byte.
        for bit in (0..(bth + 20) * 8).step_by(if cfg!(miri) { 13 } else { 1 }) {
            let index = bit / 8;
            let mask = 1u8 << (bit % 8);
            let mut other = bytes;
            other[index] ^= mask;
            let free = masked.iter().any(|(byte, bits)| *byte == index && bits & mask != 0)
                || [bth - 2, bth - 1, bth + 4].contains(&index);
            assert_eq!(icrc(&other) == right, free, "bit {bit} of {source}");
        }
    }
}

#[test]
fn an_unknown_id_is_found_up_to_127_and_no_further() {
    let route = Route::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let flow = Flow::new(route.source, route.destination);
    let mut spans = IdSpans::new();
    // Miri is slow, so it tests two short lengths and a few identifications.
    let (lengths, near, far) =
        if cfg!(miri) { (&[12, 28][..], 7, 8191) } else { (&[12, 16, 28, 92, 1040, 4112][..], 1, 1) };
    for &len in lengths {
        let transport: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let right = flow.seal(0, &transport);
        for id in (0..300).step_by(near) {
            let received = right ^ delta(id, len);
            assert_eq!(received, flow.seal(id, &transport), "delta says the same as sealing anew");
            let expected = (id <= MAX_UNKNOWN_ID).then_some(id);
            assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, received), expected, "{id} of {len}");
        }
        for id in (300..=u16::MAX).step_by(far) {
            let far = flow.seal(id, &transport);
            assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, far), None, "{id} of {len}");
        }
    }
}

/// Checks that with an unknown identification 128 of the 2^32 possible ICRCs are accepted.
#[test]
fn an_unknown_id_leaves_25_bits_of_check() {
    let flow = Flow::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let mut spans = IdSpans::new();
    let transport = [0x2a; 92];
    let right = flow.seal(0, &transport);
    // All single-bit errors, and all bursts of up to 24 bits within the ICRC field, are detected.
    for width in (1..=24).step_by(if cfg!(miri) { 9 } else { 1 }) {
        for shift in 0..=32 - width {
            let burst = ((1u64 << width) - 1) << shift;
            assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, right ^ burst as u32), None);
        }
    }
    let mut other = transport;
    for bit in (0..other.len() * 8).step_by(if cfg!(miri) { 31 } else { 1 }) {
        other[bit / 8] ^= 1 << (bit % 8);
        let masked = bit / 8 == MASKED_BTH_BYTE;
        assert_eq!(flow.accepts_unknown_id(&mut spans, &other, right).is_some(), masked, "bit {bit}");
        other[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn any_id_of_16_bits_is_found() {
    let route = Route::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let flow = Flow::new(route.source, route.destination);
    let mut spans = IdSpans::new();
    // Miri is slow, so it tests one short length and a few identifications.
    let (lengths, step) = if cfg!(miri) { (&[12][..], 8191) } else { (&[12, 16, 28, 92, 1040, 4112][..], 1) };
    for &len in lengths {
        let transport: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let right = flow.seal(0, &transport);
        for id in (0..=u16::MAX).step_by(step) {
            let syndrome = flow.syndrome(&transport, right ^ delta(id, len));
            assert_eq!(syndrome.any_id(&mut spans), Some(id), "{id} of {len}");
        }
    }
}

/// Checks that with an arbitrary identification 65 536 of the 2^32 possible ICRCs are accepted.
#[test]
fn any_id_leaves_16_bits_of_check() {
    let flow = Flow::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let mut spans = IdSpans::new();
    let transport = [0x2a; 92];
    let right = flow.seal(0, &transport);
    let mut other = transport;
    for bit in (0..other.len() * 8).step_by(if cfg!(miri) { 31 } else { 1 }) {
        other[bit / 8] ^= 1 << (bit % 8);
        let masked = bit / 8 == MASKED_BTH_BYTE;
        assert_eq!(flow.syndrome(&other, right).any_id(&mut spans).is_some(), masked, "bit {bit}");
        other[bit / 8] ^= 1 << (bit % 8);
    }
    // The odd multiples of a number are a fair sample of all ICRCs: about one in 65 536 passes.
    let (most, tried) = if cfg!(miri) { (4, 100_u32) } else { (150, 4_000_000) };
    let passes = |number: &u32| {
        flow.syndrome(&transport, number.wrapping_mul(0x9e37_79b9)).any_id(&mut spans).is_some()
    };
    let passed = (0..tried).filter(passes).count();
    assert!(passed <= most, "{passed} of {tried}");
}

/// Uses more lengths than the cache holds, in an order that makes them collide, and checks the results.
#[test]
fn the_span_cache_at_its_bound() {
    let flow = Flow::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let mut spans = IdSpans::new();
    // The cache holds 64 lengths, and 16 for any identification.
    let (rounds, lengths) = if cfg!(miri) { (1, 70) } else { (3, 200usize) };
    for round in 0..rounds {
        for step in 0..lengths {
            let len = 12 + step * 4;
            let transport = vec![round; len];
            let received = flow.seal(77, &transport);
            assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, received), Some(77));
            assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, !received), None);
            let far = flow.seal(0xfedc, &transport);
            assert_eq!(flow.syndrome(&transport, far).any_id(&mut spans), Some(0xfedc));
        }
    }
}

#[test]
fn short_input_does_not_panic() {
    let flow = Flow::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    for len in 0..12 {
        let icrc = flow.seal(0, &[0; 12][..len]);
        assert_eq!(flow.accepts_unknown_id(&mut IdSpans::new(), &[0; 12][..len], icrc), Some(0));
        assert_eq!(flow.syndrome(&[0; 12][..len], icrc).any_id(&mut IdSpans::new()), Some(0));
        compute(&[0; 20][..len], &[], &[]);
    }
}

proptest! {
    #[test]
    fn a_flow_seals_by_the_definition(
        route in any_route(),
        ip_id: u16,
        transport in prop::collection::vec(any::<u8>(), 12..300),
    ) {
        let flow = Flow::new(route.source, route.destination);
        prop_assert_eq!(flow.seal(ip_id, &transport), by_definition(&route, ip_id, &transport));
    }

    #[test]
    fn a_flow_seals_long_frames_by_the_definition(route in any_route(), len in 300..LONGEST, fill: u8) {
        let flow = Flow::new(route.source, route.destination);
        let transport = vec![fill; len];
        prop_assert_eq!(flow.seal(3, &transport), by_definition(&route, 3, &transport));
    }

    #[test]
    fn the_flow_of_a_seen_frame_is_the_flow_of_its_endpoints(route in any_route(), ip_id: u16, len: u16) {
        let (_, network, udp) = route.headers(ip_id, len % 9000);
        prop_assert_eq!(Flow::of(&network, &udp), Flow::new(route.source, route.destination));
    }

    #[test]
    fn over_ipv6_the_check_is_exact(a: u128, b: u128, flip in 0u32..32) {
        let a = Ipv6Addr::from(a | 1 << 127);
        let b = Ipv6Addr::from(b | 1 << 127);
        let flow = Flow::new(endpoint(a, 1), endpoint(b, 2));
        let transport = [0x2a; 92];
        let right = flow.seal(0, &transport);
        let mut spans = IdSpans::new();
        prop_assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, right), Some(0));
        prop_assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, right ^ delta(1, 92)), None);
        prop_assert_eq!(flow.syndrome(&transport, right ^ delta(1, 92)).any_id(&mut spans), None);
        prop_assert_eq!(flow.accepts_unknown_id(&mut spans, &transport, right ^ 1 << flip), None);
    }
}

/// A frame without the don't-fragment flag belongs to another flow, because the ICRC covers the flag.
#[test]
fn the_fragment_flag_is_covered() {
    let route = Route::new(endpoint([10, 0, 0, 1], 5), endpoint([10, 0, 0, 2], 4791));
    let (_, network, udp) = route.headers(0, 24);
    let Network::V4(header) = network else { panic!("IPv4 addresses") };
    let other = Network::V4(ipv4::Repr { dont_fragment: false, ..header });
    assert_ne!(Flow::of(&other, &udp).seal(0, &[0; 20]), Flow::of(&network, &udp).seal(0, &[0; 20]));
}
