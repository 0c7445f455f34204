//! Tests of the bytes of each part of a MAD: literal bytes, of which most are in the Soft-RoCE capture, the
//! bits that IBTA reserves, and the bits around each narrow field.

use super::super::*;
use crate::{Psn, Qpn, WireError};
use core::net::Ipv4Addr;
use proptest::prelude::*;

/// Bytes of a part, with zeros up to its length, and functions of its module.
struct Part {
    name: &'static str,
    literal: Vec<u8>,
    /// Bytes and their bits that are sent as zero and ignored on receipt.
    reserved: &'static [(usize, u8)],
    /// Parses and emits, over bytes that are not zero.
    again: fn(&[u8]) -> Result<Vec<u8>, WireError>,
}

impl Part {
    fn without_reserved(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        self.reserved.iter().for_each(|(offset, bits)| bytes[*offset] &= !bits);
        bytes
    }
}

macro_rules! part {
    ($part:ident, $hex:expr, [$($offset:literal & $bits:literal),*]) => {
        Part {
            name: stringify!($part),
            literal: bytes($hex, $part::LEN),
            reserved: &[$(($offset, $bits)),*],
            again: |bytes| {
                let mut out = vec![0x5a; $part::LEN + 1];
                $part::Repr::parse(&$part::View::new(bytes)?).emit(&mut out);
                assert_eq!(out.pop(), Some(0x5a));
                Ok(out)
            },
        }
    };
}

/// Returns `len` bytes that start with these hexadecimal ones and are zero otherwise.
fn bytes(hex: &str, len: usize) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let mut bytes: Vec<u8> =
        digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    bytes.resize(len, 0);
    bytes
}

const HEADER: &str = "01 07 02 03 0000 0000 00000002c181a888 0010 0000 00000000";
const REQ: &str = "88a881c1 00000000 0000000001061c06 505400fffe4d0002 00000000 00000000 00003001 00000001 \
    000000a0 cb9790a7 ffff37f0 ffffffff00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0003 \
    5f387000 00400098 0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
    0040b45f 0000000000000000000000000a4d0002 0000000000000000000000000a4d0003";
const MRA: &str = "67571cca 88a881c1 40 c0 0102030405";
const REJ: &str = "00000000 88a881c1 00 02 0008 ab";
const REP: &str = "67571cca 88a881c1 00000000 00001c00 00000000 1fc3c400 01 01 78 e0 505400fffe4d0003";
const RTU: &str = "88a881c1 67571cca";
const DREQ: &str = "88a881c1 67571cca 00001c00";
const DREP: &str = "67571cca 88a881c1";
const SIDR_REQ: &str = "01020304 ffff 0000 0000000001111c36 0040 1c37";
const SIDR_REP: &str = "01020304 00 00 0000 00001c00 0000000001111c36 01234567";
const PATH: &str =
    "ffff ffff 00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0003 5f387000 00400098";
const CLASS_PORT_INFO: &str = "01 02 3200 00000012";

fn parts() -> [Part; 11] {
    [
        part!(header, HEADER, [18 & 0xff, 19 & 0xff]),
        part!(
            req,
            REQ,
            [
                4 & 0xff,
                5 & 0xff,
                6 & 0xff,
                7 & 0xff,
                24 & 0xff,
                25 & 0xff,
                26 & 0xff,
                27 & 0xff,
                90 & 0x0f,
                91 & 0xc0,
                94 & 0x07,
                95 & 0x07,
                134 & 0x0f,
                135 & 0xc0,
                138 & 0x07,
                139 & 0x07
            ]
        ),
        part!(mra, MRA, [8 & 0x3f, 9 & 0x07]),
        part!(rej, REJ, [8 & 0x3f, 9 & 0x01]),
        part!(rep, REP, [15 & 0xff, 19 & 0xff, 23 & 0xff, 27 & 0x0f]),
        part!(rtu, RTU, []),
        part!(dreq, DREQ, [11 & 0xff]),
        part!(drep, DREP, []),
        part!(sidr_req, SIDR_REQ, [6 & 0xff, 7 & 0xff]),
        part!(sidr_rep, SIDR_REP, [6 & 0xff, 7 & 0xff, 11 & 0xff]),
        part!(path, PATH, [38 & 0x0f, 39 & 0xc0, 42 & 0x07, 43 & 0x07]),
    ]
}

#[test]
fn literal_bytes_come_back_and_each_cut_is_an_error() {
    for part in parts() {
        assert_eq!((part.again)(&part.literal).as_ref(), Ok(&part.literal), "{}", part.name);
        for len in 0..part.literal.len() {
            assert_eq!((part.again)(&part.literal[..len]), Err(WireError::Truncated), "{}", part.name);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_come_back_but_for_the_reserved_bits(any in proptest::collection::vec(any::<u8>(), BODY_LEN)) {
        for part in parts() {
            let any = &any[..part.literal.len()];
            match (part.again)(any) {
                Ok(out) => prop_assert_eq!(out, part.without_reserved(any), "{}", part.name),
                Err(error) => prop_assert!(error == WireError::Length && part.name.starts_with(['r', 's'])),
            }
        }
    }
}

/// Asserts that the literal bytes of a part have this value, and the value this text. Fields that are not
/// listed are zero.
macro_rules! assert_value {
    ($part:ident, $hex:ident, $text:expr, $($field:ident: $value:expr),* $(,)?) => {
        let literal = bytes($hex, $part::LEN);
        #[allow(clippy::needless_update, reason = "some parts have all of their fields listed")]
        let value = $part::Repr { $($field: $value,)* ..$part::Repr::default() };
        assert_eq!($part::Repr::parse(&$part::View::new(&literal).unwrap()), value);
        assert_eq!(value.to_string(), $text);
    };
}

/// Returns the start of private data.
fn private<const N: usize>(start: &[u8]) -> [u8; N] {
    let mut data = [0; N];
    data[..start.len()].copy_from_slice(start);
    data
}

const ACTIVE: u32 = 0x88a8_81c1;
const PASSIVE: u32 = 0x6757_1cca;

#[test]
fn literal_bytes_of_a_req() {
    let primary = path::Repr {
        local_lid: path::PERMISSIVE_LID,
        remote_lid: path::PERMISSIVE_LID,
        local_gid: Ipv4Addr::new(10, 77, 0, 2).into(),
        remote_gid: Ipv4Addr::new(10, 77, 0, 3).into(),
        flow_label: 0x5f387,
        hop_limit: 64,
        ack_timeout: 19,
        ..path::Repr::default()
    };
    let path_text = "10.77.0.2->10.77.0.3 flow_label=0x5f387 traffic_class=0 ack_timeout=19";
    assert_eq!(path::Repr::parse(&path::View::new(&bytes(PATH, path::LEN)).unwrap()), primary);
    assert_eq!(primary.to_string(), path_text);
    assert!(primary.is_present() && !path::Repr::default().is_present());
    assert_value!(
        req,
        REQ,
        format!(
            "local_comm_id=0x88a881c1 service_id=0x0000000001061c06 local_qpn=0x000030 \
             starting_psn=13342608 path_mtu=3 primary={path_text}"
        ),
        local_comm_id: ACTIVE,
        service_id: ServiceId::rdma_ip(PortSpace::Tcp, 7174),
        local_ca_guid: 0x5054_00ff_fe4d_0002,
        local_qpn: Qpn::new(0x30),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        starting_psn: Psn::new(0xcb_9790),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        primary: primary,
        private_data: private(&bytes(REQ, req::LEN)[140..][..ip_cm::LEN]),
    );
}

#[test]
fn literal_bytes_of_an_mra_a_rej_and_a_rep() {
    assert_value!(
        mra,
        MRA,
        "local_comm_id=0x67571cca remote_comm_id=0x88a881c1 answered=Rep service_timeout=24",
        local_comm_id: PASSIVE,
        remote_comm_id: ACTIVE,
        answered: Answered::Rep,
        service_timeout: 24,
        private_data: private(&[1, 2, 3, 4, 5]),
    );
    assert_value!(
        rej,
        REJ,
        "local_comm_id=0x00000000 remote_comm_id=0x88a881c1 answered=Req reason=invalid service id",
        remote_comm_id: ACTIVE,
        info_len: 1,
        reason: RejectReason::INVALID_SERVICE_ID,
        info: private(&[0xab]),
    );
    let refusal = rej::Repr::new(0, ACTIVE, Answered::Req, RejectReason::INVALID_SERVICE_ID, &[0xab], &[]);
    assert_eq!(rej::Repr::parse(&rej::View::new(&bytes(REJ, rej::LEN)).unwrap()), refusal);
    assert_value!(
        rep,
        REP,
        "local_comm_id=0x67571cca remote_comm_id=0x88a881c1 local_qpn=0x00001c starting_psn=2081732",
        local_comm_id: PASSIVE,
        remote_comm_id: ACTIVE,
        local_qpn: Qpn::new(0x1c),
        starting_psn: Psn::new(0x1f_c3c4),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        rnr_retry_count: 7,
        local_ca_guid: 0x5054_00ff_fe4d_0003,
    );
}

#[test]
fn literal_bytes_of_an_rtu_a_dreq_and_a_drep() {
    let text = "local_comm_id=0x88a881c1 remote_comm_id=0x67571cca";
    assert_value!(rtu, RTU, text, local_comm_id: ACTIVE, remote_comm_id: PASSIVE);
    let text = "local_comm_id=0x88a881c1 remote_comm_id=0x67571cca remote_qpn=0x00001c";
    let remote_qpn = Qpn::new(0x1c);
    assert_value!(dreq, DREQ, text, local_comm_id: ACTIVE, remote_comm_id: PASSIVE, remote_qpn: remote_qpn);
    let text = "local_comm_id=0x67571cca remote_comm_id=0x88a881c1";
    assert_value!(drep, DREP, text, local_comm_id: PASSIVE, remote_comm_id: ACTIVE);
}

#[test]
fn literal_bytes_of_sidr() {
    let service_id = ServiceId::rdma_ip(PortSpace::Udp, 7222);
    assert_value!(
        sidr_req,
        SIDR_REQ,
        "request_id=0x01020304 service_id=0x0000000001111c36",
        request_id: 0x0102_0304,
        pkey: 0xffff,
        service_id: service_id,
        private_data: private(&[0, 0x40, 0x1c, 0x37]),
    );
    assert_value!(
        sidr_rep,
        SIDR_REP,
        "request_id=0x01020304 status=SidrStatus(0) qpn=0x00001c qkey=0x01234567",
        request_id: 0x0102_0304,
        qpn: Qpn::new(0x1c),
        service_id: service_id,
        qkey: 0x0123_4567,
    );
}

#[test]
fn literal_bytes_of_the_header_and_of_class_port_info() {
    let value = header::Repr::cm(Method::SEND, 0x2_c181_a888, Attribute::REQ);
    assert_eq!(header::Repr::parse(&header::View::new(&bytes(HEADER, header::LEN)).unwrap()), value);
    assert_eq!(value.to_string(), "class=0x07.2 method=0x03 status=0 tid=0x2c181a888 REQ");
    assert_eq!(Attribute(0x1b).to_string(), "0x001b");
    use class_port_info::{RELIABLE_CONNECTION, SIDR, UNRELIABLE_CONNECTION};
    assert_value!(
        class_port_info,
        CLASS_PORT_INFO,
        "class_version=2 capabilities=0x3200 response_time=18",
        base_version: 1,
        class_version: 2,
        capabilities: RELIABLE_CONNECTION | UNRELIABLE_CONNECTION | SIDR,
        response_time: 18,
    );
}

#[test]
fn of_class_port_info_only_the_first_eight_bytes_are_sent_and_parsed() {
    let info = part!(class_port_info, CLASS_PORT_INFO, []);
    let [literal, mut ones] = [info.literal.clone(), vec![0xff; class_port_info::LEN]];
    assert_eq!((info.again)(&literal), Ok(literal));
    let out = (info.again)(&ones);
    ones[8..].fill(0);
    assert_eq!(out, Ok(ones));
    assert_eq!((info.again)(&[0; class_port_info::LEN - 1]), Err(WireError::Truncated));
}

#[test]
fn information_longer_than_its_field_is_an_error() {
    let mut refusal = bytes(REJ, rej::LEN);
    for len in 0..128_u8 {
        refusal[9] = len << 1;
        let view = rej::View::new(&refusal);
        assert_eq!(view.is_err(), usize::from(len) > INFO_LEN, "{len}");
        match view {
            Ok(view) => assert_eq!(rej::Repr::parse(&view).info(), &refusal[12..][..usize::from(len)]),
            Err(error) => assert_eq!(error, WireError::Length),
        }
    }
    let cut = rej::Repr::new(0, 0, Answered::Rep, RejectReason(0), &[7; 100], &[8; 200]);
    assert_eq!((cut.info_len, cut.info(), cut.private_data), (72, &[7; 72][..], [8; rej::PRIVATE_LEN]));
    let mut answer = bytes(SIDR_REP, sidr_rep::LEN);
    for len in 0..=u8::MAX {
        answer[5] = len;
        assert_eq!(sidr_rep::View::new(&answer).is_err(), usize::from(len) > INFO_LEN, "{len}");
    }
}

/// Asserts the bytes of a part of zeros in which these fields have these values.
macro_rules! assert_bytes {
    ($part:ident { $($field:ident: $value:expr),* }, $range:expr, $bytes:expr) => {
        let mut out = [0; $part::LEN];
        $part::Repr { $($field: $value,)* ..$part::Repr::default() }.emit(&mut out);
        assert_eq!(out[$range], $bytes);
        out[$range].fill(0);
        assert_eq!(out, [0; $part::LEN]);
    };
}

#[test]
fn values_beyond_their_field_do_not_reach_their_neighbours() {
    assert_bytes!(mra { answered: Answered::Reserved }, 8..10, [0xc0, 0]);
    assert_bytes!(mra { service_timeout: 0xff }, 8..10, [0, 0xf8]);
    assert_bytes!(rej { info_len: 0xff }, 8..10, [0, 0xfe]);
    assert_bytes!(rep { local_eecn: u32::MAX }, 16..20, [0xff, 0xff, 0xff, 0]);
    assert_bytes!(rep { target_ack_delay: 0xff }, 26..28, [0xf8, 0]);
    assert_bytes!(rep { failover: 0xff }, 26..28, [0x06, 0]);
    assert_bytes!(rep { flow_control: true }, 26..28, [0x01, 0]);
    assert_bytes!(rep { rnr_retry_count: 0xff }, 26..28, [0, 0xe0]);
    assert_bytes!(rep { srq: true }, 26..28, [0, 0x10]);
    assert_bytes!(req { local_eecn: u32::MAX }, 36..40, [0xff, 0xff, 0xff, 0]);
    assert_bytes!(req { remote_eecn: u32::MAX }, 40..44, [0xff, 0xff, 0xff, 0]);
    assert_bytes!(req { remote_response_timeout: 0xff }, 40..44, [0, 0, 0, 0xf8]);
    assert_bytes!(req { transport: 0xff }, 40..44, [0, 0, 0, 0x06]);
    assert_bytes!(req { flow_control: true }, 40..44, [0, 0, 0, 0x01]);
    assert_bytes!(req { local_response_timeout: 0xff }, 44..48, [0, 0, 0, 0xf8]);
    assert_bytes!(req { retry_count: 0xff }, 44..48, [0, 0, 0, 0x07]);
    assert_bytes!(req { path_mtu: 0xff }, 48..52, [0, 0, 0xf0, 0]);
    assert_bytes!(req { rdc_exists: true }, 48..52, [0, 0, 0x08, 0]);
    assert_bytes!(req { rnr_retry_count: 0xff }, 48..52, [0, 0, 0x07, 0]);
    assert_bytes!(req { max_cm_retries: 0xff }, 48..52, [0, 0, 0, 0xf0]);
    assert_bytes!(req { srq: true }, 48..52, [0, 0, 0, 0x08]);
    assert_bytes!(req { extended_transport: 0xff }, 48..52, [0, 0, 0, 0x07]);
    assert_bytes!(path { flow_label: u32::MAX }, 36..40, [0xff, 0xff, 0xf0, 0]);
    assert_bytes!(path { rate: 0xff }, 36..40, [0, 0, 0, 0x3f]);
    assert_bytes!(path { sl: 0xff }, 40..44, [0, 0, 0xf0, 0]);
    assert_bytes!(path { subnet_local: true }, 40..44, [0, 0, 0x08, 0]);
    assert_bytes!(path { ack_timeout: 0xff }, 40..44, [0, 0, 0, 0xf8]);
    assert_bytes!(class_port_info { capabilities2: u32::MAX }, 4..8, [0xff, 0xff, 0xff, 0xe0]);
    assert_bytes!(class_port_info { response_time: 0xff }, 4..8, [0, 0, 0, 0x1f]);
}

#[test]
fn the_transport_service_is_one_of_four() {
    use req::ConnectedService::{Rc, Rd, Uc, Xrc};
    let value = req::Repr::default();
    for service in [Rc, Uc, Rd, Xrc] {
        let [transport, extended_transport] = service.codes();
        assert_eq!(req::Repr { transport, extended_transport, ..value }.service(), Some(service));
    }
    for extended_transport in [0, 2, 7] {
        assert_eq!(req::Repr { transport: 3, extended_transport, ..value }.service(), None);
    }
}
