//! The frames that independent decoders must decode.

use std::net::{Ipv4Addr, Ipv6Addr};

use remora_wire::aeth::Syndrome;
use remora_wire::frame::{Dissected, Endpoint, Network, Route, Start, dissect};
use remora_wire::icrc::Flow;
use remora_wire::{
    Extensions, Opcode, Packet, Psn, Qpn, ROCE_PORT, aeth, atomic_ack, atomic_eth, bth, deth, icrc, ieth,
    immdt, reth, xrceth,
};

/// A frame, from the Ethernet header to the ICRC.
pub(crate) struct Case {
    /// The bytes of the frame.
    pub frame: Vec<u8>,
}

impl Case {
    pub(crate) fn dissected(&self) -> Dissected<'_> {
        dissect(Start::Ethernet, &self.frame).unwrap()
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        self.dissected().packet
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        matches!(self.dissected().network, Some((Network::V4(_), _)))
    }

    pub(crate) fn name(&self) -> String {
        format!("{} over IPv{}", self.packet(), if self.is_ipv4() { 4 } else { 6 })
    }
}

/// Pseudorandom numbers, equal in each run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn bit(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Returns a queue pair number other than 0 and 1, whose packets decoders treat as management datagrams.
    fn qpn(&mut self) -> Qpn {
        Qpn::new(self.next() as u32 | 0x1000)
    }
}

/// Returns an ACK, an RNR NAK or one of two NAKs, by variant.
fn syndrome(variant: u64, value: u8) -> Syndrome {
    match variant {
        0 => Syndrome::ack(value),
        1 => Syndrome::rnr(value),
        2 => Syndrome::nak(aeth::NakCode::REMOTE_ACCESS_ERROR),
        _ => Syndrome::nak(aeth::NakCode::PSN_SEQUENCE_ERROR),
    }
}

fn headers(opcode: Opcode, variant: u64, numbers: &mut Numbers) -> (bth::Repr, Extensions) {
    let bth = bth::Repr {
        solicited: numbers.bit(),
        mig_req: numbers.bit(),
        // Only version 0 exists, but the decoders must show any value of the field.
        tver: if variant == 3 { 5 } else { 0 },
        pkey: numbers.next() as u16,
        fecn: numbers.bit(),
        becn: numbers.bit(),
        resv6: if variant == 3 { 0x2a } else { 0 },
        ack_req: numbers.bit(),
        resv7: if variant == 3 { 0x55 } else { 0 },
        ..bth::Repr::new(opcode, numbers.qpn(), Psn::new(numbers.next() as u32))
    };
    let mut number = || numbers.next();
    let ext = Extensions {
        xrceth: opcode.has_xrceth().then(|| xrceth::Repr { srq: Qpn::new(number() as u32) }),
        deth: opcode
            .has_deth()
            .then(|| deth::Repr { qkey: number() as u32, src_qp: Qpn::new(number() as u32) }),
        reth: opcode.has_reth().then(|| reth::Repr {
            va: number(),
            rkey: number() as u32,
            dma_len: number() as u32,
        }),
        atomic: opcode.has_atomic_eth().then(|| atomic_eth::Repr {
            va: number(),
            rkey: number() as u32,
            swap_add: number(),
            compare: number(),
        }),
        aeth: opcode
            .has_aeth()
            .then(|| aeth::Repr { syndrome: syndrome(variant, number() as u8), msn: number() as u32 >> 8 }),
        atomic_ack: opcode.has_atomic_ack().then(|| atomic_ack::Repr { original: number() }),
        imm: opcode.has_imm().then(|| immdt::Repr { value: number() as u32 }),
        ieth: opcode.has_ieth().then(|| ieth::Repr { rkey: number() as u32 }),
    };
    (bth, ext)
}

fn route(is_ipv4: bool, numbers: &mut Numbers) -> Route {
    let end = |last: u8, udp_port: u16| {
        let address = if is_ipv4 {
            Ipv4Addr::new(10, 20, 30, last).into()
        } else {
            Ipv6Addr::new(0xfd00, 0x1234, 0, 0, 0xabcd, 0, 0, last.into()).into()
        };
        Endpoint { address, udp_port }
    };
    Route {
        source_mac: [2, 0, 0, 0xaa, 0xbb, 1],
        destination_mac: [2, 0, 0, 0xcc, 0xdd, 2],
        traffic_class: numbers.next() as u8,
        hop_limit: 1 + numbers.next() as u8 % 200,
        ..Route::new(end(1, 0xc000 | numbers.next() as u16), end(2, ROCE_PORT))
    }
}

fn case(opcode: Opcode, is_ipv4: bool, variant: u64) -> Case {
    let mut numbers = Numbers(u64::from(opcode.0) << 8 | u64::from(is_ipv4) << 4 | variant);
    let (bth, ext) = headers(opcode, variant, &mut numbers);
    // Each pad count has one length; a CNP has 16 reserved bytes.
    let payload = match opcode {
        Opcode::CNP => vec![0; 16],
        _ if !opcode.has_payload() => vec![],
        _ => (0..64 + variant).map(|_| numbers.next() as u8).collect(),
    };
    let packet = Packet::new(bth, ext, &payload);
    let route = route(is_ipv4, &mut numbers);
    let ip_id = numbers.next() as u16;

    let mut frame = vec![0; Start::Ethernet.overhead(is_ipv4) + packet.buffer_len()];
    let bth_at = route.emit(Start::Ethernet, ip_id, packet.buffer_len() as u16, &mut frame);
    let icrc_at = bth_at + packet.emit(&mut frame[bth_at..]);
    let sealed = Flow::new(route.source, route.destination).seal(ip_id, &frame[bth_at..icrc_at]);
    icrc::write(&mut frame, sealed);
    Case { frame }
}

/// Returns four cases of every op-code over IPv4 and IPv6 each.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for opcode in (0..=255).map(Opcode).filter(|opcode| opcode.is_known()) {
        for is_ipv4 in [true, false] {
            all.extend((0..4).map(|variant| case(opcode, is_ipv4, variant)));
        }
    }
    all
}
