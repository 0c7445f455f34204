//! The fields that tshark must show for a frame.
//!
//! tshark 4.0 decodes neither XRC's extension headers nor the CNP of RoCE v2 (0x81; it knows InfiniBand's,
//! 0x80) nor IRN's op-code 0x1f. It decodes their BTH and shows the rest as bytes, which are compared
//! instead.

use remora_wire::frame::Network;
use remora_wire::{Opcode, Service, aeth, bth};

use super::cases::Case;

/// The requested fields, in the order of the columns.
pub(crate) const FIELDS: &[&str] = &[
    "eth.dst",
    "eth.src",
    "eth.type",
    "ip.dsfield.dscp",
    "ip.dsfield.ecn",
    "ip.len",
    "ip.id",
    "ip.flags.df",
    "ip.ttl",
    "ip.proto",
    "ip.checksum.status",
    "ip.src",
    "ip.dst",
    "ipv6.tclass",
    "ipv6.flow",
    "ipv6.plen",
    "ipv6.nxt",
    "ipv6.hlim",
    "ipv6.src",
    "ipv6.dst",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "udp.checksum",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.reserved",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.reserved7",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.syndrome.opcode",
    "infiniband.aeth.syndrome.credit_count",
    "infiniband.aeth.syndrome.timer",
    "infiniband.aeth.syndrome.error_code",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.payload",
    "data.data",
    "infiniband.invariant.crc",
    "infiniband.vendor",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a number that tshark prints in decimal or with the prefix 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The decoded fields of one frame, for comparison with expected values.
struct Row<'a> {
    case: &'a Case,
    shown: &'a dyn Fn(&str) -> &'a str,
}

impl Row<'_> {
    fn number(&self, field: &str, expected: impl Into<u64>) {
        let expected = expected.into();
        // tshark shows some fields twice: in the tree and in a summary.
        for shown in (self.shown)(field).split(',') {
            assert_eq!(number(shown), Some(expected), "{field} {shown} of {}", self.case.name());
        }
    }

    fn text(&self, field: &str, expected: impl ToString) {
        for shown in (self.shown)(field).split(',') {
            assert_eq!(shown, expected.to_string(), "{field} of {}", self.case.name());
        }
    }

    /// Compares the fields of a header, or checks that they are absent. Returns the number of present
    /// fields.
    fn numbers(&self, fields: &[(&str, Option<u64>)]) -> usize {
        for (field, expected) in fields {
            match expected {
                Some(expected) => self.number(field, *expected),
                None => self.text(field, ""),
            }
        }
        fields.iter().filter(|(_, expected)| expected.is_some()).count()
    }
}

/// Compares all columns of a frame. Returns the number of its extension header fields.
pub(crate) fn compare<'a>(case: &'a Case, shown: &'a dyn Fn(&str) -> &'a str) -> usize {
    let row = Row { case, shown };
    below(&row);
    let packet = case.packet();
    base(&row, &packet.bth);
    let transport = &case.frame[case.frame.len() - packet.buffer_len()..];
    let strom = Opcode::STROM_RPC_PARAMS.0..=Opcode::STROM_RPC_WRITE_ONLY.0;
    let taken_apart =
        !matches!(packet.bth.opcode.service(), Some(Service::Xrc | Service::Cnp | Service::Prism))
            && packet.bth.opcode != Opcode::IRN_READ_ACKNOWLEDGE
            && !strom.contains(&packet.bth.opcode.0);
    if !taken_apart && !shown("infiniband.vendor").is_empty() {
        let unknown = shown("infiniband.vendor").rsplit(',').next().unwrap();
        assert_eq!(unknown, hex(&transport[bth::LEN..]), "{}", case.name());
        return 0;
    }
    row.text("infiniband.vendor", "");
    let icrc_at = transport.len() - 4;
    row.text("infiniband.invariant.crc", format!("0x{}", hex(&transport[icrc_at..])));
    // tshark 4.0 includes the pad in the payload.
    let payload = [shown("infiniband.payload"), shown("data.data")].concat();
    let padded = hex(&transport[packet.bth.opcode.header_len()..icrc_at]);
    assert!(payload == hex(packet.payload) || payload == padded, "payload {payload} of {}", case.name());
    extensions(&row)
}

/// Compares Ethernet, IP and UDP headers.
fn below(row: &Row<'_>) {
    let frame = row.case.dissected();
    row.text("eth.dst", "02:00:00:cc:dd:02");
    row.text("eth.src", "02:00:00:aa:bb:01");
    row.number("eth.type", frame.ethernet.unwrap().ethertype);
    let (network, udp) = frame.network.unwrap();
    match network {
        Network::V4(ip) => {
            row.number("ip.dsfield.dscp", ip.dscp);
            row.number("ip.dsfield.ecn", ip.ecn);
            row.number("ip.len", ip.payload_len + 20);
            row.number("ip.id", ip.ident);
            row.number("ip.flags.df", ip.dont_fragment);
            row.number("ip.ttl", ip.ttl);
            row.number("ip.proto", 17u8);
            row.number("ip.checksum.status", 1u8);
            row.text("ip.src", ip.source);
            row.text("ip.dst", ip.destination);
            row.text("ipv6.plen", "");
        }
        Network::V6(ip) => {
            row.number("ipv6.tclass", ip.traffic_class);
            row.number("ipv6.flow", ip.flow_label);
            row.number("ipv6.plen", ip.payload_len);
            row.number("ipv6.nxt", 17u8);
            row.number("ipv6.hlim", ip.hop_limit);
            row.text("ipv6.src", ip.source);
            row.text("ipv6.dst", ip.destination);
            row.text("ip.len", "");
        }
    }
    row.number("udp.srcport", udp.source_port);
    row.number("udp.dstport", 4791u16);
    row.number("udp.length", udp.payload_len + 8);
    row.number("udp.checksum", 0u8);
}

fn base(row: &Row<'_>, bth: &bth::Repr) {
    row.number("infiniband.bth.opcode", bth.opcode.0);
    row.number("infiniband.bth.se", bth.solicited);
    row.number("infiniband.bth.m", bth.mig_req);
    row.number("infiniband.bth.padcnt", bth.pad);
    row.number("infiniband.bth.tver", bth.tver);
    row.number("infiniband.bth.p_key", bth.pkey);
    // tshark shows FECN and BECN as a reserved byte, followed by the reserved bytes of other headers.
    let congestion = u8::from(bth.fecn) << 7 | u8::from(bth.becn) << 6 | bth.resv6;
    let reserved = (row.shown)("infiniband.reserved").split(',').next();
    assert_eq!(reserved, Some(hex(&[congestion]).as_str()), "BTH byte 4 of {}", row.case.name());
    row.number("infiniband.bth.destqp", bth.dest_qp.get());
    row.number("infiniband.bth.a", bth.ack_req);
    row.number("infiniband.bth.reserved7", bth.resv7);
    row.number("infiniband.bth.psn", bth.psn.get());
}

fn extensions(row: &Row<'_>) -> usize {
    let ext = row.case.packet().ext;
    let kind = ext.aeth.map(|aeth| aeth.syndrome.kind());
    let credits =
        kind.and_then(|kind| if let aeth::Kind::Ack { credits } = kind { Some(credits) } else { None });
    let timer = kind.and_then(|kind| if let aeth::Kind::Rnr { timer } = kind { Some(timer) } else { None });
    let code = kind.and_then(|kind| if let aeth::Kind::Nak(code) = kind { Some(code.0) } else { None });
    // tshark uses the RETH's field names for address and key of an AtomicETH.
    let va = ext.reth.map(|reth| reth.va).or(ext.atomic.map(|atomic| atomic.va));
    let rkey = ext.reth.map(|reth| reth.rkey).or(ext.atomic.map(|atomic| atomic.rkey));
    let mut count = row.numbers(&[
        ("infiniband.deth.q_key", ext.deth.map(|deth| deth.qkey.into())),
        ("infiniband.deth.srcqp", ext.deth.map(|deth| deth.src_qp.get().into())),
        ("infiniband.reth.va", va),
        ("infiniband.reth.r_key", rkey.map(u64::from)),
        ("infiniband.reth.dmalen", ext.reth.map(|reth| reth.dma_len.into())),
        ("infiniband.atomiceth.swapdt", ext.atomic.map(|atomic| atomic.swap_add)),
        ("infiniband.atomiceth.cmpdt", ext.atomic.map(|atomic| atomic.compare)),
        ("infiniband.aeth.syndrome", ext.aeth.map(|aeth| aeth.syndrome.0.into())),
        ("infiniband.aeth.syndrome.opcode", ext.aeth.map(|aeth| u64::from(aeth.syndrome.0 >> 5 & 3))),
        ("infiniband.aeth.syndrome.credit_count", credits.map(u64::from)),
        ("infiniband.aeth.syndrome.timer", timer.map(u64::from)),
        ("infiniband.aeth.syndrome.error_code", code.map(u64::from)),
        ("infiniband.aeth.msn", ext.aeth.map(|aeth| aeth.msn.into())),
        ("infiniband.atomicacketh.origremdt", ext.atomic_ack.map(|ack| ack.original)),
    ]);
    let imm = ext.imm.map(|imm| hex(&imm.value.to_be_bytes()));
    let ieth = ext.ieth.map(|ieth| hex(&ieth.rkey.to_be_bytes()));
    count += usize::from(imm.is_some()) + usize::from(ieth.is_some());
    row.text("infiniband.immdt", imm.unwrap_or_default());
    row.text("infiniband.ieth", ieth.unwrap_or_default());
    count
}
