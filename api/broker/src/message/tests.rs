//! Messages come back from their bytes, and nothing else is one.

use super::*;
use remora_cm::{ConnParam, GidPair, QpAttributes};
use remora_wire::mad::PortSpace;
use remora_wire::mad::req::ConnectedService;
use remora_wire::{Address, Psn, Qpn};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn param() -> ConnParam {
    ConnParam {
        responder_resources: 1,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 3,
        rnr_retry_count: 4,
        srq: false,
        qpn: Qpn::new(0x12_3456),
        starting_psn: Psn::new(0xff_fffe),
    }
}

fn cm_requests() -> Vec<CmRequest> {
    let id = 7;
    let private_data = b"said".to_vec();
    let connect = Connect {
        destination: at("10.0.0.2:7174"),
        service: ConnectedService::Xrc,
        path_mtu: 3,
        traffic_class: 0x20,
        param: param(),
        private_data: private_data.clone(),
    };
    vec![
        CmRequest::CreateChannel,
        CmRequest::CreateId { channel: 3, space: PortSpace::Udp },
        CmRequest::AcceptDatagrams {
            id,
            qpn: Qpn::new(2),
            qkey: 0x0123_4567,
            private_data: private_data.clone(),
        },
        CmRequest::Bind { id, address: at("0.0.0.0:0"), reuses: true },
        CmRequest::Listen { id, backlog: 5 },
        CmRequest::Connect { id, connect: Box::new(connect) },
        CmRequest::Accept { id, param: param(), private_data: private_data.clone() },
        CmRequest::Reject { id, private_data: private_data.clone() },
        CmRequest::Ready { id, private_data: Vec::new() },
        CmRequest::Disconnect { id, private_data },
        CmRequest::Establish { id },
        CmRequest::Destroy { id },
        CmRequest::Taken { id },
        CmRequest::Migrate { id, channel: 4 },
        CmRequest::QpAttributes { id },
        CmRequest::Post { id, posted: Posted { code: 1, status: -2, subject: 3 } },
    ]
}

fn cm_replies() -> Vec<CmReply> {
    let attributes = QpAttributes {
        gids: GidPair { local: Address([1; 16]), remote: Address([2; 16]), zone: 0x0102_0304 },
        service: ConnectedService::Xrc,
        remote_qpn: Qpn::new(3),
        rq_psn: Psn::new(4),
        sq_psn: Psn::new(5),
        path_mtu: 4,
        pkey: 0xffff,
        flow_label: 6,
        traffic_class: 7,
        hop_limit: 8,
        sl: 9,
        timeout: 10,
        retry_count: 11,
        rnr_retry_count: 12,
        responder_resources: 13,
        initiator_depth: 14,
    };
    vec![
        CmReply::Opened,
        CmReply::Channel(1),
        CmReply::Id(u64::MAX),
        CmReply::Bound(at("[::1]:7174")),
        CmReply::Done,
        CmReply::Failed(98),
        CmReply::QpAttributes(attributes),
    ]
}

fn requests() -> Vec<Request> {
    vec![
        Request::Open { version: VERSION, address: at("127.0.0.1:4791"), counters: 50, every_address: true },
        Request::Ask { version: VERSION },
        Request::Address(at("[fe80::1%3]:4791")),
        Request::Program(126),
        Request::User(1001),
        Request::EndUser(u32::MAX),
        Request::EndProgram(127),
        Request::Counters,
        Request::Paths { version: VERSION, addresses: vec![] },
        Request::Paths { version: VERSION, addresses: vec![at("127.0.0.1:4791"), at("[fd98::1]:4791")] },
        Request::Port,
        Request::Counter { version: VERSION, name: "counters/port_xmit_data".to_owned() },
        Request::OpenCm { version: VERSION },
        Request::PortEvents,
    ]
    .into_iter()
    .chain(cm_requests().into_iter().map(Request::Cm))
    .collect()
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Refused("no".to_owned()),
        Reply::PortEvents,
        Reply::Port(PortState {
            active: true,
            gids: vec![Some(GidEntry { ip: at("10.0.0.1:0").ip(), interface: 3 }), None],
        }),
        Reply::Lent { range: 127, address: at("[::1]:4791") },
        Reply::Facts(BrokerFacts {
            pid: 1,
            uid: 2,
            address: at("10.0.0.1:4791"),
            bound: 1,
            relays: true,
            alone: false,
            programs: 3,
            tally: Tally { lent: 4, rma: 5, ..Tally::default() },
        }),
        Reply::Program(ProgramFacts { range: 1, pid: 2, uid: 3, links: 4, name: "ib_write_bw".to_owned() }),
        Reply::Nothing,
        Reply::User(UserFacts { uid: 1, guest: true, connections: 2, ranges: 3, ids: 4, channels: 5 }),
        Reply::Ended(6),
        Reply::Ends("no descriptor".to_owned()),
        Reply::Counters(vec![1, u64::MAX]),
        Reply::Paths("/tmp/x".to_owned()),
        Reply::Counter,
        Reply::Neighbours,
        Reply::Linked { range: 127, foreign: true },
        Reply::Unlinked { range: 1, words: "it takes no links".to_owned() },
    ]
    .into_iter()
    .chain(cm_replies().into_iter().map(Reply::Cm))
    .collect()
}

#[test]
fn what_is_emitted_is_parsed_and_anything_shorter_or_longer_is_no_message() {
    for request in requests() {
        let packet = request.emit();
        assert_eq!(Request::parse(&packet), Some(request));
        for len in 0..packet.len() {
            assert_eq!(Request::parse(&packet[..len]), None, "{len} bytes of {packet:?}");
        }
        assert_eq!(Request::parse(&[packet, vec![0]].concat()), None);
    }
    for reply in replies() {
        let packet = reply.emit();
        assert!(packet.len() <= MAX_PACKET);
        assert_eq!(Reply::parse(&packet), Some(reply));
        for len in 0..packet.len() {
            assert_eq!(Reply::parse(&packet[..len]), None, "{len} bytes of {packet:?}");
        }
        assert_eq!(Reply::parse(&[packet, vec![0]].concat()), None);
    }
}

#[test]
fn of_another_version_the_version_is_understood_whatever_follows() {
    let open =
        Request::Open { version: VERSION, address: at("127.0.0.1:4791"), counters: 50, every_address: false };
    let mut packet = open.emit();
    packet[9..11].copy_from_slice(&(VERSION + 1).to_le_bytes());
    for len in 11..packet.len() {
        assert_eq!(Request::parse(&packet[..len]), Some(Request::Ask { version: VERSION + 1 }));
    }
    packet[1] ^= 1;
    assert_eq!(Request::parse(&packet), None, "another protocol's first packet");
}

#[test]
fn events_of_ids_come_back_from_their_bytes_and_nothing_shorter_or_longer_is_one() {
    let request = IdEventKind::ConnectRequest {
        listener: 9,
        local: at("10.0.0.1:7174"),
        remote: at("[fe80::2%4]:40000"),
        service: ConnectedService::Uc,
        param: param(),
    };
    for kind in [
        request,
        IdEventKind::ConnectResponse(param()),
        IdEventKind::Established,
        IdEventKind::Rejected(28),
        IdEventKind::Disconnected,
        IdEventKind::Unreachable,
        IdEventKind::TimewaitExit,
        IdEventKind::DatagramRequest { listener: 1, local: at("10.0.0.1:1"), remote: at("10.0.0.2:2") },
        IdEventKind::DatagramResponse { status: 0, qpn: Qpn::new(5), qkey: 0x8000_0001 },
        IdEventKind::Posted(Posted { code: u32::MAX, status: -110, subject: u64::MAX }),
    ] {
        let event = IdEvent { id: u64::MAX - 1, kind, private_data: vec![0x5a; 224] };
        let packet = event.emit();
        assert_eq!(IdEvent::parse(&packet).as_ref(), Some(&event));
        for len in 0..packet.len() {
            assert_eq!(IdEvent::parse(&packet[..len]), None, "{len} bytes of {packet:?}");
        }
        assert_eq!(IdEvent::parse(&[packet, vec![0]].concat()), None);
    }
}

#[test]
fn queue_pair_numbers_have_24_bits_and_private_data_at_most_224_bytes() {
    // The numbers of the variants, then the fields of an ACCEPT.
    let accept = |qpn: u32, psn: u32, private_len: usize| {
        let param = (1_u8, 2_u8, true, 3_u8, 4_u8, false, qpn, psn);
        Request::parse(&encode(&(15_u8, 5_u8, 7_u64, param, vec![1_u8; private_len])))
    };
    let largest = (1 << 24) - 1;
    let param = ConnParam { qpn: Qpn::new(largest), starting_psn: Psn::new(largest), ..param() };
    let expected = CmRequest::Accept { id: 7, param, private_data: vec![1; 224] };
    assert_eq!(accept(largest, largest, 224), Some(Request::Cm(expected)));
    for (qpn, psn, private_len) in [(largest + 1, 0, 0), (0, largest + 1, 0), (0, 0, 225)] {
        assert_eq!(accept(qpn, psn, private_len), None);
    }
}

#[test]
fn a_text_longer_than_a_packet_is_cut_at_a_character() {
    let packet = Reply::Refused("é".repeat(MAX_PACKET)).emit();
    assert!(packet.len() <= MAX_PACKET);
    assert!(matches!(Reply::parse(&packet), Some(Reply::Refused(words)) if words.len() == MAX_PACKET / 2));
}

#[test]
fn no_bytes_make_parsing_panic() {
    let mut state = 0x5eed_u64;
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut packet = state.to_le_bytes().repeat(1 + (state >> 60) as usize);
        packet[0] &= 0x4f;
        let _ = (Request::parse(&packet), Reply::parse(&packet), IdEvent::parse(&packet));
    }
}
