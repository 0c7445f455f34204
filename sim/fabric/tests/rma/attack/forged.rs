//! The rights of a peer that holds the key, and their limits.

use remora_nic::rma::{Identity, Rights};
use remora_transport::rma::Status;
use remora_wire::rma::{Body, Kind, TagSequence, header};

use super::{Forger, patient, request};
use crate::bed::{Bed, CLIENT, LEN, SERVER, key, region};

/// A peer with the key of a region that lacks the right, or that requests bytes beyond its end, gets no byte.
#[test]
fn an_authentic_request_beyond_its_rights_moves_nothing() {
    let mut bed = Bed::new(&patient());
    let memory = region(&mut bed.world, SERVER, 4096);
    let weak = bed.world.expose(&memory, Rights::NONE, key(5)).unwrap();
    bed.world.tap();
    let mut forger = Forger::new();
    for (kind, region, offset, length, key_byte) in [
        (Kind::Read, weak.id, 0, 64, 5),
        (Kind::Write, weak.id, 0, 64, 5),
        (Kind::Rekey, weak.id, 0, 16, 5),
        (Kind::Read, bed.served.id, LEN as u64 - 1, 2, 1),
        (Kind::Read, bed.served.id, u64::MAX, 64, 1),
        (Kind::Read, bed.served.id, 0, 0, 1),
        (Kind::Read, bed.served.id, 0, 4097, 1),
        (Kind::Write, bed.served.id, 0, u32::MAX, 1),
        (Kind::Rekey, bed.served.id, 0, 15, 1),
        (Kind::Rekey, bed.served.id, 1, 16, 1),
    ] {
        let identity =
            Identity { address: bed.world.endpoint(CLIENT).address, pid: 17, incarnation: 0x1234_5678, kind };
        let mine = forger.derive(&[key_byte; 16], &identity);
        let (header, body) = request(kind, region, offset, length);
        let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &mine, &[]);
        bed.inject(CLIENT, SERVER, &bytes);
        bed.world.run_for(2_000);
        let answers: Vec<Kind> = bed.taken().iter().map(super::Taken::kind).collect();
        assert_eq!(answers, [Kind::Completion], "{kind:?} of {length} at {offset}");
    }
    let counters = bed.world.counters(SERVER);
    assert_eq!((counters.rma_served, counters.rma_access_errors), (0, 10));
}

/// Hop 3 of a write, sent by an attacker with the key: data outside of the operation is not placed.
#[test]
fn data_outside_of_its_operation_is_not_placed() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    let mut forger = Forger::new();
    let identity = Identity {
        address: bed.world.endpoint(CLIENT).address,
        pid: 17,
        incarnation: 0x1234_5678,
        kind: Kind::Write,
    };
    let mine = forger.derive(&[1; 16], &identity);
    let (header, body) = request(Kind::Write, bed.served.id, 1024, 100);
    let (bytes, first) = forger.seal(header, body, &TagSequence::EMPTY, &mine, &[]);
    bed.inject(CLIENT, SERVER, &bytes);
    bed.world.run_for(100);
    let asked = bed.taken().into_iter().find(|taken| taken.kind() == Kind::Solicit).unwrap();
    let second = asked.message().header.nonce;
    let Body::Solicit(solicit) = asked.message().body else { unreachable!("it is one") };
    let tags = TagSequence::new(first).then(second);
    let before = bed.served.memory.load(0, LEN);
    for (offset, len) in
        [(64, 64), (128, 64), (0, 128), (1, 64), (u64::MAX - 63, 64), (u64::MAX, 1), (64, 35)]
    {
        let data = header::Repr { kind: Kind::Data, slot: solicit.server_slot, offset, ..header };
        let (bytes, _) = forger.seal(data, Body::None, &tags, &mine, &vec![0xee; len]);
        bed.inject(CLIENT, SERVER, &bytes);
    }
    assert!(bed.served.memory.load(0, LEN) == before);
    assert_eq!(bed.world.counters(SERVER).rma_late_pieces, 7);
    for (offset, len) in [(64, 36), (0, 64)] {
        let data = header::Repr { kind: Kind::Data, slot: solicit.server_slot, offset, ..header };
        let (bytes, _) = forger.seal(data, Body::None, &tags, &mine, &vec![0xee; len]);
        bed.inject(CLIENT, SERVER, &bytes);
    }
    assert_eq!(bed.served.memory.load(1024, 101)[..100], [0xee; 100]);
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
}
