//! Keys that are used for something else, and the information in the answers.

use remora_nic::rma::{Command, Identity, Operand, Rights};
use remora_transport::rma::Status;
use remora_wire::rma::{Kind, TagSequence};

use super::{Forger, patient, request};
use crate::bed::{ALL, Bed, CLIENT, LEN, SERVER, key, region};

/// Attack 6: K_d is used for another operation, process, address or region.
#[test]
fn a_derived_key_is_good_for_one_operation_process_address_and_region() {
    let mut bed = Bed::new(&patient());
    let memory = region(&mut bed.world, SERVER, 4096);
    let other = bed.world.expose(&memory, ALL, key(6)).unwrap();
    let before = bed.served.memory.load(0, LEN);
    let kinds = [Kind::Read, Kind::Write, Kind::Rekey];
    for (given, used) in kinds.iter().flat_map(|given| kinds.map(|used| (*given, used))) {
        let key = bed.command(0, given, 16, [0, 0]).key;
        let command = Command { key, ..bed.command(0, used, 16, [0, 0]) };
        let elsewhere = Operand { region: other.id, offset: 0 };
        let status = bed.run(&Command { remote: elsewhere, ..command.clone() }).status;
        assert_eq!(status, Status::RemoteAuthenticationFailure, "another region");
        if given != used {
            assert_eq!(
                bed.run(&command).status,
                Status::RemoteAuthenticationFailure,
                "{given:?} as {used:?}"
            );
        }
    }
    // From another address: the same message, as if the server had sent it to itself.
    let mut forger = Forger::new();
    let identity = Identity {
        address: bed.world.endpoint(CLIENT).address,
        pid: 17,
        incarnation: 0x1234_5678,
        kind: Kind::Read,
    };
    let mine = forger.derive(&[1; 16], &identity);
    let (header, body) = request(Kind::Read, bed.served.id, 0, 64);
    let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &mine, &[]);
    let served = bed.world.counters(SERVER).rma_served;
    bed.inject(SERVER, SERVER, &bytes);
    assert_eq!(bed.world.counters(SERVER).rma_served, served, "another address");
    bed.inject(CLIENT, SERVER, &bytes);
    assert_eq!(bed.world.counters(SERVER).rma_served, served + 1, "its own address");
    assert!(bed.served.memory.load(0, LEN) == before);
}

/// Attack 14: a peer without a key learns nothing, not even from the work that the server does.
#[test]
fn unknown_freed_and_other_regions_get_the_same_answer_for_the_same_work() {
    let mut bed = Bed::new(&patient());
    let memory = region(&mut bed.world, SERVER, 4096);
    let freed = bed.world.expose(&memory, Rights::READ, key(6)).unwrap();
    bed.world.regions(SERVER).deregister(freed.id).unwrap();
    bed.world.tap();
    let mut forger = Forger::new();
    let mut seen = Vec::new();
    for region in [bed.served.id, freed.id, 40, 64, 65, u32::MAX, 0] {
        for kind in [Kind::Read, Kind::Write, Kind::Rekey] {
            let (header, body) = request(kind, region, 0, 16);
            let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &[0x77; 16], &[]);
            let before = bed.record.calls();
            bed.inject(CLIENT, SERVER, &bytes);
            bed.world.run_for(100);
            let after = bed.record.calls();
            let work = (after.derive - before.derive, after.open - before.open, after.seal - before.seal);
            let answer: Vec<_> = bed.taken().iter().map(|taken| (taken.kind(), taken.bytes.len())).collect();
            seen.push((work, answer));
        }
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
    assert_eq!(seen[0], ((1, 1, 1), vec![(Kind::AuthenticationFailure, 48)]));
}

/// Attack 18, on one engine: operations that are queued or in progress under the old key end when the new key
/// takes effect.
#[test]
fn when_a_rekey_has_completed_nothing_under_the_old_key_reads_or_writes() {
    let mut bed = Bed::new(&patient());
    let half = bed.command(1, Kind::Write, 4096, [0, 8192]);
    bed.world.tap();
    // A write whose data is held back, and reads that have not been sent.
    bed.world.issue(&mut bed.portal, &half);
    bed.world.run_for(1_500);
    bed.world.cut(CLIENT, SERVER, true);
    bed.world.run_for(3_000);
    let data = bed.taken().into_iter().find(|taken| taken.kind() == Kind::Data).expect("hop 3 has left");
    bed.world.cut(CLIENT, SERVER, false);
    bed.local.memory.store(16_000, &[9; 16]);
    let rekey = bed.command(2, Kind::Rekey, 16, [16_000, 0]);
    bed.world.issue(&mut bed.portal, &rekey);
    let ended = [bed.wait(), bed.wait()].map(|end| (end.slot - bed.portal.first, end.status));
    assert_eq!(ended, [(1, Status::RemoteAuthenticationFailure), (2, Status::Ok)], "in this order");
    let before = bed.served.memory.load(0, LEN);
    bed.again(&data);
    assert!(bed.served.memory.load(0, LEN) == before);
    assert_eq!(bed.world.counters(SERVER).rma_revoked, 1);
    bed.assert_idle(&patient());
}

fn stands_in(ring: &remora_nic::Ring, key: &[u8; 16]) -> bool {
    let mut bytes = vec![0; ring.bytes().len()];
    ring.bytes().read(0, &mut bytes).unwrap();
    bytes.windows(16).any(|run| run == key)
}

/// Attack 20: a ring holds the key of a command only until the NIC has fetched it or the portal is destroyed.
#[test]
fn no_ring_keeps_the_key_of_a_command() {
    let mut bed = Bed::new(&patient());
    let command = bed.command(3, Kind::Write, 64, [0, 0]);
    let ring = bed.portal.ring().clone();
    bed.world.issue(&mut bed.portal, &command);
    assert!(stands_in(&ring, &command.key), "it is not fetched");
    assert_eq!(bed.wait().status, Status::Ok);
    assert!(!stands_in(&ring, &command.key));
    bed.world.issue(&mut bed.portal, &Command { size: 0, ..command.clone() });
    assert_eq!(bed.wait().status, Status::LocalError);
    assert!(!stands_in(&ring, &command.key), "a command that is refused");
    bed.world.issue(&mut bed.portal, &command);
    bed.world.destroy_portal(&bed.portal).unwrap();
    assert!(!stands_in(&ring, &command.key), "a portal that goes");
}
