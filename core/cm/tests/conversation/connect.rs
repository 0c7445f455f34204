//! Establishment of connections.

use remora_cm::{CmError, CmState, ConnParam, ConnectRequest, EventKind, GidPair};
use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{CmMessage, ServiceId};
use remora_wire::{Address, Psn, Qpn};

use crate::node::{ACTIVE, Pair, SERVICE, acceptance, address, message, param};

#[test]
fn both_sides_get_what_the_other_one_said() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    assert_eq!(pair.exchange(), ["REQ"]);
    let event = pair.passive.event();
    let gids = GidPair::new(address(2), address(1));
    let expected = ConnectRequest {
        listener: 1,
        gids,
        service_id: SERVICE,
        ip: param(1, 2).ip,
        service: ConnectedService::Rc,
        param: ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qpn: Qpn::new(0x10_0001),
            starting_psn: Psn::new(0x11_1111),
        },
    };
    assert_eq!(event.kind, EventKind::ConnectRequest(expected));
    assert_eq!(event.private_data.len(), 56);
    assert!(event.private_data.starts_with(b"from the active side\0"));

    pair.passive.cm.accept(pair.now, event.handle, &acceptance()).unwrap();
    assert_eq!(pair.exchange(), ["REP"]);
    let response = pair.active.event();
    let expected = ConnParam {
        responder_resources: 3,
        initiator_depth: 4,
        flow_control: false,
        retry_count: 0,
        rnr_retry_count: 5,
        srq: false,
        qpn: Qpn::new(0x20_0000),
        starting_psn: Psn::new(0x22_2222),
    };
    assert_eq!((response.handle, response.kind), (ACTIVE, EventKind::ConnectResponse(expected)));
    assert_eq!(response.private_data.len(), 196);
    assert!(response.private_data.starts_with(b"from the passive side\0"));

    pair.active.cm.ready_to_use(ACTIVE, b"ready").unwrap();
    assert_eq!(pair.exchange(), ["RTU"]);
    let established = pair.passive.event();
    assert_eq!((established.handle, established.kind), (event.handle, EventKind::Established));
    assert_eq!((established.private_data.len(), &established.private_data[..6]), (224, &b"ready\0"[..]));
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Established));
    assert_eq!(pair.passive.cm.state(event.handle), Some(CmState::Established));
}

#[test]
fn queue_pairs_get_attributes_that_fit_each_other() {
    let (pair, handle) = Pair::established();
    let active = pair.active.cm.qp_attributes(ACTIVE).unwrap();
    let passive = pair.passive.cm.qp_attributes(handle).unwrap();
    assert_eq!((active.remote_qpn, passive.remote_qpn), (Qpn::new(0x20_0000), Qpn::new(0x10_0001)));
    assert_eq!((active.sq_psn, active.rq_psn), (passive.rq_psn, passive.sq_psn));
    assert_eq!((active.sq_psn, active.rq_psn), (Psn::new(0x22_2222), Psn::new(0x11_1111)));
    assert_eq!((active.initiator_depth, active.responder_resources), (4, 3));
    assert_eq!((passive.initiator_depth, passive.responder_resources), (3, 4));
    assert_eq!((active.rnr_retry_count, passive.rnr_retry_count), (5, 7));
    for attributes in [active, passive] {
        assert_eq!((attributes.path_mtu, attributes.timeout, attributes.retry_count), (3, 17, 7));
        assert_eq!(
            (attributes.pkey, attributes.hop_limit, attributes.service),
            (0xffff, 64, ConnectedService::Rc)
        );
    }
    assert_eq!((active.gids.local, passive.gids.remote), (address(1), address(1)));
}

#[test]
fn attributes_are_there_from_request_and_response_on() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    assert_eq!(pair.active.cm.qp_attributes(ACTIVE), Err(CmError::WrongState));
    assert_eq!(pair.active.cm.qp_attributes(99), Err(CmError::NoSuchHandle));
    pair.exchange();
    let handle = pair.passive.expect(|kind| matches!(kind, EventKind::ConnectRequest(_)));
    assert_eq!(pair.passive.cm.qp_attributes(handle).unwrap().remote_qpn, Qpn::new(0x10_0001));
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    pair.exchange();
    assert!(pair.active.cm.qp_attributes(ACTIVE).is_ok());
}

#[test]
fn an_address_connects_to_itself() {
    let mut pair = Pair::new();
    let node = &mut pair.passive;
    node.cm.connect(pair.now, ACTIVE, &param(2, 2)).unwrap();
    let mut seen = Vec::new();
    for _ in 0..8 {
        for mad in node.sent() {
            node.receive(pair.now, 2, &mad);
        }
        let Some(event) = node.cm.next_event() else { continue };
        match event.kind {
            EventKind::ConnectRequest(_) => node.cm.accept(pair.now, event.handle, &acceptance()).unwrap(),
            EventKind::ConnectResponse(_) => node.cm.ready_to_use(event.handle, &[]).unwrap(),
            _ => {}
        }
        seen.push((event.handle, node.cm.state(event.handle)));
    }
    let sent = Some(CmState::RepSent);
    let ready = Some(CmState::Established);
    assert_eq!(seen, [(1_000, sent), (ACTIVE, ready), (1_000, ready)]);
}

#[test]
fn an_xrc_target_says_its_queue_pair_where_an_ee_context_stood() {
    let mut pair = Pair::new();
    let xrc = remora_cm::ConnectParam { service: ConnectedService::Xrc, ..param(1, 2) };
    pair.active.cm.connect(pair.now, ACTIVE, &xrc).unwrap();
    pair.exchange();
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    let sent = pair.passive.sent();
    let CmMessage::Rep(rep) = message(&sent[0]) else { panic!("a REP") };
    assert_eq!((rep.local_qpn, rep.local_eecn, rep.srq), (Qpn::new(0), 0x20_0000, true));
    pair.active.receive(pair.now, 2, &sent[0]);
    let EventKind::ConnectResponse(response) = pair.active.event().kind else { panic!("a response") };
    assert_eq!(response.qpn, Qpn::new(0x20_0000));
}

#[test]
fn an_alternate_path_is_not_supported_and_the_connection_comes_up_without() {
    for (gid, failover) in [(Address::default(), 0), (address(1), 1)] {
        let mut pair = Pair::new();
        pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
        let mut mad = pair.active.sent()[0];
        let CmMessage::Req(mut req) = message(&mad) else { panic!("a REQ") };
        req.alternate.local_gid = gid;
        CmMessage::Req(req).emit(1, &mut mad);
        pair.passive.receive(pair.now, 1, &mad);
        let handle = pair.passive.event().handle;
        pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
        let CmMessage::Rep(rep) = message(&pair.passive.sent()[0]) else { panic!("a REP") };
        assert_eq!(rep.failover, failover);
    }
}

#[test]
fn a_service_id_of_the_programs_own_has_no_header_and_92_bytes() {
    let mut pair = Pair::new();
    let service_id = ServiceId(0x1234_5678_9abc_def0);
    let listen = remora_cm::Listen { service_id, address: Some(address(2)), backlog: 1, zone: 0 };
    pair.passive.cm.listen(2, &listen).unwrap();
    let long = [0xab; 92];
    let own = remora_cm::ConnectParam { service_id, ip: None, private_data: &long, ..param(1, 2) };
    pair.active.cm.connect(pair.now, ACTIVE, &own).unwrap();
    pair.exchange();
    let event = pair.passive.event();
    let EventKind::ConnectRequest(request) = event.kind else { panic!("{event:?}") };
    assert_eq!((request.listener, request.ip, &event.private_data[..]), (2, None, &long[..]));
}

#[test]
fn values_that_do_not_fit_are_refused_and_nothing_happens() {
    let mut pair = Pair::new();
    let good = param(1, 2);
    let bad = [
        remora_cm::ConnectParam { path_mtu: 0, ..good },
        remora_cm::ConnectParam { path_mtu: 6, ..good },
        remora_cm::ConnectParam { flow_label: 1 << 20, ..good },
        remora_cm::ConnectParam { sl: 16, ..good },
        remora_cm::ConnectParam { packet_life_time: 31, ..good },
        remora_cm::ConnectParam { retry_count: 8, ..good },
        remora_cm::ConnectParam { rnr_retry_count: 8, ..good },
        remora_cm::ConnectParam { response_timeout: 32, ..good },
        remora_cm::ConnectParam { max_cm_retries: 16, ..good },
        remora_cm::ConnectParam { service: ConnectedService::Rd, ..good },
        remora_cm::ConnectParam { ip: None, ..good },
        remora_cm::ConnectParam { service_id: ServiceId(1), ..good },
        remora_cm::ConnectParam { private_data: &[0; 57], ..good },
        remora_cm::ConnectParam { gids: GidPair::default(), ..good },
    ];
    for bad in bad {
        assert_eq!(pair.active.cm.connect(pair.now, ACTIVE, &bad), Err(CmError::OutOfRange), "{bad:?}");
    }
    assert_eq!(pair.active.cm.id_count(), 0);
    pair.active
        .cm
        .connect(pair.now, ACTIVE, &remora_cm::ConnectParam { private_data: &[0; 56], ..good })
        .unwrap();
    assert_eq!(pair.active.cm.connect(pair.now, ACTIVE, &good), Err(CmError::HandleInUse));
    pair.exchange();
    let handle = pair.passive.event().handle;
    let long = remora_cm::AcceptParam { private_data: &[0; 197], ..acceptance() };
    assert_eq!(pair.passive.cm.accept(pair.now, handle, &long), Err(CmError::OutOfRange));
    let many = remora_cm::AcceptParam { rnr_retry_count: 8, ..acceptance() };
    assert_eq!(pair.passive.cm.accept(pair.now, handle, &many), Err(CmError::OutOfRange));
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    pair.exchange();
    assert_eq!(pair.active.cm.ready_to_use(ACTIVE, &[0; 225]), Err(CmError::OutOfRange));
    pair.active.cm.ready_to_use(ACTIVE, &[0; 224]).unwrap();
    assert_eq!(pair.active.cm.disconnect(pair.now, ACTIVE, &[0; 221]), Err(CmError::OutOfRange));
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    let (mut pair, handle) = Pair::established();
    let now = pair.now;
    let wrong = Err(CmError::WrongState);
    assert_eq!(pair.active.cm.accept(now, ACTIVE, &acceptance()), wrong);
    assert_eq!(pair.active.cm.ready_to_use(ACTIVE, &[]), wrong);
    assert_eq!(pair.active.cm.reject(now, ACTIVE, &crate::node::refusal()), wrong);
    assert_eq!(pair.active.cm.establish(ACTIVE), wrong);
    assert_eq!(pair.passive.cm.establish(handle), wrong);
    assert_eq!(pair.active.cm.accept(now, 77, &acceptance()), Err(CmError::NoSuchHandle));
    assert_eq!(pair.active.cm.destroy(now, 77), Err(CmError::NoSuchHandle));
    // The handle of a listener does not name an id.
    assert_eq!(pair.passive.cm.accept(now, 1, &acceptance()), Err(CmError::NoSuchHandle));
    assert_eq!(pair.passive.cm.connect(now, 1, &param(2, 1)), Err(CmError::HandleInUse));
}

#[test]
fn every_mad_of_a_connection_has_the_traffic_class_that_its_req_names() {
    let mut pair = Pair::new();
    let classed = remora_cm::ConnectParam { traffic_class: 0x68, ..param(1, 2) };
    pair.active.cm.connect(pair.now, ACTIVE, &classed).unwrap();
    let req = pair.active.sent()[0];
    pair.passive.receive(pair.now, 1, &req);
    let request = pair.passive.event().handle;
    // The repeated request is answered by an MRA.
    pair.passive.receive(pair.now, 1, &req);
    assert_eq!(pair.passive.sent_classes(), [0x68]);
    pair.passive.cm.accept(pair.now, request, &acceptance()).unwrap();
    let rep = pair.passive.sent()[0];
    pair.passive.receive(pair.now, 1, &req);
    assert_eq!(pair.passive.sent_classes(), [0x68], "the REP, repeated");
    pair.active.receive(pair.now, 2, &rep);
    pair.active.event();
    pair.active.cm.ready_to_use(ACTIVE, b"").unwrap();
    pair.active.cm.disconnect(pair.now, ACTIVE, b"").unwrap();
    assert_eq!(pair.active.sent_classes(), [0x68, 0x68], "the RTU and the DREQ");
    // The refusal of a REQ for which no id is allocated.
    let unknown = ServiceId::rdma_ip(remora_wire::mad::PortSpace::Tcp, 1);
    let nobody_listens = remora_cm::ConnectParam { service_id: unknown, qpn: Qpn::new(99), ..classed };
    pair.active.cm.connect(pair.now, ACTIVE + 1, &nobody_listens).unwrap();
    let req = pair.active.sent()[0];
    pair.passive.receive(pair.now, 1, &req);
    assert_eq!(pair.passive.sent_classes(), [0x68], "the REJ");
}
