//! The end of connections.

use remora_cm::{Cause, CmError, CmState, EventKind};

use crate::node::{ACTIVE, Pair, acceptance};

fn requested(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Disconnected(Cause::Requested))
}

fn agreed(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Disconnected(Cause::Agreed))
}

fn timewait_exit(kind: &EventKind) -> bool {
    matches!(kind, EventKind::TimewaitExit)
}

#[test]
fn one_side_asks_the_other_answers_and_both_wait() {
    let (mut pair, handle) = Pair::established();
    pair.active.cm.disconnect(pair.now, ACTIVE, b"bye").unwrap();
    assert_eq!(pair.exchange(), ["DREQ"]);
    let event = pair.passive.event();
    assert!(requested(&event.kind) && event.handle == handle);
    assert_eq!((event.private_data.len(), &event.private_data[..4]), (220, &b"bye\0"[..]));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::DreqRcvd));

    pair.passive.cm.disconnect(pair.now, handle, b"see you").unwrap();
    assert_eq!(pair.exchange(), ["DREP"]);
    let event = pair.active.event();
    assert!(agreed(&event.kind) && event.handle == ACTIVE);
    assert_eq!((event.private_data.len(), &event.private_data[..8]), (224, &b"see you\0"[..]));

    for (node, handle) in [(&mut pair.active, ACTIVE), (&mut pair.passive, handle)] {
        assert_eq!(node.cm.state(handle), Some(CmState::Timewait));
        assert_eq!(node.cm.disconnect(pair.now, handle, &[]), Err(CmError::WrongState));
        // 4.096 µs × 2^17: the ACK timeout of both queue pairs.
        assert_eq!(node.cm.next_deadline(), pair.now.after(4_096 << 17));
    }
    pair.wait();
    assert_eq!(pair.active.expect(timewait_exit), ACTIVE);
    assert_eq!(pair.passive.expect(timewait_exit), handle);
    pair.expect_nothing_left();
}

#[test]
fn both_sides_ask_at_once_and_neither_waits_for_an_answer() {
    let (mut pair, handle) = Pair::established();
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    pair.passive.cm.disconnect(pair.now, handle, &[]).unwrap();
    assert_eq!(pair.exchange(), ["DREQ", "DREQ", "DREP", "DREP"]);
    pair.active.expect(agreed);
    pair.passive.expect(agreed);
    pair.wait();
    pair.active.expect(timewait_exit);
    pair.passive.expect(timewait_exit);
    pair.expect_nothing_left();
}

#[test]
fn a_dreq_that_comes_again_in_timewait_is_answered_again() {
    let (mut pair, handle) = Pair::established();
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    let dreq = pair.active.sent();
    for _ in 0..2 {
        pair.passive.receive(pair.now, 1, &dreq[0]);
    }
    assert_eq!(pair.passive.expect(requested), handle);
    assert!(pair.passive.sent().is_empty(), "the program has not answered yet");
    pair.passive.cm.disconnect(pair.now, handle, b"same").unwrap();
    let drep = pair.passive.sent();
    pair.passive.receive(pair.now, 1, &dreq[0]);
    assert_eq!(pair.passive.sent(), drep, "the same DREP");
    assert_eq!(pair.passive.cm.counters().duplicates, 2);
}

#[test]
fn a_dreq_for_nothing_is_answered_so_that_its_sender_need_not_wait() {
    let (mut pair, _) = Pair::established();
    pair.passive = crate::node::Node::new(2, remora_cm::CmConfig { seed: 99, ..crate::node::config(2) });
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    assert_eq!(pair.exchange(), ["DREQ", "DREP"]);
    pair.active.expect(agreed);
    assert_eq!(pair.passive.cm.counters().unknown_ids, 1);
}

#[test]
fn nobody_answers_and_the_connection_ends_all_the_same() {
    let (mut pair, _) = Pair::established();
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    let mut sent = pair.active.sent().len();
    while pair.active.cm.state(ACTIVE) == Some(CmState::DreqSent) {
        pair.wait();
        sent += pair.active.sent().len();
    }
    assert_eq!(sent, 16, "once and 15 repetitions");
    pair.active.expect(|kind| matches!(kind, EventKind::Disconnected(Cause::Unanswered)));
    pair.wait();
    pair.active.expect(timewait_exit);
    assert_eq!(pair.active.cm.id_count(), 0);
}

#[test]
fn a_dreq_ends_a_connection_whose_rtu_was_lost() {
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    assert_eq!(pair.active.sent().len(), 1, "the RTU, which is lost");
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    pair.exchange();
    assert_eq!(pair.passive.expect(requested), handle);
    pair.passive.cm.disconnect(pair.now, handle, &[]).unwrap();
    pair.exchange();
    pair.active.expect(agreed);
}

#[test]
fn a_dreq_for_another_queue_pair_is_dropped() {
    let (mut pair, handle) = Pair::established();
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    let mut dreq = pair.active.sent()[0];
    dreq[32 + 2] ^= 1;
    pair.passive.receive(pair.now, 1, &dreq);
    pair.passive.expect_silence();
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Established));
    assert_eq!(pair.passive.cm.counters().strangers, 1);
}

/// Returns a pair in which the id of the passive side is in this state.
fn passive_in(state: CmState) -> (Pair, u64) {
    let mut pair = Pair::new();
    let handle = pair.request();
    if state == CmState::RepSent {
        pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
        pair.exchange();
        pair.active.expect(|kind| matches!(kind, EventKind::ConnectResponse(_)));
    }
    assert_eq!(pair.passive.cm.state(handle), Some(state));
    (pair, handle)
}

#[test]
fn a_program_that_dies_is_disconnected_in_every_state() {
    // The program of the passive side ends, before and after it accepted.
    for state in [CmState::ReqRcvd, CmState::RepSent] {
        let (mut pair, handle) = passive_in(state);
        pair.passive.cm.destroy(pair.now, handle).unwrap();
        assert_eq!(pair.passive.cm.state(handle), None);
        assert_eq!(pair.exchange(), ["REJ"], "{state}");
        pair.active.expect(|kind| matches!(kind, EventKind::Rejected(_)));
    }
    // The program of the active side ends, before and after the response.
    let (mut pair, _) = passive_in(CmState::ReqRcvd);
    pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
    assert_eq!(pair.exchange(), ["REJ"]);
    pair.passive.expect(|kind| matches!(kind, EventKind::Rejected(_)));
    pair.expect_nothing_left();
    let (mut pair, _) = passive_in(CmState::RepSent);
    pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
    assert_eq!(pair.exchange(), ["REJ"]);
    pair.passive.expect(|kind| matches!(kind, EventKind::Rejected(_)));
    pair.expect_nothing_left();
    // A program ends after establishment: the peer is informed, and its answer is reported to no program.
    let (mut pair, handle) = Pair::established();
    pair.active.cm.destroy(pair.now, ACTIVE).unwrap();
    assert_eq!(pair.exchange(), ["DREQ"]);
    assert_eq!(pair.passive.expect(requested), handle);
    pair.passive.cm.destroy(pair.now, handle).unwrap();
    assert_eq!(pair.exchange(), ["DREP"]);
    pair.active.expect_silence();
    pair.wait();
    pair.active.expect_silence();
    pair.passive.expect_silence();
    pair.expect_nothing_left();
}
