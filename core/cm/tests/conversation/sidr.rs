//! SIDR: resolution of datagram services.

use remora_cm::{CmError, EventKind, GidPair, Instant, Listen, SidrReplyParam, SidrRequestParam};
use remora_wire::Qpn;
use remora_wire::mad::{CmMessage, PortSpace, ServiceId, SidrStatus, ip_cm};

use crate::node::{ACTIVE, Pair, address, message};

const DATAGRAMS: ServiceId = ServiceId::rdma_ip(PortSpace::Udp, 7174);

fn question() -> SidrRequestParam<'static> {
    let gids = GidPair::new(address(1), address(2));
    let ip = ip_cm::Repr { port: 40_000, addresses: ip_cm::Addresses::of(gids.local, gids.remote) };
    SidrRequestParam { ip: Some(ip), private_data: b"who has it?", ..SidrRequestParam::new(gids, DATAGRAMS) }
}

const ANSWER: SidrReplyParam<'static> = SidrReplyParam {
    status: SidrStatus::VALID,
    qpn: Qpn::new(0x55),
    qkey: 0x0123_4567,
    private_data: b"I have",
};

fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.passive.cm.listen(2, &Listen { service_id: DATAGRAMS, address: None, backlog: 1, zone: 0 }).unwrap();
    pair
}

#[test]
fn a_question_is_answered_with_queue_pair_and_key() {
    let mut pair = pair();
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    assert_eq!(pair.exchange(), ["SIDR_REQ"]);
    let event = pair.passive.event();
    let gids = GidPair::new(address(2), address(1));
    let expected =
        EventKind::SidrRequest { listener: 2, gids, service_id: DATAGRAMS, ip: question().ip, pkey: 0xffff };
    assert_eq!((event.kind, event.private_data.len()), (expected, 180));
    assert!(event.private_data.starts_with(b"who has it?\0"));

    pair.passive.cm.sidr_reply(pair.now, event.handle, &ANSWER).unwrap();
    assert_eq!(pair.passive.cm.sidr_reply(pair.now, event.handle, &ANSWER), Err(CmError::NoSuchHandle));
    assert_eq!(pair.exchange(), ["SIDR_REP"]);
    let event = pair.active.event();
    let expected =
        EventKind::SidrResponse { status: SidrStatus::VALID, qpn: Qpn::new(0x55), qkey: 0x0123_4567 };
    assert_eq!((event.handle, event.kind, event.private_data.len()), (ACTIVE, expected, 136));
    assert!(event.private_data.starts_with(b"I have\0"));
    pair.wait();
    pair.expect_nothing_left();
}

#[test]
fn a_question_has_the_traffic_class_that_its_program_gives() {
    let mut pair = pair();
    let classed = SidrRequestParam { traffic_class: 0x68, ..question() };
    pair.active.cm.sidr_request(pair.now, ACTIVE, &classed).unwrap();
    assert_eq!(pair.active.sent_classes(), [0x68]);
}

#[test]
fn an_answer_has_the_traffic_class_of_its_question() {
    let mut pair = pair();
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    let req = pair.active.sent()[0];
    pair.passive.receive_classed(pair.now, 1, 0x68, &req);
    let handle = pair.passive.event().handle;
    pair.passive.cm.sidr_reply(pair.now, handle, &ANSWER).unwrap();
    assert_eq!(pair.passive.sent_classes(), [0x68]);
    pair.passive.receive_classed(pair.now, 1, 0x20, &req);
    assert_eq!(pair.passive.sent_classes(), [0x68], "the same answer goes out for the repetition");
    let unknown = SidrRequestParam { service_id: ServiceId::rdma_ip(PortSpace::Udp, 1), ..question() };
    pair.active.cm.sidr_request(pair.now, ACTIVE + 1, &unknown).unwrap();
    let req = pair.active.sent()[0];
    pair.passive.receive_classed(pair.now, 1, 0x20, &req);
    assert_eq!(pair.passive.sent_classes(), [0x20], "a refusal");
}

#[test]
fn a_question_that_comes_again_gets_the_same_answer_and_the_program_hears_it_once() {
    let mut pair = pair();
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    let req = pair.active.sent();
    for _ in 0..2 {
        pair.passive.receive(pair.now, 1, &req[0]);
    }
    let handle = pair.passive.event().handle;
    pair.passive.cm.sidr_reply(pair.now, handle, &ANSWER).unwrap();
    let rep = pair.passive.sent();
    pair.wait();
    assert_eq!(pair.active.sent(), req, "the first answer was lost");
    pair.passive.receive(pair.now, 1, &req[0]);
    assert_eq!((pair.passive.sent(), pair.passive.cm.next_event()), (rep, None));
}

#[test]
fn nobody_answers() {
    let mut pair = pair();
    let twice = SidrRequestParam { max_cm_retries: 2, ..question() };
    pair.active.cm.sidr_request(pair.now, ACTIVE, &twice).unwrap();
    let mut sent = pair.active.sent().len();
    while pair.active.cm.state(ACTIVE).is_some() {
        pair.wait();
        sent += pair.active.sent().len();
    }
    assert_eq!(sent, 3);
    assert_eq!(pair.active.expect(|kind| matches!(kind, EventKind::Unreachable)), ACTIVE);
    pair.expect_nothing_left();
}

/// Returns the status that is reported to the active side.
fn status(pair: &mut Pair) -> SidrStatus {
    let EventKind::SidrResponse { status, .. } = pair.active.event().kind else { panic!("a response") };
    status
}

#[test]
fn a_question_is_refused_with_the_status_that_applies() {
    let refused = |param: &SidrRequestParam<'_>| {
        let mut pair = pair();
        pair.active.cm.sidr_request(pair.now, ACTIVE, param).unwrap();
        assert_eq!(pair.exchange(), ["SIDR_REQ", "SIDR_REP"]);
        assert_eq!(pair.passive.cm.id_count(), 0);
        status(&mut pair)
    };
    let other = ServiceId::rdma_ip(PortSpace::Udp, 1);
    assert_eq!(refused(&SidrRequestParam { service_id: other, ..question() }), SidrStatus::UNSUPPORTED);
    // The service id belongs to a port of connections.
    let tcp = ServiceId::rdma_ip(PortSpace::Tcp, 7174);
    assert_eq!(refused(&SidrRequestParam { service_id: tcp, ..question() }), SidrStatus::UNSUPPORTED);

    let mut pair = pair();
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    let mut mad = pair.active.sent()[0];
    mad[24 + 16] = 0x10;
    pair.passive.receive(pair.now, 1, &mad);
    pair.exchange();
    assert_eq!(status(&mut pair), SidrStatus::REJECTED);
}

#[test]
fn a_program_that_dies_refuses_what_it_was_asked() {
    let mut pair = pair();
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    pair.exchange();
    let handle = pair.passive.event().handle;
    pair.passive.cm.destroy(pair.now, handle).unwrap();
    assert_eq!(pair.exchange(), ["SIDR_REP"]);
    assert_eq!(status(&mut pair), SidrStatus::REJECTED);
    // The program that asked has ended and does not need the answer.
    pair.active.cm.sidr_request(pair.now, ACTIVE, &question()).unwrap();
    pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
    assert_eq!(pair.active.cm.next_deadline(), Instant::NEVER);
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let mut pair = pair();
    let good = question();
    for bad in [
        SidrRequestParam { response_timeout: 32, ..good },
        SidrRequestParam { max_cm_retries: 16, ..good },
        SidrRequestParam { ip: None, ..good },
        SidrRequestParam { private_data: &[0; 181], ..good },
        SidrRequestParam { gids: GidPair::default(), ..good },
    ] {
        assert_eq!(pair.active.cm.sidr_request(pair.now, ACTIVE, &bad), Err(CmError::OutOfRange));
    }
    pair.active
        .cm
        .sidr_request(pair.now, ACTIVE, &SidrRequestParam { private_data: &[0; 180], ..good })
        .unwrap();
    assert_eq!(pair.active.cm.sidr_request(pair.now, ACTIVE, &good), Err(CmError::HandleInUse));
    pair.exchange();
    let handle = pair.passive.event().handle;
    let long = SidrReplyParam { private_data: &[0; 137], ..ANSWER };
    assert_eq!(pair.passive.cm.sidr_reply(pair.now, handle, &long), Err(CmError::OutOfRange));
    assert_eq!(pair.passive.cm.sidr_reply(pair.now, 3, &ANSWER), Err(CmError::NoSuchHandle));
}

#[test]
fn a_datagram_program_may_have_a_service_id_of_its_own() {
    let mut pair = pair();
    let service_id = ServiceId(77);
    pair.passive.cm.listen(3, &Listen { service_id, address: None, backlog: 1, zone: 0 }).unwrap();
    let long = [5; 216];
    let own = SidrRequestParam { service_id, ip: None, private_data: &long, ..question() };
    pair.active.cm.sidr_request(pair.now, ACTIVE, &own).unwrap();
    let CmMessage::SidrReq(req) = message(&pair.active.sent()[0]) else { panic!("a SIDR_REQ") };
    assert_eq!((req.service_id, req.private_data), (service_id, long));
}

#[test]
fn a_question_beyond_the_backlog_is_refused_at_once() {
    let mut pair = pair();
    for handle in [ACTIVE, ACTIVE + 1] {
        pair.active.cm.sidr_request(pair.now, handle, &question()).unwrap();
    }
    assert_eq!(pair.exchange(), ["SIDR_REQ", "SIDR_REQ", "SIDR_REP"]);
    let event = pair.active.event();
    let refused = EventKind::SidrResponse { status: SidrStatus::REJECTED, qpn: Qpn::new(0), qkey: 0 };
    assert_eq!((event.handle, event.kind), (ACTIVE + 1, refused));
    let waiting = pair.passive.event().handle;
    pair.passive.cm.taken(waiting);
    pair.active.cm.sidr_request(pair.now, ACTIVE + 1, &question()).unwrap();
    assert_eq!(pair.exchange(), ["SIDR_REQ"]);
    pair.passive.cm.sidr_reply(pair.now, waiting, &ANSWER).unwrap();
    pair.passive.cm.check();
}
