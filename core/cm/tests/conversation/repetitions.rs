//! Lost and duplicated messages: each message is repeated, and each repetition is answered.

use remora_cm::{Cm, CmError, CmState, ConnectParam, EventKind, Instant};
use remora_wire::mad::{CmMessage, RejectReason, time_ns};

use crate::node::{ACTIVE, Mad, Node, Pair, acceptance, message, name, param};

/// Returns the names of the messages sent until the node's only id ends, and the times when they are sent.
fn until_the_end(node: &mut Node, mut now: Instant) -> (Vec<&'static str>, Vec<u64>) {
    let mut names = Vec::new();
    let mut waits = Vec::new();
    while node.cm.next_event().is_none() {
        let due = node.cm.next_deadline();
        waits.push(due.0 - now.0);
        now = due;
        node.cm.expire(now);
        node.cm.check();
        names.extend(node.sent().iter().map(name));
    }
    (names, waits)
}

#[test]
fn a_req_without_answer_is_repeated_as_it_was_and_then_given_up() {
    let mut pair = Pair::new();
    let twice = ConnectParam { max_cm_retries: 2, ..param(1, 2) };
    pair.active.cm.connect(pair.now, ACTIVE, &twice).unwrap();
    let req = pair.active.sent();
    let wait = time_ns(20) + time_ns(17);
    for _ in 0..2 {
        assert_eq!(pair.active.cm.next_deadline(), pair.now.after(wait));
        pair.active.cm.expire(Instant(pair.now.0 + wait - 1));
        pair.active.expect_silence();
        pair.wait();
        assert_eq!(pair.active.sent(), req);
    }
    pair.wait();
    let rej = pair.active.sent();
    let CmMessage::Rej(rej) = message(&rej[0]) else { panic!("a REJ") };
    assert_eq!((rej.reason, rej.info()), (RejectReason::TIMEOUT, &[2, 0, 0, 0, 0, 0, 0, 1][..]));
    pair.active.expect(|kind| matches!(kind, EventKind::Unreachable));
    assert_eq!(pair.active.cm.counters().retransmitted, 2);
    pair.expect_nothing_left();
}

#[test]
fn a_peer_that_gave_up_is_not_waited_for() {
    let mut pair = Pair::new();
    let handle = pair.request();
    while pair.active.cm.state(ACTIVE).is_some() {
        // All repetitions are lost except the final REJ.
        pair.active.sent();
        pair.wait();
    }
    pair.active.expect(|kind| matches!(kind, EventKind::Unreachable));
    assert_eq!(pair.exchange(), ["REJ"]);
    let event = pair.passive.event();
    assert!(matches!(event.kind, EventKind::Rejected(_)) && event.handle == handle);
    pair.expect_nothing_left();
}

#[test]
fn a_req_that_comes_again_is_answered_by_mra_and_the_active_side_waits_longer() {
    let mut pair = Pair::new();
    let handle = pair.request();
    pair.wait();
    assert_eq!(pair.exchange(), ["REQ", "MRA"]);
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::MraReqSent));
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::MraReqRcvd));
    let long = time_ns(24) + time_ns(17);
    assert_eq!(pair.active.cm.next_deadline(), pair.now.after(long));
    pair.wait();
    assert_eq!(pair.exchange(), ["REQ", "MRA"]);
    assert_eq!(pair.active.cm.next_deadline(), pair.now.after(long), "the second MRA adds nothing");
    // The program answers at last.
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    assert_eq!(pair.exchange(), ["REP"]);
    pair.active.expect(|kind| matches!(kind, EventKind::ConnectResponse(_)));
}

#[test]
fn a_req_that_comes_again_after_the_rep_gets_the_same_rep() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let req = pair.active.sent();
    pair.passive.receive(pair.now, 1, &req[0]);
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    let rep = pair.passive.sent();
    pair.passive.receive(pair.now, 1, &req[0]);
    assert_eq!(pair.passive.sent(), rep);
    // Once the connection is established, the REP is only late.
    pair.active.receive(pair.now, 2, &rep[0]);
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    pair.exchange();
    pair.passive.expect(|kind| matches!(kind, EventKind::Established));
    pair.passive.receive(pair.now, 1, &req[0]);
    pair.passive.expect_silence();
}

#[test]
fn a_rep_that_comes_again_gets_mra_while_the_program_works_and_then_the_same_rtu() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.wait();
    assert_eq!(pair.exchange(), ["REP", "MRA"]);
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::MraRepSent));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::MraRepRcvd));
    assert_eq!(pair.passive.cm.next_deadline(), pair.now.after(time_ns(24) + time_ns(17)));
    pair.active.cm.ready_to_use(ACTIVE, b"once").unwrap();
    let rtu = pair.active.sent();
    pair.wait();
    let rep = pair.passive.sent();
    pair.active.receive(pair.now, 2, &rep[0]);
    assert_eq!(pair.active.sent(), rtu);
    pair.passive.receive(pair.now, 1, &rtu[0]);
    pair.passive.receive(pair.now, 1, &rtu[0]);
    assert_eq!(pair.passive.expect(|kind| matches!(kind, EventKind::Established)), handle);
    assert_eq!(pair.passive.cm.next_deadline(), Instant::NEVER);
}

#[test]
fn a_rep_without_answer_is_repeated_and_then_given_up() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    let (mut names, waits) = until_the_end(&mut pair.passive, pair.now);
    assert_eq!(names.pop(), Some("REJ"));
    assert_eq!(names, ["REP"; 15]);
    assert_eq!(waits, [time_ns(20) + time_ns(17); 16]);
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Timewait));
}

#[test]
fn the_active_side_ends_when_the_passive_one_gave_up_on_its_rtu() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    pair.active.sent();
    while pair.passive.cm.state(handle) == Some(CmState::RepSent) {
        pair.passive.sent();
        pair.wait();
    }
    assert_eq!(pair.exchange(), ["REJ"]);
    pair.active.expect(|kind| matches!(kind, EventKind::Disconnected(remora_cm::Cause::Refused)));
}

/// Returns a pair whose passive side gave up on the RTU, and whose final REJ was lost; the passive side's
/// handle; and the RTU.
fn given_up() -> (Pair, u64, Mad) {
    let mut pair = Pair::new();
    let handle = pair.respond();
    while pair.passive.cm.state(handle) == Some(CmState::RepSent) {
        pair.passive.sent();
        pair.wait();
    }
    assert_eq!(pair.passive.sent().iter().map(name).collect::<Vec<_>>(), ["REJ"]);
    pair.passive.event();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    let rtu = pair.active.sent()[0];
    (pair, handle, rtu)
}

/// Regression: the refusal of a passive side that had given up overtook its REP. The active side stayed
/// established alone, because nobody answered its RTU.
#[test]
fn a_rtu_for_what_was_given_up_hears_so_and_the_active_side_does_not_stand_alone() {
    let refused = |kind: &EventKind| matches!(kind, EventKind::Disconnected(remora_cm::Cause::Refused));
    let (mut pair, handle, rtu) = given_up();
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Timewait));
    pair.passive.receive(pair.now, 1, &rtu);
    assert_eq!(pair.exchange(), ["REJ"]);
    assert_eq!(pair.active.expect(refused), ACTIVE);
    // The same holds later, when nothing is left of the connection.
    let (mut pair, handle, rtu) = given_up();
    pair.wait();
    pair.passive.event();
    assert_eq!(pair.passive.cm.state(handle), None);
    pair.passive.receive(pair.now, 1, &rtu);
    assert_eq!(pair.exchange(), ["REJ"]);
    assert_eq!(pair.active.expect(refused), ACTIVE);
}

#[test]
fn a_lost_rtu_is_healed_by_what_the_queue_pair_receives() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    let rtu = pair.active.sent();
    pair.passive.cm.establish(handle).unwrap();
    let event = pair.passive.event();
    assert_eq!((event.kind, event.private_data.len()), (EventKind::Established, 0));
    assert_eq!(pair.passive.cm.establish(handle), Err(CmError::WrongState));
    // The RTU was not lost, only late.
    pair.passive.receive(pair.now, 1, &rtu[0]);
    pair.passive.expect_silence();
    assert_eq!(pair.passive.cm.next_deadline(), Instant::NEVER);
}

#[test]
fn a_req_of_a_connection_that_is_over_is_refused() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let req = pair.active.sent();
    pair.passive.receive(pair.now, 1, &req[0]);
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    pair.passive.cm.destroy(pair.now, handle).unwrap();
    pair.passive.sent();
    pair.passive.receive(pair.now, 1, &req[0]);
    let CmMessage::Rej(rej) = message(&pair.passive.sent()[0]) else { panic!("a REJ") };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
}

#[test]
fn a_second_mra_does_not_make_the_active_side_wait_without_end() {
    let mut pair = Pair::new();
    pair.request();
    pair.wait();
    pair.exchange();
    let due = pair.active.cm.next_deadline();
    let mra = {
        // Repeats the MRA of the passive side.
        let req = remora_wire::mad::mra::Repr {
            local_comm_id: pair.passive.cm.local_comm_id(1_000).unwrap(),
            remote_comm_id: pair.active.cm.local_comm_id(ACTIVE).unwrap(),
            answered: remora_wire::mad::Answered::Req,
            service_timeout: 31,
            private_data: [0; 222],
        };
        let mut mad = [0; 256];
        CmMessage::Mra(req).emit(1, &mut mad);
        mad
    };
    pair.active.receive(pair.now.after(1), 2, &mra);
    assert_eq!(pair.active.cm.next_deadline(), due);
}

#[test]
fn nothing_waits_in_a_new_manager() {
    let mut cm = Cm::new(crate::node::config(1));
    assert_eq!(cm.next_deadline(), Instant::NEVER);
    cm.expire(Instant(u64::MAX - 1));
    assert_eq!((cm.next_event(), cm.id_count()), (None, 0));
}
