//! Bounded tables, and the behaviour at each bound.

use remora_fabric::Config;
use remora_nic::NicError;
use remora_nic::rma;
use remora_nic::rma::{Command, Operand, RegionError, Rights};
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::Kind;

use crate::bed::{Bed, CLIENT, LEN, SERVER, key, region};

#[test]
fn slots_portals_and_regions_are_as_many_as_were_asked_for() {
    let settings = Settings { slots: 70, ..Settings::paper() };
    let mut bed = Bed::new(&settings);
    assert_eq!(bed.portal.slots, 64);
    assert_eq!(bed.world.create_portal(bed.cq, 7, 1, 1).unwrap_err(), NicError::Full);
    let more = bed.world.create_portal(bed.cq, 6, 1, 1).unwrap();
    assert_eq!(more.first, 64);
    assert_eq!(bed.world.create_portal(bed.cq, 1, 1, 1).unwrap_err(), NicError::Full);
    assert_eq!(bed.world.create_portal(bed.cq, 0, 1, 1).unwrap_err(), NicError::TooSmall);
    bed.world.destroy_portal(&more).unwrap();
    assert_eq!(bed.world.destroy_portal(&more), Err(NicError::Unknown));
    bed.world.create_portal(bed.cq, 6, 1, 1).unwrap();
    let memory = region(&mut bed.world, SERVER, 64);
    let taken = (0..100).take_while(|_| bed.world.expose(&memory, Rights::READ, key(4)).is_ok()).count();
    assert_eq!(taken, 63, "one is the bed's");
    assert_eq!(bed.world.expose(&memory, Rights::READ, key(4)).unwrap_err(), RegionError::Full);
}

/// Any contents of a ring cause an error completion at most; nothing is sent.
#[test]
fn commands_that_are_wrong_complete_in_error_at_once() {
    let mut bed = Bed::new(&Settings::paper());
    let right = bed.command(0, Kind::Read, 64, [0, 0]);
    let local = |region, offset| Operand { region, offset };
    let wrong = [
        Command { slot: bed.portal.first + bed.portal.slots, ..right.clone() },
        Command { slot: u16::MAX, ..right.clone() },
        Command { cq: right.cq + 1, ..right.clone() },
        Command { local: local(0, 0), ..right.clone() },
        Command { local: local(u32::MAX, 0), ..right.clone() },
        Command { local: local(bed.local.id, LEN as u64 - 63), ..right.clone() },
        Command { local: local(bed.local.id, u64::MAX - 10), ..right.clone() },
        Command { size: 0, ..right.clone() },
        Command { size: 4097, ..right.clone() },
        Command { kind: Kind::Rekey, size: 64, ..right.clone() },
        Command { server: Default::default(), ..right.clone() },
    ];
    for command in &wrong {
        let completion = bed.run(command);
        assert_eq!((completion.status, completion.slot), (Status::LocalError, command.slot), "{command:?}");
    }
    for bytes in [[0; 64], [0xff; 64]] {
        bed.world.issue_bytes(&mut bed.portal, &bytes);
        assert_eq!(bed.wait().status, Status::LocalError);
    }
    assert_eq!(bed.world.counters(CLIENT).sent_pkts, 0, "nothing left");
    assert_eq!(bed.world.counters(CLIENT).rma_malformed_commands, wrong.len() as u64 + 2);
    assert_eq!(bed.run(&right).status, Status::Ok);
    // A slot in use takes no second command.
    bed.world.issue(&mut bed.portal, &right);
    bed.world.issue(&mut bed.portal, &right);
    let statuses = [bed.wait().status, bed.wait().status];
    assert_eq!(statuses, [Status::LocalError, Status::Ok]);
}

/// The local region belongs to another protection domain: the key does not help.
#[test]
fn local_operands_are_of_the_portals_own_domain() {
    let mut bed = Bed::new(&Settings::paper());
    let foreign = bed.world.table(CLIENT).alloc_pd().unwrap();
    let init = bed.portal_init(foreign, false);
    let portal = bed.world.create_portal_of(bed.cq, init).unwrap();
    let own = std::mem::replace(&mut bed.portal, portal);
    for kind in [Kind::Read, Kind::Write] {
        assert_eq!(bed.status(kind, 64, [0, 0]), Status::LocalError, "{kind:?}");
    }
    bed.portal = own;
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
}

#[test]
fn local_memory_that_goes_while_an_operation_runs_is_not_touched() {
    for kind in [Kind::Read, Kind::Write] {
        let mut bed = Bed::new(&Settings::paper());
        let command = bed.command(0, kind, 64, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
        bed.world.run_for(500);
        bed.world.regions(CLIENT).deregister(bed.local.id).unwrap();
        assert_eq!(bed.wait().status, Status::LocalError, "{kind:?}");
        bed.assert_idle(&Settings::paper());
    }
}

#[test]
fn a_portal_that_goes_gives_its_part_of_the_window_back() {
    let mut bed = Bed::new(&Settings::paper());
    for slot in 0..8 {
        let command = bed.command(slot, [Kind::Read, Kind::Write][usize::from(slot % 2)], 4096, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
    }
    bed.world.run_for(1_200);
    let portal = std::mem::replace(&mut bed.portal, bed.world.create_portal(bed.cq, 8, 3, 3).unwrap());
    bed.world.destroy_portal(&portal).unwrap();
    bed.assert_idle(&Settings::paper());
    assert_eq!(bed.world.poll_rma(bed.cq), None, "its operations end without completions");
    let command = bed.command(0, Kind::Read, 64, [0, 0]);
    assert_eq!(bed.run(&command).status, Status::Ok);
}

#[test]
fn a_server_with_a_full_table_refuses_and_the_window_is_free_at_once() {
    let settings = Settings { served: 4, ..Settings::paper() };
    let mut bed = Bed::new(&settings);
    for slot in 0..16 {
        let command = bed.command(slot, Kind::Write, 64, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
    }
    let mut ends = [0; 2];
    for _ in 0..16 {
        match bed.wait() {
            end if end.status == Status::Ok => ends[0] += 1,
            end => {
                assert_eq!(end.status, Status::Nack);
                assert!(end.total_delay < settings.timeout, "a NACK comes before the timeout: {end:?}");
                ends[1] += 1;
            }
        }
    }
    assert!(ends[0] >= 4 && ends[1] > 0, "{ends:?}");
    assert_eq!(bed.world.counters(SERVER).rma_nacks_sent, ends[1]);
    bed.assert_idle(&settings);
}

/// The size of a NIC depends on its settings, and not on the number of initiators.
#[test]
fn ten_thousand_initiators_leave_the_server_as_large_as_one() {
    let mut bed = Bed::new(&Settings::paper());
    let facts = |bed: &mut Bed| {
        bed.world.ask::<Option<rma::Facts>>(SERVER, remora_nic::Command::QueryRma).unwrap().unwrap()
    };
    let bytes = |bed: &mut Bed| facts(bed).bytes;
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
    let before = bytes(&mut bed);
    for pid in 0..10_000 {
        bed.world.destroy_portal(&bed.portal).unwrap();
        bed.portal = bed.world.create_portal(bed.cq, 1, pid, 1).unwrap();
        assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
    }
    assert_eq!(bytes(&mut bed), before);
    assert!(facts(&mut bed).derivations >= 10_000);
}

/// A peer that accepts nothing any more fills only its own buffers.
///
/// Regression: a peer whose buffers were full blocked all 1RMA of an engine.
#[test]
fn a_peer_that_is_full_keeps_nobody_elses_reads_waiting() {
    const FULL: usize = 2;
    let settings = Settings { served: 256, bandwidth: u64::MAX, ..Settings::paper() };
    let mut config = Config { nodes: 3, ..Config::default() };
    config.nic.mtu = 64;
    let mut bed = Bed::with(&config, &settings);
    let cq = bed.world.create_cq(FULL, 256);
    let mut portal = bed.world.create_portal(cq, 16, 9, 9).unwrap();
    let memory = region(&mut bed.world, FULL, LEN);
    let local = bed.world.expose(&memory, Rights::NONE, key(2)).unwrap();
    let derived = bed.world.derive(&mut bed.issuer, &portal, &bed.served.key, Kind::Read);
    bed.world.set_rate(SERVER, FULL, 1_000);
    for slot in 0..16 {
        let like = bed.command(0, Kind::Read, 4096, [0, 0]);
        let local = Operand { region: local.id, offset: 0 };
        let command =
            Command { slot: portal.first + slot, cq: cq.number as u16, local, key: derived, ..like };
        bed.world.issue(&mut portal, &command);
    }
    bed.world.run_for(3_000);
    for kind in [Kind::Read, Kind::Write, Kind::Read] {
        assert_eq!(bed.status(kind, 4096, [0, 0]), Status::Ok, "{kind:?} beside a full peer");
    }
}
