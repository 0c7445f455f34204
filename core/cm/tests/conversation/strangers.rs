//! MADs from unknown peers, or without sense: they are counted, and nothing changes.

use remora_cm::CmState;
use remora_wire::mad::{Attribute, CmMessage, LEN, Method, header};

use crate::node::{ACTIVE, Mad, Pair, message, name, param};

#[test]
fn a_mad_that_is_cut_is_counted_at_each_length() {
    let mut pair = Pair::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    let req = pair.active.sent()[0];
    for len in 0..LEN {
        pair.passive.receive(pair.now, 1, &req[..len]);
    }
    pair.passive.expect_silence();
    assert_eq!(pair.passive.cm.counters().malformed, LEN as u64);
    // Bytes after a complete MAD are ignored.
    let long = [&req[..], &[0xff; 44]].concat();
    pair.passive.receive(pair.now, 1, &long);
    pair.passive.event();
}

#[test]
fn other_classes_methods_and_attributes_are_counted() {
    let mut pair = Pair::new();
    let change = |offset: usize, value: u8| {
        let mut mad = [0; LEN];
        header::Repr::cm(Method::SEND, 1, Attribute::LAP).emit(&mut mad);
        mad[offset] = value;
        mad
    };
    let mads = [change(0, 1), change(0, 2), change(1, 3), change(2, 1), change(3, 1), change(17, 0x1a)];
    for mad in mads {
        pair.passive.receive(pair.now, 1, &mad);
        pair.passive.expect_silence();
    }
    assert_eq!(pair.passive.cm.counters().unsupported, mads.len() as u64);
}

#[test]
fn who_asks_what_the_manager_can_do_gets_an_answer() {
    let mut pair = Pair::new();
    let mut mad = [0; LEN];
    CmMessage::GetClassPortInfo.emit(42, &mut mad);
    pair.passive.receive(pair.now, 1, &mad);
    let sent = pair.passive.sent();
    let CmMessage::ClassPortInfo(info) = message(&sent[0]) else { panic!("{:?}", message(&sent[0])) };
    assert_eq!((info.class_version, info.capabilities), (2, 0x3200));
    assert_eq!(header::View::new(&sent[0]).unwrap().transaction_id(), 42);
    // An unsolicited answer is ignored.
    pair.active.receive(pair.now, 2, &sent[0]);
    pair.active.expect_silence();
}

/// Returns a MAD of each kind that the two sides of one connection send.
fn conversation() -> (Pair, u64, Vec<(u8, Mad)>) {
    let mut pair = Pair::new();
    let mut mads = Vec::new();
    pair.active.cm.connect(pair.now, ACTIVE, &param(1, 2)).unwrap();
    mads.extend(pair.active.sent().into_iter().map(|mad| (1, mad)));
    pair.passive.receive(pair.now, 1, &mads[0].1);
    let handle = pair.passive.event().handle;
    pair.passive.receive(pair.now, 1, &mads[0].1);
    pair.passive.cm.accept(pair.now, handle, &crate::node::acceptance()).unwrap();
    mads.extend(pair.passive.sent().into_iter().map(|mad| (2, mad)));
    for (_, mad) in mads.iter().skip(1) {
        pair.active.receive(pair.now, 2, mad);
    }
    pair.active.event();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    mads.extend(pair.active.sent().into_iter().map(|mad| (1, mad)));
    pair.passive.receive(pair.now, 1, &mads[mads.len() - 1].1);
    pair.passive.event();
    let names: Vec<_> = mads.iter().map(|(_, mad)| name(mad)).collect();
    assert_eq!(names, ["REQ", "MRA", "REP", "RTU"]);
    (pair, handle, mads)
}

#[test]
fn messages_of_a_connection_from_another_address_change_nothing() {
    let (mut pair, handle, mut mads) = conversation();
    let (active, passive) =
        (pair.active.cm.local_comm_id(ACTIVE).unwrap(), pair.passive.cm.local_comm_id(handle).unwrap());
    for attribute in
        [Attribute::DREQ, Attribute::DREP, Attribute::REJ, Attribute::RTU, Attribute::REP, Attribute::MRA]
    {
        let mut mad = [0; LEN];
        header::Repr::cm(Method::SEND, 1, attribute).emit(&mut mad);
        mad[24..28].copy_from_slice(&active.to_be_bytes());
        mad[28..32].copy_from_slice(&passive.to_be_bytes());
        if attribute == Attribute::DREQ {
            mad[32..35].copy_from_slice(&[0x20, 0, 0]);
        }
        mads.push((1, mad));
    }
    for (sender, mad) in mads.iter().filter(|(sender, mad)| *sender == 1 && name(mad) != "REQ") {
        pair.passive.receive(pair.now, sender + 8, mad);
        pair.passive.expect_silence();
        assert_eq!(pair.passive.cm.state(handle), Some(CmState::Established));
    }
    assert!(pair.passive.cm.counters().strangers >= 6);
    // From the peer's own address the DREQ ends the connection.
    let dreq = mads.iter().find(|(_, mad)| name(mad) == "DREQ").unwrap();
    pair.passive.receive(pair.now, 1, &dreq.1);
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::DreqRcvd));
}

#[test]
fn all_messages_come_again_once_established_and_nothing_changes() {
    let (mut pair, handle, mads) = conversation();
    for _ in 0..3 {
        for (sender, mad) in &mads {
            let receiver = if *sender == 1 { &mut pair.passive } else { &mut pair.active };
            receiver.receive(pair.now, *sender, mad);
            assert_eq!(receiver.cm.next_event(), None, "{}", name(mad));
        }
    }
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Established));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Established));
    // Only the REP is answered.
    assert_eq!(pair.active.sent().iter().map(name).collect::<Vec<_>>(), ["RTU"; 3]);
}

#[test]
fn messages_with_wrong_ids_find_nobody() {
    let (mut pair, handle, mads) = conversation();
    // A REQ with another id is another request, so it is left out.
    for (sender, mad) in mads.iter().filter(|(_, mad)| name(mad) != "REQ") {
        for offset in [24, 28] {
            let mut wrong = *mad;
            wrong[offset] ^= 0x40;
            let receiver = if *sender == 1 { &mut pair.passive } else { &mut pair.active };
            receiver.receive(pair.now, *sender, &wrong);
            assert_eq!(receiver.cm.next_event(), None, "{} at {offset}", name(mad));
        }
    }
    assert_eq!(pair.active.cm.state(ACTIVE), Some(CmState::Established));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::Established));
}

#[test]
fn what_another_id_of_the_same_peer_says_does_not_count() {
    // An RTU, and the answer to a DREQ: each would end the wait.
    let mut pair = Pair::new();
    let handle = pair.respond();
    pair.active.cm.ready_to_use(ACTIVE, &[]).unwrap();
    let rtu = pair.active.sent()[0];
    let other = |mad: &Mad| {
        let mut mad = *mad;
        mad[24] ^= 0x40;
        mad
    };
    pair.passive.receive(pair.now, 1, &other(&rtu));
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::RepSent));
    pair.passive.receive(pair.now, 1, &rtu);
    pair.passive.event();
    pair.passive.cm.disconnect(pair.now, handle, &[]).unwrap();
    let dreq = pair.passive.sent()[0];
    pair.active.receive(pair.now, 2, &dreq);
    pair.active.cm.disconnect(pair.now, ACTIVE, &[]).unwrap();
    let drep = pair.active.sent()[0];
    pair.passive.receive(pair.now, 1, &other(&drep));
    pair.passive.expect_silence();
    assert_eq!(pair.passive.cm.state(handle), Some(CmState::DreqSent));
    assert_eq!(pair.passive.cm.counters().unknown_ids, 2);
}
