//! Portals of several programs on one NIC: how they share it, and their isolation.

use remora_fabric::rma::{Portal, command};
use remora_fabric::{ALL, CompletionQueue, Config, LinkConfig, Settings as QpSettings, forge};
use remora_nic::rma::{Command, Operand};
use remora_nic::{Flags, Operation, Payload, WorkRequest};
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::{Class, Kind};

use crate::bed::{Bed, CLIENT, SERVER};

/// Settings with which no timer ends an operation.
const PATIENT: Settings = Settings { rtt: 5_000, ..Settings::software() };

/// A program on the client's NIC that keeps all slots of its portal busy.
struct Program {
    cq: CompletionQueue,
    portal: Portal,
    commands: Vec<Command>,
    ended: u64,
}

impl Program {
    fn new(bed: &mut Bed, slots: u16, class: Class, kind: Kind, size: u32) -> Program {
        let cq = bed.world.create_cq(CLIENT, 2 * u32::from(slots));
        let portal = bed.world.create_portal(cq, slots, 100 + u32::from(slots), 1).unwrap();
        let key = bed.world.derive(&mut bed.issuer, &portal, &bed.served.key, kind);
        let local = Operand { region: bed.local.id, offset: 0 };
        let remote = Operand { region: bed.served.id, offset: 0 };
        let server = bed.world.endpoint(SERVER);
        let commands = (0..slots)
            .map(|slot| Command { class, ..command(&portal, slot, kind, size, local, remote, server, key) });
        Program { cq, commands: commands.collect(), portal, ended: 0 }
    }

    fn begin(&mut self, bed: &mut Bed) {
        for command in &self.commands {
            bed.world.issue(&mut self.portal, command);
        }
    }

    /// Issues each command again that has ended.
    fn go_on(&mut self, bed: &mut Bed) {
        while let Some(end) = bed.world.poll_rma(self.cq) {
            assert_eq!(end.status, Status::Ok);
            self.ended += 1;
            let slot = usize::from(end.slot - self.portal.first);
            bed.world.issue(&mut self.portal, &self.commands[slot]);
        }
    }
}

#[test]
fn slots_share_the_window_in_proportion() {
    for kind in [Kind::Read, Kind::Write] {
        let mut bed = Bed::new(&Settings { window: 16 << 10, ..PATIENT });
        let slots = [4, 16, 64];
        let mut programs = slots.map(|slots| Program::new(&mut bed, slots, Class::Latency, kind, 4096));
        for program in &mut programs {
            program.begin(&mut bed);
        }
        while programs.iter().map(|program| program.ended).sum::<u64>() < 8_400 {
            assert!(bed.world.step());
            for program in &mut programs {
                program.go_on(&mut bed);
            }
        }
        for (program, slots) in programs.iter().zip(slots) {
            let share = 100 * u64::from(slots);
            assert!(program.ended.abs_diff(share) <= share / 20, "{kind:?}: {} of {share}", program.ended);
        }
    }
}

/// Returns the 99th percentile of the delays of 64-byte reads of a program, one at a time, beside another
/// program.
fn small_reads(beside: Option<Class>) -> u64 {
    // The port holds one frame, so waiting frames are in the NIC.
    let link = LinkConfig { queue: 1, ..LinkConfig::default() };
    let mut bed = Bed::with(&Config { link, ..Config::default() }, &PATIENT);
    let mut bulk = beside.map(|class| Program::new(&mut bed, 64, class, Kind::Read, 4096));
    if let Some(bulk) = &mut bulk {
        bulk.begin(&mut bed);
    }
    let mut turn = |bed: &mut Bed, until: u64| {
        let until = bed.world.now().after(until);
        while bed.world.step_until(until) {
            if let Some(bulk) = &mut bulk {
                bulk.go_on(bed);
            }
            if let Some(end) = bed.world.poll_rma(bed.cq) {
                return Some(end);
            }
        }
        None
    };
    let mut delays = Vec::new();
    turn(&mut bed, 50_000);
    for round in 0..1000_u64 {
        // Pauses of many lengths, so that reads start at all phases of a chunk.
        turn(&mut bed, 200 + round * 37 % 1009);
        let command = bed.command(0, Kind::Read, 64, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
        let end = turn(&mut bed, 10_000_000).expect("its end");
        assert_eq!(end.status, Status::Ok);
        delays.push(end.total_delay);
    }
    delays.sort_unstable();
    delays[990]
}

#[test]
fn a_bulk_program_with_all_slots_busy_adds_two_chunks_at_most_to_the_p99_of_another() {
    // 4096 bytes and headers at 100 Gb/s.
    let chunk = 340;
    let alone = small_reads(None);
    let beside = small_reads(Some(Class::Bulk));
    assert!(beside <= alone + 2 * chunk, "alone {alone} ns, beside bulk {beside} ns");
    // The class makes the difference, and not an idle network.
    let unclassed = small_reads(Some(Class::Latency));
    assert!(unclassed > alone + 2 * chunk, "alone {alone} ns, beside latency {unclassed} ns");
}

#[test]
fn portals_of_the_bulk_class_take_no_command_of_the_other() {
    let mut bed = Bed::new(&Settings::paper());
    let init = bed.portal_init(bed.world.pd(CLIENT), true);
    bed.portal = bed.world.create_portal_of(bed.cq, init).unwrap();
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::LocalError);
    let command = Command { class: Class::Bulk, ..bed.command(0, Kind::Read, 64, [0, 0]) };
    assert_eq!(bed.run(&command).status, Status::Ok);
}

/// An index beyond the ring names no commands. It costs the NIC a check and an error completion, and other
/// portals nothing.
///
/// Regression: a producer index beyond the ring made the engine fetch malformed commands endlessly, 64 in
/// each turn.
#[test]
fn a_producer_index_beyond_the_ring_holds_nobody_up() {
    let mut bed = Bed::new(&Settings::paper());
    let cq = bed.world.create_cq(CLIENT, 64);
    let wild = bed.world.create_portal(cq, 4, 5, 5).unwrap();
    for index in [5, 1 << 32, u64::MAX] {
        bed.world.move_producer(&wild, index);
        assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok, "index {index}");
        let end = bed.world.poll_rma(cq).expect("an error completion");
        assert_eq!((end.status, bed.world.poll_rma(cq)), (Status::LocalError, None), "index {index}");
    }
    assert!(bed.world.settle(10_000), "nothing is fetched again and again");
    // Garbage within the ring is malformed, once for each command.
    bed.world.move_producer(&wild, 4);
    assert_eq!(bed.status(Kind::Read, 64, [0, 0]), Status::Ok);
    assert_eq!(std::iter::from_fn(|| bed.world.poll_rma(cq)).count(), 4);
}

/// Compares the bytes that the client's node sends to the server in a given time: RoCE by queue pair, and
/// 1RMA.
#[test]
fn rma_has_the_turns_of_one_tenant_beside_those_with_queue_pairs() {
    let link = LinkConfig { queue: 4, ..LinkConfig::default() };
    let mut bed = Bed::with(&Config { link, ..Config::default() }, &PATIENT);
    let here = bed.world.register(CLIENT, 1 << 20, ALL);
    let there = bed.world.register(SERVER, 1 << 20, ALL);
    for tenant in [2, 2, 2, 3] {
        // Frames of equal length: an attempt that finds the link full costs a packet, regardless of its
        // length.
        let settings = QpSettings { mtu: 4096, ..QpSettings::default() };
        let [(qp, _), _] = bed.world.pair(CLIENT, SERVER, &settings);
        bed.world.ask::<()>(CLIENT, remora_nic::Command::SetTenant { qp: qp.number, tenant }).unwrap();
        let list = [here.sge(0, 1 << 20)];
        let operation = Operation::Write(there.remote(0));
        let payload = Payload::Sges(&list);
        bed.world.post(qp, &WorkRequest { id: 1, operation, payload, flags: Flags::default() }).unwrap();
    }
    let mut program = Program::new(&mut bed, 64, Class::Latency, Kind::Write, 4096);
    program.begin(&mut bed);
    bed.world.run_for(30_000);
    bed.world.tap();
    let until = bed.world.now().after(100_000);
    while bed.world.step_until(until) {
        program.go_on(&mut bed);
    }
    let mut rma = 0;
    let mut all = 0;
    for sent in bed.world.sent().iter().filter(|sent| sent.from == CLIENT) {
        let is_rma = forge::transport(bed.world.start(), &sent.bytes).is_none();
        rma += if is_rma { sent.bytes.len() } else { 0 };
        all += sent.bytes.len();
    }
    assert!(all > 500_000 && rma.abs_diff(all / 3) <= all / 20, "{rma} of {all} bytes");
}
