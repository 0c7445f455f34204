//! Messages that are sent again.

use remora_transport::rma::Status;
use remora_wire::rma::{Kind, TagSequence};

use super::{Forger, patient};
use crate::bed::{Bed, CLIENT, LEN, SERVER, key, start};

/// Attack 1: a read is replayed.
#[test]
fn a_replayed_read_is_served_with_another_ciphertext_and_changes_nothing() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    assert_eq!(bed.status(Kind::Read, 4096, [0, 0]), Status::Ok);
    let first = bed.taken();
    let request = first.iter().find(|taken| taken.kind() == Kind::Read).unwrap().clone();
    bed.local.memory.store(0, &[0x5a; LEN]);
    bed.again(&request);
    bed.world.run_for(10_000);
    let second = bed.taken();
    let data =
        |all: &[super::Taken]| all.iter().find(|taken| taken.kind() == Kind::Data).unwrap().bytes.clone();
    assert_ne!(data(&first)[32..], data(&second)[32..], "a fresh nonce, another ciphertext");
    assert_eq!(bed.world.counters(CLIENT).rma_unexpected, 1);
    assert!(bed.local.memory.load(0, LEN) == vec![0x5a; LEN]);
    bed.assert_idle(&patient());
}

/// Attack 2: a write is replayed after its end, with and without its data.
#[test]
fn a_replayed_write_changes_nothing_with_or_without_its_data() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    assert_eq!(bed.status(Kind::Write, 128, [0, 0]), Status::Ok);
    let taken = bed.taken();
    let recorded = |kind: Kind| taken.iter().find(|taken| taken.kind() == kind).unwrap().clone();
    bed.served.memory.store(0, &[0x33; 128]);
    let before = bed.served.memory.load(0, LEN);
    bed.again(&recorded(Kind::Write));
    bed.world.run_for(10_000);
    let solicit =
        bed.taken().into_iter().find(|taken| taken.kind() == Kind::Solicit).expect("the server asks");
    assert_eq!(bed.world.counters(CLIENT).rma_unexpected, 1, "and nobody answers");
    // The recorded data, addressed to the operation that is served now.
    let mut data = recorded(Kind::Data);
    let server_slot = &solicit.bytes[32..34];
    data.bytes[2..4].copy_from_slice(server_slot);
    bed.again(&data);
    bed.again(&recorded(Kind::Data));
    assert_eq!(bed.world.counters(SERVER).rma_bad_responses + bed.world.counters(SERVER).rma_unexpected, 2);
    bed.assert_idle(&patient());
    assert!(bed.served.memory.load(0, LEN) == before);
    assert_eq!(bed.world.counters(SERVER).rma_served_timeouts, 1, "its window comes back by the timeout");
}

/// Attack 3: the request of a write is duplicated while the write is in progress.
#[test]
fn a_write_whose_request_comes_twice_is_applied_once_however_late_its_second_solicit_is() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    let command = bed.command(0, Kind::Write, 128, [0, 0]);
    bed.world.issue(&mut bed.portal, &command);
    bed.world.run_for(10);
    let request = bed.taken().remove(0);
    bed.again(&request);
    assert_eq!(bed.wait().status, Status::Ok);
    let written = bed.served.memory.load(0, 128);
    assert_eq!(written, bed.local.memory.load(0, 128));
    let taken = bed.taken();
    assert_eq!(taken.iter().filter(|taken| taken.kind() == Kind::Solicit).count(), 2);
    assert_eq!(taken.iter().filter(|taken| taken.kind() == Kind::Data).count(), 1);
    bed.served.memory.store(0, &[0x44; 128]);
    for taken in &taken {
        bed.again(taken);
    }
    bed.world.run_for(15_000_000);
    for taken in &taken {
        bed.again(taken);
    }
    bed.assert_idle(&patient());
    assert_eq!(bed.served.memory.load(0, 128), vec![0x44; 128], "no byte changes after the completion");
}

/// Attack 4: a rekey is replayed, also after a newer one.
#[test]
fn a_replayed_rekey_changes_no_key() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    assert_eq!(bed.rekey(7).status, Status::Ok);
    let taken = bed.taken();
    assert_eq!(bed.rekey(8).status, Status::Ok, "a newer one");
    for round in 0..2 {
        for taken in taken.iter().filter(|taken| taken.to == SERVER) {
            bed.again(taken);
            bed.world.run_for(5_000);
        }
        assert!(bed.world.regions(SERVER).get(bed.served.id).unwrap().region_key == key(8), "round {round}");
    }
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
    bed.assert_idle(&patient());
}

/// Attack 8. The recording cipher panics if a key seals twice with the same nonce.
#[test]
fn no_nonce_comes_twice_over_restarts_equal_processes_and_a_clock_set_back() {
    let settings = patient();
    let mut bed = Bed::new(&settings);
    for starts in 1..20_u32 {
        for node in [SERVER, CLIENT] {
            let mut start = start(node, starts);
            // The wall clock was set back: the random word of the start makes the nonces different.
            start.first_nonce = 1_000_000 - 1_000 * u64::from(starts);
            let cipher = Box::new(bed.record.wrap(remora_cipher::Aes::new(8)));
            bed.world.enable_rma(node, &settings, start, cipher);
        }
        bed.served = bed.world.expose(&bed.served.memory, crate::bed::ALL, key(1)).unwrap();
        let second = bed.world.expose(&bed.served.memory, crate::bed::ALL, key(1)).unwrap();
        bed.local = bed.world.expose(&bed.local.memory, remora_nic::rma::Rights::NONE, key(2)).unwrap();
        bed.cq = bed.world.create_cq(CLIENT, 64);
        bed.portal = bed.world.create_portal(bed.cq, 4, 1, 1).unwrap();
        for kind in [Kind::Read, Kind::Write] {
            assert_eq!(bed.status(kind, 256, [0, 0]), Status::Ok);
        }
        // The same key in two regions.
        let first = std::mem::replace(&mut bed.served, second);
        assert_eq!(bed.status(Kind::Read, 256, [0, 0]), Status::Ok);
        bed.served = first;
    }
    assert!(bed.record.pairs() >= 19 * 8, "{:?}", bed.record);
}

/// Checks that the test of attack 8 can fail: a start that repeats the nonces of another one is detected.
#[test]
#[should_panic(expected = "sealed twice")]
fn an_engine_that_begins_where_it_began_before_is_found() {
    let settings = patient();
    let mut bed = Bed::new(&settings);
    for _ in 0..2 {
        let cipher = Box::new(bed.record.wrap(remora_cipher::Aes::new(8)));
        bed.world.enable_rma(CLIENT, &settings, start(CLIENT, 1), cipher);
        bed.local = bed.world.expose(&bed.local.memory, remora_nic::rma::Rights::NONE, key(2)).unwrap();
        bed.cq = bed.world.create_cq(CLIENT, 64);
        bed.portal = bed.world.create_portal(bed.cq, 4, 1, 1).unwrap();
        bed.status(Kind::Read, 256, [0, 0]);
    }
}

/// Attack 9: late messages of a slot's former command arrive during the next one.
#[test]
fn late_messages_of_the_former_command_do_not_touch_the_next_one_of_the_slot() {
    for kind in [Kind::Read, Kind::Write, Kind::Rekey] {
        let mut bed = Bed::new(&remora_transport::rma::Settings::paper());
        bed.world.tap();
        bed.world.cut(SERVER, CLIENT, true);
        assert_eq!(bed.status(kind, 16, [0, 0]), Status::Timeout);
        let late: Vec<_> = bed.taken().into_iter().filter(|taken| taken.to == CLIENT).collect();
        assert!(!late.is_empty(), "{kind:?}");
        // A NACK and a failure that the attacker seals with the reserved key or its own key.
        let mut forger = Forger::new();
        let header = remora_wire::rma::header::Repr { kind: Kind::Nack, ..late[0].message().header };
        let (nack, _) = forger.seal(header, remora_wire::rma::Body::None, &TagSequence::EMPTY, &[9; 16], &[]);
        let next = bed.command(0, Kind::Read, 64, [1024, 0]);
        bed.world.issue(&mut bed.portal, &next);
        bed.world.run_for(10);
        for taken in &late {
            bed.again(taken);
        }
        bed.inject(SERVER, CLIENT, &nack);
        assert_eq!(bed.world.poll_rma(bed.cq), None, "{kind:?}: the command goes on");
        let counters = bed.world.counters(CLIENT);
        assert_eq!(counters.rma_unexpected + counters.rma_bad_responses, late.len() as u64 + 1);
        bed.world.cut(SERVER, CLIENT, false);
        let beside = bed.command(1, Kind::Read, 64, [2048, 0]);
        assert_eq!(bed.run(&beside).status, Status::Ok, "a slot beside it");
    }
}
