//! REJ: the reasons of refusals.

use remora_cm::{CmConfig, CmError, CmState, ConnectParam, EventKind, Listen, RejectParam};
use remora_wire::mad::req;
use remora_wire::mad::{Answered, CmMessage, PortSpace, RejectReason, ServiceId, rej};
use remora_wire::{Address, Qpn};

use crate::node::{ACTIVE, Node, Pair, acceptance, address, config, message, param};

fn rejected(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Rejected(_))
}

/// Returns the REJ with which a listening node answers a valid REQ after `change`.
fn answer(change: impl FnOnce(&mut req::Repr)) -> rej::Repr {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let mut mad = pair.active.sent()[0];
    let CmMessage::Req(mut req) = message(&mad) else { panic!("a REQ") };
    change(&mut req);
    CmMessage::Req(req).emit(77, &mut mad);
    pair.passive.receive(pair.now, 1, &mad);
    assert_eq!((pair.passive.cm.next_event(), pair.passive.cm.id_count()), (None, 0));
    let sent = pair.passive.sent();
    assert_eq!(sent.len(), 1);
    let CmMessage::Rej(rej) = message(&sent[0]) else { panic!("{:?}", message(&sent[0])) };
    assert_eq!((rej.answered, rej.local_comm_id, rej.remote_comm_id), (Answered::Req, 0, req.local_comm_id));
    // The active side must understand the refusal.
    if Some(req.local_comm_id) == pair.active.cm.local_comm_id(ACTIVE) {
        pair.active.receive(pair.now, 2, &sent[0]);
        let EventKind::Rejected(rejection) = pair.active.event().kind else { panic!("rejected") };
        assert_eq!(rejection.reason, rej.reason);
        assert_eq!(&rejection.info[..usize::from(rejection.info_len)], rej.info());
        assert_eq!(pair.active.cm.id_count(), 0);
    }
    rej
}

#[test]
fn a_req_is_refused_with_the_reason_that_applies() {
    let reason = |change: fn(&mut req::Repr)| answer(change).reason;
    assert_eq!(reason(|req| req.service_id = ServiceId(8)), RejectReason::INVALID_SERVICE_ID);
    let port = |req: &mut req::Repr| req.service_id = ServiceId::rdma_ip(PortSpace::Tcp, 7175);
    assert_eq!(reason(port), RejectReason::INVALID_SERVICE_ID);
    assert_eq!(reason(|req| req.transport = 2), RejectReason::INVALID_TRANSPORT);
    let unknown = |req: &mut req::Repr| (req.transport, req.extended_transport) = (3, 2);
    assert_eq!(reason(unknown), RejectReason::INVALID_TRANSPORT);
    assert_eq!(reason(|req| req.pkey = 0x8001), RejectReason::UNSUPPORTED_REQUEST);
    assert_eq!(reason(|req| req.private_data[1] = 0x50), RejectReason::CONSUMER);
    assert_eq!(reason(|req| req.private_data[0] = 0x10), RejectReason::CONSUMER);
}

#[test]
fn a_refused_gid_or_mtu_comes_with_one_that_would_be_accepted() {
    let own = address(2);
    for change in [
        (|req| req.primary.remote_gid = address(3)) as fn(&mut req::Repr),
        |req| req.primary.remote_gid = Address::default(),
        |req| req.primary.local_gid = Address::default(),
    ] {
        let rej = answer(change);
        assert_eq!((rej.reason, rej.info()), (RejectReason::PRIMARY_GID, &own.0[..]));
    }
    for mtu in [0, 6, 15] {
        let rej = answer(|req| req.path_mtu = mtu);
        assert_eq!((rej.reason, rej.info()), (RejectReason::INVALID_MTU, &[5][..]));
    }
}

#[test]
fn a_port_of_datagrams_has_no_connections() {
    let mut pair = Pair::new();
    let service_id = ServiceId::rdma_ip(PortSpace::Udp, 7174);
    pair.passive.cm.listen(2, &Listen { service_id, address: None, backlog: 1, zone: 0 }).unwrap();
    pair.active.cm.connect(pair.now, ACTIVE, &ConnectParam { service_id, ..param(1, 2) }).unwrap();
    assert_eq!(pair.exchange(), ["REQ", "REJ"]);
    let EventKind::Rejected(rejection) = pair.active.event().kind else { panic!("rejected") };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn another_version_of_the_class_is_refused_and_other_messages_of_it_are_dropped() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let mut mad = pair.active.sent()[0];
    mad[2] = 3;
    pair.passive.receive(pair.now, 1, &mad);
    let sent = pair.passive.sent();
    let CmMessage::Rej(rej) = message(&sent[0]) else { panic!("a REJ") };
    assert_eq!(
        (rej.reason, Some(rej.remote_comm_id)),
        (RejectReason::CLASS_VERSION, pair.active.cm.local_comm_id(ACTIVE))
    );
    // The MAD becomes a DREQ.
    mad[17] = 0x15;
    pair.passive.receive(pair.now, 1, &mad);
    pair.passive.expect_silence();
    assert_eq!(pair.passive.cm.counters().unsupported, 2);
}

#[test]
fn a_program_refuses_with_its_own_words() {
    let mut pair = Pair::new();
    let handle = pair.request();
    let param = RejectParam { reason: RejectReason(0x1234), info: &[9; 72], private_data: b"not you" };
    let long = RejectParam { private_data: &[0; 149], ..param };
    assert_eq!(pair.passive.cm.reject(pair.now, handle, &long), Err(CmError::OutOfRange));
    let long = RejectParam { info: &[0; 73], ..param };
    assert_eq!(pair.passive.cm.reject(pair.now, handle, &long), Err(CmError::OutOfRange));
    pair.passive.cm.reject(pair.now, handle, &param).unwrap();
    assert_eq!(pair.passive.cm.reject(pair.now, handle, &param), Err(CmError::NoSuchHandle));
    pair.exchange();
    let event = pair.active.event();
    let EventKind::Rejected(rejection) = event.kind else { panic!("{event:?}") };
    assert_eq!((rejection.reason, rejection.info, rejection.info_len), (RejectReason(0x1234), [9; 72], 72));
    assert_eq!((event.private_data.len(), &event.private_data[..8]), (148, &b"not you\0"[..]));
    pair.expect_nothing_left();
}

#[test]
fn the_active_side_refuses_a_response() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.active.cm.reject(pair.now, ACTIVE, &crate::node::refusal()).unwrap();
    assert_eq!(pair.exchange(), ["REJ"]);
    assert_eq!(pair.passive.expect(rejected), handle);
    pair.expect_nothing_left();
}

#[test]
fn a_rep_for_nothing_is_refused_and_its_sender_ends() {
    let mut pair = Pair::new();
    let handle = pair.request();
    pair.active = Node::new(1, CmConfig { seed: 99, ..config(1) });
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    assert_eq!(pair.exchange(), ["REP", "REJ"]);
    let event = pair.passive.event();
    let EventKind::Rejected(rejection) = event.kind else { panic!("{event:?}") };
    assert_eq!((event.handle, rejection.reason), (handle, RejectReason::INVALID_COMM_ID));
    pair.expect_nothing_left();
}

#[test]
fn a_late_refusal_of_a_req_does_not_end_what_stands() {
    let (mut pair, handle) = Pair::established();
    let local = 0;
    let remote = pair.active.cm.local_comm_id(ACTIVE).unwrap();
    let mut mad = [0; 256];
    let rej = rej::Repr::new(local, remote, Answered::Req, RejectReason::STALE_CONNECTION, &[], &[]);
    CmMessage::Rej(rej).emit(1, &mut mad);
    pair.active.receive(pair.now, 2, &mad);
    pair.active.expect_silence();
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Established));
    // A refusal of the connection itself ends it: the peer has lost it.
    let local = pair.passive.cm.local_comm_id(handle).unwrap();
    let rej = rej::Repr::new(local, remote, Answered::Other, RejectReason::CONSUMER, &[], &[]);
    CmMessage::Rej(rej).emit(1, &mut mad);
    pair.active.receive(pair.now, 2, &mad);
    pair.active.expect(|kind| matches!(kind, EventKind::Disconnected(remora_cm::Cause::Refused)));
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Timewait));
}

#[test]
fn a_peer_that_uses_its_queue_pair_again_has_forgotten_the_connection() {
    let (mut pair, handle) = Pair::established();
    // The host of the active side restarts, and its program gets the same queue pair.
    pair.active = Node::new(1, CmConfig { seed: 99, ..config(1) });
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    assert_eq!(pair.exchange(), ["REQ", "REJ", "DREQ", "DREP"]);
    let EventKind::Rejected(rejection) = pair.active.event().kind else { panic!("rejected") };
    assert_eq!(rejection.reason, RejectReason::STALE_CONNECTION);
    assert_eq!(pair.passive.expect(|kind| matches!(kind, EventKind::Disconnected(_))), handle);
    // The second attempt succeeds.
    pair.request();
}

#[test]
fn a_rep_with_the_queue_pair_of_a_connection_ends_both() {
    let (mut pair, _) = Pair::established();
    let second = ConnectParam { qpn: Qpn::new(0x77), ..param(1, 2) };
    pair.active.cm.connect(pair.now, 6, &second).unwrap();
    pair.exchange();
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    assert_eq!(pair.exchange(), ["REP", "REJ", "DREQ"]);
    assert_eq!(pair.active.expect(rejected), 6);
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::DreqSent));
}

#[test]
fn a_req_under_an_id_that_waits_is_refused_if_it_asks_for_something_else() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let mut mad = pair.active.sent()[0];
    pair.passive.receive(pair.now, 1, &mad);
    let CmMessage::Req(mut req) = message(&mad) else { panic!("a REQ") };
    req.local_qpn = Qpn::new(0x99);
    CmMessage::Req(req).emit(77, &mut mad);
    pair.passive.receive(pair.now, 1, &mad);
    let CmMessage::Rej(rej) = message(&pair.passive.sent()[0]) else { panic!("a REJ") };
    assert_eq!(rej.reason, RejectReason::DUPLICATE_COMM_ID);
    assert_eq!(pair.passive.cm.id_count(), 1, "the first one stays");
}
