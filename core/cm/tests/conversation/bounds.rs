//! Full tables and queues.

use remora_cm::{CmConfig, CmError, CmState, ConnectParam, EventKind, GidPair, Instant, Listen};
use remora_wire::Qpn;
use remora_wire::mad::{CmMessage, RejectReason, ServiceId};

use crate::node::{ACTIVE, Mad, Node, Pair, SECOND, acceptance, address, config, message, name, param};

const NOW: Instant = Instant(SECOND);

/// Returns REQs of different ids and queue pairs.
fn requests(count: u32) -> Vec<Mad> {
    let mut node = Node::new(1, config(1));
    node.cm.connect(NOW, ACTIVE, &param(1, 2)).unwrap();
    let CmMessage::Req(mut req) = message(&node.sent()[0]) else { panic!("a REQ") };
    let mut mads = vec![[0; 256]; count as usize];
    for (n, mad) in (0..).zip(&mut mads) {
        req.local_comm_id = 0x5000_0000 + n;
        req.local_qpn = Qpn::new(0x30_0000 + n);
        CmMessage::Req(req).emit(u64::from(n), mad);
    }
    mads
}

/// Returns the handles of the requests that are reported to a node's program.
fn asked(node: &mut Node) -> Vec<u64> {
    std::iter::from_fn(|| node.cm.next_event()).map(|event| event.handle).collect()
}

/// Regression: requests beyond the backlog were dropped, and peers repeated them every 4.9 s. Linux
/// refuses them at once with reason 28.
#[test]
fn a_req_beyond_the_backlog_is_refused_at_once() {
    let mut pair = Pair::new();
    let requests = requests(6);
    for req in &requests {
        pair.passive.receive(NOW, 1, req);
    }
    let refusals: Vec<_> = pair.passive.sent().iter().map(message).collect();
    for (refusal, id) in refusals.iter().zip([0x5000_0004, 0x5000_0005]) {
        let CmMessage::Rej(rej) = refusal else { panic!("{refusal:?}") };
        assert_eq!((rej.reason, rej.remote_comm_id), (RejectReason::CONSUMER, id));
    }
    let handles = asked(&mut pair.passive);
    assert_eq!((refusals.len(), handles.len(), pair.passive.cm.counters().backlog_full), (2, 4, 2));
    // One request is accepted and one is refused, so there is space for two more.
    pair.passive.cm.accept(NOW, handles[0], &acceptance()).unwrap();
    pair.passive.cm.reject(NOW, handles[1], &crate::node::refusal()).unwrap();
    for req in &requests[4..] {
        pair.passive.receive(NOW, 1, req);
        pair.passive.event();
    }
    assert_eq!(pair.passive.cm.id_count(), 5);
}

#[test]
fn a_request_whose_event_the_program_has_taken_leaves_the_backlog_and_is_answered_later() {
    let mut pair = Pair::new();
    let requests = requests(6);
    for req in &requests[..4] {
        pair.passive.receive(NOW, 1, req);
    }
    let handles = asked(&mut pair.passive);
    // One handle is passed twice, one request was answered before, and one handle does not exist.
    pair.passive.cm.accept(NOW, handles[3], &acceptance()).unwrap();
    for handle in [handles[0], handles[0], handles[3], 77] {
        pair.passive.cm.taken(handle);
        pair.passive.cm.check();
    }
    pair.passive.sent();
    for req in &requests[4..] {
        pair.passive.receive(NOW, 1, req);
    }
    assert_eq!((asked(&mut pair.passive).len(), pair.passive.sent().len()), (2, 0));
    pair.passive.cm.accept(NOW, handles[0], &acceptance()).unwrap();
    assert_eq!(pair.passive.cm.counters().backlog_full, 0);
}

#[test]
fn a_flood_of_reqs_grows_nothing_and_those_who_wait_stay() {
    let mut pair = Pair::new();
    let requests = requests(5_000);
    for req in &requests {
        pair.passive.receive(NOW, 1, req);
        pair.passive.sent();
    }
    assert_eq!((pair.passive.cm.id_count(), pair.passive.cm.counters().backlog_full), (4, 4_996));
    let first = pair.passive.cm.next_event().unwrap().handle;
    pair.passive.cm.accept(NOW, first, &acceptance()).unwrap();
    let CmMessage::Rep(rep) = message(&pair.passive.sent()[0]) else { panic!("a REP") };
    assert_eq!(rep.remote_comm_id, 0x5000_0000);
}

/// Returns a node whose ids are all used by requests, and the handles of these requests.
fn full() -> (Node, Vec<u64>) {
    let mut node = Node::new(2, CmConfig { max_events: 64, ..config(2) });
    node.listen(100);
    for req in requests(16) {
        node.receive(NOW, 1, &req);
    }
    let handles = std::iter::from_fn(|| node.cm.next_event()).map(|event| event.handle).collect();
    assert_eq!(node.cm.id_count(), 16);
    (node, handles)
}

#[test]
fn without_ids_a_req_is_refused_and_a_call_too() {
    let (mut node, _) = full();
    node.receive(NOW, 1, &requests(17)[16]);
    let CmMessage::Rej(rej) = message(&node.sent()[0]) else { panic!("a REJ") };
    assert_eq!((rej.reason, node.cm.counters().no_resources), (RejectReason::NO_RESOURCES, 1));
    assert_eq!(node.cm.connect(NOW, ACTIVE, &param(2, 1)), Err(CmError::NoResources));
    assert_eq!(node.cm.next_event(), None);
    node.cm.check();
}

#[test]
fn an_id_in_timewait_makes_space_for_a_new_one() {
    let (mut node, handles) = full();
    node.cm.accept(NOW, handles[3], &acceptance()).unwrap();
    node.cm.accept(NOW, handles[5], &acceptance()).unwrap();
    // Refused after the REP: both ids are in TIMEWAIT, the second one until later.
    node.cm.reject(NOW, handles[3], &crate::node::refusal()).unwrap();
    node.cm.reject(NOW.after(1), handles[5], &crate::node::refusal()).unwrap();
    node.receive(NOW, 1, &requests(17)[16]);
    let events: Vec<_> = std::iter::from_fn(|| node.cm.next_event()).collect();
    assert_eq!((events[0].handle, events[0].kind), (handles[3], EventKind::TimewaitExit));
    assert!(matches!(events[1].kind, EventKind::ConnectRequest(_)) && events.len() == 2);
    assert_eq!(node.cm.state(handles[5]), Some(CmState::Timewait));
    assert_eq!(node.cm.counters().evicted, 1);
    node.cm.connect(NOW, ACTIVE, &param(2, 1)).unwrap();
    assert_eq!(node.cm.counters().evicted, 2);
    node.cm.check();
}

#[test]
fn a_handle_in_use_is_not_given_away() {
    let mut pair = Pair::new();
    let requests = requests(2);
    pair.passive.receive(NOW, 1, &requests[0]);
    // The driver passes the handle of the first request a second time, and then the listener's.
    for used in [1_000, 1] {
        let gids = GidPair::new(address(2), address(1));
        assert!(!pair.passive.cm.receive(NOW, gids, &requests[1], used));
        let CmMessage::Rej(rej) = message(&pair.passive.sent()[0]) else { panic!("a REJ") };
        assert_eq!(rej.reason, RejectReason::NO_RESOURCES);
    }
    pair.passive.cm.check();
}

#[test]
fn listeners_are_bounded_and_a_service_has_one() {
    let mut node = Node::new(2, config(2));
    let listen = |n| Listen { service_id: ServiceId(n), address: None, backlog: 1, zone: 0 };
    for n in 0..4 {
        node.cm.listen(n, &listen(n)).unwrap();
    }
    assert_eq!(node.cm.listen(9, &listen(9)), Err(CmError::NoResources));
    assert_eq!(node.cm.listen(9, &listen(3)), Err(CmError::AddressInUse));
    assert_eq!(node.cm.listen(3, &listen(9)), Err(CmError::HandleInUse));
    node.cm.destroy(NOW, 3).unwrap();
    node.cm.listen(9, &listen(9)).unwrap();
    node.cm.check();
}

#[test]
fn requests_outlive_their_listener() {
    let mut pair = Pair::new();
    let handle = pair.request();
    pair.passive.cm.destroy(NOW, 1).unwrap();
    pair.passive.cm.check();
    pair.passive.listen(1);
    pair.passive.cm.accept(NOW, handle, &acceptance()).unwrap();
    pair.passive.cm.check();
    assert_eq!(pair.exchange(), ["REP"]);
}

#[test]
fn a_full_queue_of_mads_drops_what_comes_and_refuses_calls() {
    let mut node = Node::new(2, CmConfig { max_outgoing: 4, ..config(2) });
    let requests = requests(5);
    for req in &requests {
        // No program listens, so each REQ gets a REJ.
        node.receive(NOW, 1, req);
    }
    assert_eq!(node.cm.counters().overflows, 2, "space for two answers is reserved");
    assert_eq!(node.cm.connect(NOW, ACTIVE, &param(2, 1)), Err(CmError::Busy));
    assert_eq!(node.sent().iter().map(name).collect::<Vec<_>>(), ["REJ"; 3]);
    node.cm.connect(NOW, ACTIVE, &param(2, 1)).unwrap();
}

#[test]
fn a_full_queue_of_events_drops_what_comes_and_timers_wait_for_it() {
    let mut node = Node::new(2, CmConfig { max_events: 3, ..config(2) });
    node.listen(8);
    let requests = requests(4);
    for req in &requests {
        node.receive(NOW, 1, req);
    }
    assert_eq!((node.cm.id_count(), node.cm.counters().overflows), (2, 2));
    let first = node.cm.next_event().unwrap().handle;
    node.cm.accept(NOW, first, &acceptance()).unwrap();
    node.receive(NOW, 1, &requests[2]);
    // The timer of the REP is due, but there would be no space for its event.
    let due = node.cm.next_deadline();
    assert!(due < Instant::NEVER);
    node.sent();
    node.cm.expire(due);
    assert_eq!((node.cm.next_deadline(), node.sent().len()), (due, 0));
    while node.cm.next_event().is_some() {}
    node.cm.expire(due);
    assert_eq!(node.sent().iter().map(name).collect::<Vec<_>>(), ["REP"]);
    assert!(node.cm.next_deadline() > due);
}

#[test]
fn ten_thousand_connections_come_and_go_through_sixteen_ids() {
    let mut pair = Pair::new();
    for n in 0..10_000_u32 {
        let qpn = Qpn::new(0x10_0000 + n % 512);
        pair.active.cm.connect(pair.now, ACTIVE, &ConnectParam { qpn, ..param(1, 2) }).unwrap();
        pair.exchange();
        let event = std::iter::from_fn(|| pair.passive.cm.next_event()).last().expect("a request");
        let own = Qpn::new(0x20_0000 + n % 512);
        pair.passive
            .cm
            .accept(pair.now, event.handle, &remora_cm::AcceptParam { qpn: own, ..acceptance() })
            .unwrap();
        pair.exchange();
        pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
        pair.exchange();
        assert_eq!(pair.passive.cm.state(event.handle), Some(CmState::Established), "{n}");
        // Every tenth connection is destroyed on one side only.
        if n % 10 == 0 {
            pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
        } else {
            pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
        }
        pair.exchange();
        pair.passive.cm.disconnect(pair.now, event.handle, &[]).unwrap();
        pair.exchange();
        if n % 10 != 0 {
            pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
        }
        while pair.active.cm.next_event().is_some() {}
        while pair.passive.cm.next_event().is_some() {}
    }
    assert!(pair.active.cm.id_count() <= 16 && pair.passive.cm.id_count() <= 16);
    assert!(pair.passive.cm.counters().evicted > 9_000, "no time has passed");
    while pair.passive.cm.next_deadline().min(pair.active.cm.next_deadline()) < Instant::NEVER {
        pair.wait();
        while pair.passive.cm.next_event().is_some() {}
    }
    pair.expect_nothing_left();
}

#[test]
fn ten_thousand_connections_stand_at_once() {
    const COUNT: u32 = 10_000;
    let [mut active, mut passive] = [1, 2].map(|n| remora_cm::Cm::new(CmConfig::new(n, n)));
    let listen = Listen { service_id: crate::node::SERVICE, address: None, backlog: 16, zone: 0 };
    passive.listen(u64::MAX, &listen).unwrap();
    let [to_active, to_passive] =
        [[1, 2], [2, 1]].map(|[local, remote]| GidPair::new(address(local), address(remote)));
    let mut mad = [0; 256];
    for n in 0..COUNT {
        let handle = u64::from(n);
        active.connect(NOW, handle, &ConnectParam { qpn: Qpn::new(2 + n), ..param(1, 2) }).unwrap();
        active.transmit(&mut mad).unwrap();
        assert!(passive.receive(NOW, to_passive, &mad, handle));
        let qpn = Qpn::new(2 + n);
        passive.accept(NOW, handle, &remora_cm::AcceptParam { qpn, ..acceptance() }).unwrap();
        passive.transmit(&mut mad).unwrap();
        active.receive(NOW, to_active, &mad, u64::MAX);
        active.ready_to_use(handle, &[]).unwrap();
        active.transmit(&mut mad).unwrap();
        passive.receive(NOW, to_passive, &mad, u64::MAX);
        for cm in [&mut active, &mut passive] {
            while cm.next_event().is_some() {}
            assert_eq!(cm.state(handle), Some(CmState::Established));
        }
    }
    for cm in [&active, &passive] {
        cm.check();
        assert_eq!((cm.id_count(), cm.next_deadline()), (COUNT as usize, Instant::NEVER));
    }
}
