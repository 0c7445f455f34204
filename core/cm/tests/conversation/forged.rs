//! Messages that a stranger forges from public information: addresses, an adapter's GUID, and times of its
//! choice.

use remora_cm::{CmState, EventKind};
use remora_wire::mad::{Answered, CmMessage, RejectReason, mra, rej};

use crate::node::{ACTIVE, Mad, Node, Pair, SECOND, acceptance, address, config, message, name, param};

/// Returns the message as a MAD.
fn mad(message: &CmMessage) -> Mad {
    let mut mad = [0; 256];
    message.emit(1, &mut mad);
    mad
}

/// Returns the REQ of node 1 after `change`.
fn request(change: impl FnOnce(&mut remora_wire::mad::req::Repr)) -> Mad {
    let mut node = Node::new(1, config(1));
    node.cm.connect(remora_cm::Instant(SECOND), ACTIVE, &param(1, 2)).unwrap();
    let CmMessage::Req(mut req) = message(&node.sent()[0]) else { panic!("a REQ") };
    change(&mut req);
    mad(&CmMessage::Req(req))
}

/// Regression: one forged REJ with the reason "timeout", the peer's GUID and the peer's id ended an
/// established connection.
#[test]
fn a_timeout_that_knows_the_peers_id_alone_ends_no_established_connection() {
    let (mut pair, handle) = Pair::established();
    let active = pair.active.cm.local_comm_id(ACTIVE).unwrap();
    let passive = pair.passive.cm.local_comm_id(handle).unwrap();
    let timeout = |sender: u8, local, remote, answered| {
        let guid = config(sender).ca_guid.to_be_bytes();
        mad(&CmMessage::Rej(rej::Repr::new(local, remote, answered, RejectReason::TIMEOUT, &guid, &[])))
    };
    for answered in [Answered::Req, Answered::Rep, Answered::Other] {
        for unknown in [0, 1, passive ^ 1, active ^ 1] {
            pair.passive.receive(pair.now, 1, &timeout(1, active, unknown, answered));
            pair.passive.expect_silence();
            pair.active.receive(pair.now, 2, &timeout(2, passive, unknown, answered));
            pair.active.expect_silence();
        }
    }
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Established));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Established));
    // The peer, which knows both ids, gave up on the RTU.
    pair.active.receive(pair.now, 2, &timeout(2, passive, active, Answered::Other));
    pair.active.expect(|kind| matches!(kind, EventKind::Disconnected(_)));
}

/// Regression: one request of 280 bytes with times of zero made a server send 17 messages at once to the
/// source that it named.
#[test]
fn a_request_with_times_of_zero_has_one_response_at_once_and_the_next_ones_wait() {
    let mut pair = Pair::new();
    let req = request(|req| {
        req.local_response_timeout = 0;
        req.primary.ack_timeout = 0;
        req.max_cm_retries = 15;
    });
    pair.passive.receive(pair.now, 1, &req);
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    assert_eq!(pair.passive.sent().len(), 1);
    let begin = pair.now;
    for _ in 0..15 {
        let before = pair.now;
        pair.wait();
        assert!(pair.now.0 - before.0 >= 2_000_000, "as Linux: a millisecond for each of both times");
        // However late the timer runs, it causes one response only.
        assert_eq!(pair.passive.sent().iter().map(name).collect::<Vec<_>>(), ["REP"]);
    }
    assert!(pair.now.0 - begin.0 >= 30_000_000);
}

#[test]
fn a_late_timer_sends_one_repetition() {
    let mut pair = Pair::new();
    let req = request(|req| (req.local_response_timeout, req.primary.ack_timeout) = (0, 0));
    pair.passive.receive(pair.now, 1, &req);
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    pair.passive.sent();
    pair.passive.cm.expire(pair.now.after(60 * SECOND));
    assert_eq!(pair.passive.sent().len(), 1);
}

#[test]
fn a_message_receipt_with_a_time_of_zero_does_not_make_the_active_side_repeat_at_once() {
    let mut pair = Pair::new();
    pair.request();
    let mra = mra::Repr {
        local_comm_id: 7,
        remote_comm_id: pair.active.cm.local_comm_id(ACTIVE).unwrap(),
        answered: Answered::Req,
        service_timeout: 0,
        private_data: [0; mra::PRIVATE_LEN],
    };
    pair.active.receive(pair.now, 2, &mad(&CmMessage::Mra(mra)));
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::MraReqRcvd));
    assert!(pair.active.cm.next_deadline().0 - pair.now.0 >= 2_000_000);
}

#[test]
fn no_peer_holds_an_id_for_days() {
    let mut pair = Pair::new();
    let req = request(|req| (req.local_response_timeout, req.primary.ack_timeout) = (31, 31));
    pair.passive.receive(pair.now, 1, &req);
    let handle = pair.passive.event().handle;
    pair.passive.cm.accept(pair.now, handle, &acceptance()).unwrap();
    assert!(pair.passive.cm.next_deadline().0 - pair.now.0 < 140 * SECOND);
}

/// Regression: a request whose path named a third host made the server's queue pair send there.
#[test]
fn a_path_to_a_third_host_is_refused() {
    let mut pair = Pair::new();
    let ends = [[address(3), address(2)], [address(1), address(3)], [address(2), address(1)]];
    for [local, remote] in ends {
        let req = request(|req| (req.primary.local_gid, req.primary.remote_gid) = (local, remote));
        pair.passive.receive(pair.now, 1, &req);
        let sent = pair.passive.sent();
        let CmMessage::Rej(rej) = message(&sent[0]) else { panic!("{:?}", message(&sent[0])) };
        assert_eq!((rej.reason, sent.len()), (RejectReason::PRIMARY_GID, 1));
        assert_eq!((pair.passive.cm.next_event(), pair.passive.cm.id_count()), (None, 0));
    }
}
