//! Tests of 1RMA that a daemon lends: limits, objects that become free, and programs that name objects of
//! others.

use remora_nic::rma::{Command, CommandQueue, Completion, Operand, PortalFacts, RegionKey, Rights};
use remora_nic::{BellOwner, Device as _, Doorbell, Word};
use remora_transport::rma::Status;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Body, Class, Kind, Message};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use super::super::DaemonClient;
use super::super::message::{RegisterRma, Reply, Request};
use super::super::{Limits, Options};
use super::{
    DONE, LONG, Lender, Numbers, Raw, free_domain, key_of_rma, lender, lender_of, number, refused, revoke,
};
use crate::rma::{Client, Grant, Portal, RmaError, RmaOptions, RmaRegion, Settings};
use crate::{Access, CompletionQueue, Context, Device, MemoryRegion, ProtectionDomain};

const LEN: usize = 64 << 10;
/// Timeouts that no operation of a test reaches.
const PATIENT: Settings =
    Settings { dispatch_timeout: 60_000_000_000, timeout: 60_000_000_000, ..Settings::software() };

fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn udp_lender(test: &str, options: &Options) -> Lender {
    lender_of(&Device::udp(here()).unwrap(), test, options)
}

fn register(region: u32, key: u8) -> Request {
    let key = RegionKey::new([key; 16]).unwrap();
    Request::RegisterRma(RegisterRma { region, base: 1 << 40, len: 64, rights: Rights::READ, key })
}

fn portal(raw: &Raw, domain: u32, cq: u32, slots: u16, bulk_only: bool) -> Reply {
    match raw.hand(slots.into()) {
        Reply::Number(part) => {
            raw.execute(super::portal(domain, cq, slots, bulk_only, remora_nic::PartNumber(part)))
        }
        refused => refused,
    }
}

/// Bytes that differ by position and by seed, so that a test recognises both.
fn pattern(seed: usize) -> Vec<u8> {
    (0..LEN).map(|index| (index * 7 + index / 256 + seed * 101) as u8).collect()
}

fn holds(memory: &MemoryRegion, seed: usize) -> bool {
    let mut bytes = vec![0; LEN];
    memory.read(0, &mut bytes).unwrap();
    bytes == pattern(seed)
}

/// A server with a NIC of its own.
struct Server {
    context: Context,
    rma: crate::rma::Rma,
}

impl Server {
    fn new() -> Server {
        let device = Device::udp(here()).unwrap().mode(crate::Mode::Dedicated);
        let context = device.open().unwrap();
        let rma = context.open_rma(&RmaOptions::default()).unwrap();
        Server { context, rma }
    }

    fn region(&self, seed: usize, rights: Rights) -> RmaRegion {
        let memory = self.context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
        memory.write(0, &pattern(seed)).unwrap();
        self.rma.expose(memory, rights, None).unwrap()
    }
}

/// A program of the daemon that uses the API correctly.
struct Program {
    context: Context,
    domain: ProtectionDomain,
    rma: crate::rma::Rma,
    local: RmaRegion,
    portal: Portal,
}

impl Program {
    fn new(lender: &Lender, slots: u16) -> Program {
        let context = lender.open();
        let domain = context.alloc_pd().unwrap();
        let rma = context.open_rma(&RmaOptions::default()).unwrap();
        let memory = domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
        let local = rma.expose(memory, Rights::NONE, None).unwrap();
        let portal = rma.create_portal(&domain, slots).unwrap();
        Program { context, domain, rma, local, portal }
    }

    fn identity(&self) -> Client {
        self.portal.identity()
    }

    /// Reads a whole granted region into the local one, and checks the content.
    fn reads(&mut self, grant: &Grant, seed: usize) {
        self.local.memory().write(0, &vec![0; LEN]).unwrap();
        self.portal.read(&self.local, 0, grant, 0, LEN as u64, LONG).unwrap();
        assert!(holds(self.local.memory(), seed));
    }

    /// Creates a portal whose ring the test writes directly.
    fn raw_portal(&self, slots: u16) -> RawPortal {
        let cq = self.context.create_cq(1024).unwrap();
        let daemon = Arc::clone(self.context.daemon().unwrap());
        let (ring, part) = daemon.queue(slots.into()).unwrap();
        let create = super::portal(self.domain.pd().get(), cq.number(), slots, false, part);
        let facts: PortalFacts = remora_nic::Device::ask(&*daemon, create).unwrap();
        let bell = daemon.assign_bell(BellOwner::Portal(facts.number)).unwrap();
        RawPortal { daemon, facts, bell, commands: CommandQueue::new(ring), cq }
    }
}

struct RawPortal {
    daemon: Arc<DaemonClient>,
    facts: PortalFacts,
    bell: Doorbell,
    commands: CommandQueue,
    cq: CompletionQueue,
}

impl RawPortal {
    fn command(&self, local: &RmaRegion, kind: Kind, grant: &Grant) -> Command {
        Command {
            kind,
            class: Class::Latency,
            size: 64,
            slot: self.facts.first,
            cq: self.cq.number() as u16,
            local: Operand { region: local.id(), offset: 0 },
            remote: Operand { region: grant.region, offset: 0 },
            server: grant.server,
            key: grant.key(kind),
        }
    }

    fn issue(&mut self, bytes: &[u8; 64]) {
        self.commands.push_bytes(bytes);
        self.commands.publish();
        self.daemon.ring_bell(self.bell.index);
    }

    fn wait(&mut self) -> Completion {
        let begun = std::time::Instant::now();
        loop {
            if let Some(entry) = self.cq.poll_entry().unwrap() {
                return Completion::of(&entry).unwrap();
            }
            assert!(begun.elapsed() < LONG, "a command does not end");
            std::thread::yield_now();
        }
    }

    fn status(&mut self, command: &Command) -> Status {
        self.issue(&command.bytes());
        self.wait().status
    }
}

#[track_caller]
fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{condition}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_user_has_as_much_of_1rma_as_it_may_over_all_programs_and_no_more() {
    let limits =
        Limits { rma_portals: 2, rma_slots: 24, rma_latency_slots: 16, rma_regions: 2, ..Limits::default() };
    let lender = lender("rma-limits", &Options { limits, ..Options::default() });
    let programs = [lender.raw(), lender.raw()];
    let [mine, other] = &programs;
    let [first, second] = [mine, other].map(|program| {
        let domain = program.domain();
        (domain, number(program.create_cq(64)), number(program.register(domain, 4096)))
    });
    let regions = [1, 2].map(|key| mine.number(&register(first.2, key)));
    other.refuses(&register(second.2, 3), "--rma-regions");
    assert_eq!(mine.ask(&Request::DeregisterRma(regions[0])), Reply::Done);
    other.number(&register(second.2, 3));
    mine.refuses(&register(first.2, 3), "3 regions of 1RMA are over the 2");
    refused(portal(mine, first.0, first.1, 0, false), "");
    refused(portal(mine, first.0, first.1, 17, false), "--rma-latency-slots");
    number(portal(mine, first.0, first.1, 16, false));
    let words = "17 slots of the latency class are over the 16";
    refused(portal(other, second.0, second.1, 1, false), words);
    refused(portal(other, second.0, second.1, 9, true), "--rma-slots");
    let bulk = number(portal(other, second.0, second.1, 8, true));
    refused(portal(other, second.0, second.1, 1, true), "--rma-portals");
    refused(mine.execute(remora_nic::Command::DestroyCq { cq: first.1 }), "in use");
    mine.refuses(&free_domain(first.0), "still in use");
    let facts = lender.daemon.tenants();
    let held: Vec<_> = facts.iter().map(|tenant| (tenant.rma_slots, tenant.rma_regions)).collect();
    assert_eq!(held, [(16, 1), (8, 1)]);
    assert_eq!(other.ask(&Request::Execute(remora_nic::Command::DestroyPortal { portal: bulk })), DONE);
    other
        .refuses(&Request::Execute(remora_nic::Command::DestroyPortal { portal: bulk }), "no command portal");
    number(portal(other, second.0, second.1, 8, true));
    // Slots and regions of a program that has gone are available to others.
    let [_, gone] = programs;
    drop(gone);
    let again = lender.raw();
    let domain = again.domain();
    let cq = number(again.create_cq(64));
    eventually("the slots of the other program do not come back", || {
        matches!(portal(&again, domain, cq, 8, true), Reply::Executed(_))
    });
}

#[test]
fn a_nic_without_slots_in_a_row_and_a_tenant_without_memory_say_so() {
    let options = Options { rma: Settings { slots: 8, ..PATIENT }, ..Options::default() };
    let lender = lender("rma-slots", &options);
    let raw = lender.raw();
    let domain = raw.domain();
    let cq = number(raw.create_cq(64));
    refused(portal(&raw, domain, cq, 9, false), "as many resources of this kind");
    number(portal(&raw, domain, cq, 8, false));
    refused(portal(&raw, domain, cq, 1, false), "as many resources of this kind");
    let limits = Limits { bytes: 8192, ..Limits::default() };
    let poor = super::lender("rma-memory", &Options { limits, ..Options::default() });
    let raw = poor.raw();
    let domain = raw.domain();
    let cq = number(raw.create_cq(16));
    refused(portal(&raw, domain, cq, 128, false), "--memory");
    assert_eq!(poor.daemon.tenants()[0].rma_slots, 0, "a refused portal holds slots");
}

#[test]
fn a_key_that_is_zeros_and_rights_that_are_none_are_no_request() {
    let bytes = register(9, 0x41).emit();
    assert!(Request::parse(&bytes).is_some());
    let mut zeros = bytes.clone();
    zeros[3..].fill(0);
    assert_eq!(Request::parse(&zeros), None);
    let mut rights = bytes;
    rights[2] = 8;
    assert_eq!(Request::parse(&rights), None);
}

/// Attack 16, first part: no request and no command can name an object of another tenant.
#[test]
fn rma_attack_16_no_request_or_command_names_a_region_slot_or_queue_of_another() {
    let lender = udp_lender("rma-16", &Options::default());
    let server = Server::new();
    let table = server.region(1, Rights::READ | Rights::WRITE);
    let mut victim = Program::new(&lender, 8);
    let victims = victim.raw_portal(4);
    let theirs = victim.local.memory().lkey().get();
    let raw = lender.raw();
    let domain = raw.domain();
    let cq = number(raw.create_cq(16));
    refused(portal(&raw, domain, victims.cq.number(), 1, false), "no completion queue");
    refused(portal(&raw, victim.domain.pd().get(), cq, 1, false), "no protection domain");
    for (request, words) in [
        (register(theirs, 1), "no region with key"),
        (Request::DeregisterRma(victim.local.id()), "no region of 1RMA"),
        (Request::RekeyRma { region: victim.local.id(), key: key_of_rma() }, "no region of 1RMA"),
        (Request::RmaKey(victim.local.id()), "no region of 1RMA"),
        (
            Request::Execute(remora_nic::Command::DestroyPortal { portal: victims.facts.number }),
            "no command portal",
        ),
        (Request::Execute(remora_nic::Command::DestroyPortal { portal: u32::MAX }), "no command portal"),
    ] {
        raw.refuses(&request, words);
    }
    let thief = Program::new(&lender, 4);
    let mut slots = thief.raw_portal(4);
    let grant = table.grant(&thief.identity());
    victim.local.memory().write(0, &pattern(2)).unwrap();
    let served = server.context.counters().rma_served;
    for kind in [Kind::Read, Kind::Write] {
        let right = slots.command(&thief.local, kind, &grant);
        let wrong = [
            Command { slot: victims.facts.first, ..right.clone() },
            Command { slot: slots.facts.first + 4, ..right.clone() },
            Command { cq: victims.cq.number() as u16, ..right.clone() },
            Command { local: Operand { region: victim.local.id(), offset: 0 }, ..right.clone() },
            Command { local: Operand { region: table.id() + 1000, offset: 0 }, ..right.clone() },
        ];
        for command in &wrong {
            assert_eq!(slots.status(command), Status::LocalError, "{command:?}");
        }
    }
    assert_eq!(server.context.counters().rma_served, served, "nothing left");
    assert!(holds(victim.local.memory(), 2) && holds(table.memory(), 1));
    let right = slots.command(&thief.local, Kind::Read, &grant);
    assert_eq!(slots.status(&right), Status::Ok);
    let grant = table.grant(&victim.identity());
    victim.reads(&grant, 1);
}

/// Attack 16, second part: arbitrary bytes in slots and indices while the NIC reads them.
#[test]
fn rma_attack_16_garbage_in_slots_while_the_nic_reads_them_harms_nobody() {
    let lender = udp_lender("rma-garbage", &Options::default());
    let server = Server::new();
    let table = server.region(1, Rights::READ | Rights::WRITE);
    let bait = server.region(3, Rights::READ);
    let mut victim = Program::new(&lender, 8);
    let grant = table.grant(&victim.identity());
    let mut numbers = Numbers(0x16);
    for _ in 0..5 {
        let stranger = Program::new(&lender, 4);
        let slots = stranger.raw_portal(16);
        let bait = bait.grant(&stranger.identity());
        let seed = numbers.next();
        std::thread::scope(|scope| {
            let babbler = scope.spawn(|| babble(&slots, &stranger.local, &bait, seed));
            while !babbler.is_finished() {
                victim.reads(&grant, 1);
            }
            babbler.join().unwrap();
        });
    }
    assert!(holds(table.memory(), 1) && holds(bait.memory(), 3));
    assert!(!lender.daemon.has_failed());
    eventually("the windows of the strangers do not come back", || {
        let facts = lender.daemon.rma_facts().unwrap();
        (facts.free, facts.waiting) == (facts.window, 0)
    });
    victim.reads(&grant, 1);
}

/// Writes commands with a valid key whose fields change all the time, one or all of them, and false indices.
fn babble(slots: &RawPortal, local: &RmaRegion, grant: &Grant, seed: u64) {
    let mut numbers = Numbers(seed | 1);
    let right = slots.command(local, Kind::Read, grant);
    for round in 0..20_000_u64 {
        let mut bytes = right.bytes();
        bytes[4] = (slots.facts.first as u8).wrapping_add(numbers.below(16) as u8);
        match numbers.below(3) {
            0 => {}
            // The network part of the server's address is kept, so that no frame leaves this machine.
            1 => match numbers.below(64) {
                32..=44 => {}
                offset => bytes[offset] = numbers.next() as u8,
            },
            _ => bytes.iter_mut().for_each(|byte| *byte = numbers.next() as u8),
        }
        slots.commands.ring().store(numbers.below(16) as u64, &bytes);
        let index = match numbers.below(8) {
            0 => numbers.next(),
            _ => round / 4,
        };
        slots.commands.ring().set_word(Word::Produced, index);
        slots.cq.ring().set_word(Word::Consumed, numbers.next());
        slots.daemon.ring_bell(slots.bell.index);
    }
}

/// Attack 16, third part: the NIC states the requester's identity, whatever a command contains.
#[test]
fn rma_attack_16_the_nic_says_the_process_and_no_command_can() {
    let lender = udp_lender("rma-process", &Options::default());
    let server = Server::new();
    let listener = UdpSocket::bind(here()).unwrap();
    let table = server.region(1, Rights::READ);
    let [one, two] = [(); 2].map(|()| Program::new(&lender, 4));
    assert_eq!(one.identity().pid, std::process::id(), "as the kernel says");
    assert_ne!(one.identity().incarnation, two.identity().incarnation, "each attachment has its own");
    // Another program's grant, used in one's own slots.
    let stolen = table.grant(&one.identity());
    let mut slots = two.raw_portal(64);
    let command = slots.command(&two.local, Kind::Read, &stolen);
    assert_eq!(slots.status(&command), Status::RemoteAuthenticationFailure);
    // All fields of a command vary, towards a server that records the identity stated by the NIC.
    let SocketAddr::V4(v4) = listener.local_addr().unwrap() else { panic!() };
    let destination = Endpoint { address: Address::from(*v4.ip()), udp_port: v4.port() };
    let mut numbers = Numbers(0x16);
    for slot in 0..64 {
        let kind = [Kind::Read, Kind::Write][numbers.below(2)];
        let mut bytes = [0; 64];
        bytes.iter_mut().for_each(|byte| *byte = numbers.next() as u8);
        let random = Command::parse(&[&[0, 0, 64, 0][..], &bytes[4..]].concat().try_into().unwrap()).unwrap();
        let right = slots.command(&two.local, kind, &stolen);
        let command =
            Command { slot: slots.facts.first + slot, server: destination, key: random.key, ..right };
        slots.issue(&Command { remote: random.remote, ..command }.bytes());
    }
    listener.set_read_timeout(Some(LONG)).unwrap();
    let mut frame = [0; 2048];
    for _ in 0..32 {
        let len = listener.recv(&mut frame).unwrap();
        let message = Message::parse(&frame[..len]).unwrap();
        let Body::Request(request) = message.body else { panic!("{:?}", message.header) };
        let Client { pid, incarnation, .. } = two.identity();
        assert_eq!((request.pid, request.incarnation), (pid, incarnation));
    }
}

#[test]
fn slots_regions_and_windows_of_a_program_that_goes_come_back() {
    let lender = udp_lender("rma-comes-back", &Options { rma: PATIENT, ..Options::default() });
    let server = Server::new();
    let nobody = UdpSocket::bind(here()).unwrap();
    let table = server.region(1, Rights::READ);
    let mut stays = Program::new(&lender, 4);
    let grant = table.grant(&stays.identity());
    let SocketAddr::V4(v4) = nobody.local_addr().unwrap() else { panic!() };
    let silent = Endpoint { address: Address::from(*v4.ip()), udp_port: v4.port() };
    let goes = Program::new(&lender, 1);
    let mut slots = goes.raw_portal(64);
    for slot in 0..64 {
        let right = slots.command(&goes.local, Kind::Read, &table.grant(&goes.identity()));
        let command = Command { slot: slots.facts.first + slot, size: 4096, server: silent, ..right };
        slots.issue(&command.bytes());
    }
    let facts = || lender.daemon.rma_facts().unwrap();
    eventually("the window does not fill", || facts().free < 4096 && facts().waiting == 32);
    // The other program waits for the window as well.
    let size = LEN as u64;
    let id =
        stays.portal.submit(Kind::Read, Class::Bulk, &stays.local, 0, &grant, 0, size, Some(LONG)).unwrap();
    assert_eq!(stays.portal.poll(), Ok(None));
    let exposed = lender.daemon.tenants().iter().map(|tenant| tenant.rma_regions).sum::<usize>();
    assert_eq!(exposed, 2);
    // Objects are not given back one by one, as if the program were killed.
    goes.context.leave();
    drop((slots, goes));
    let begun = std::time::Instant::now();
    let end = loop {
        if let Some(end) = stays.portal.poll().unwrap() {
            break end;
        }
        assert!(begun.elapsed() < LONG / 2, "the window of the ended client is not released");
    };
    assert_eq!(end, (id, Status::Ok));
    assert!(holds(stays.local.memory(), 1));
    assert_eq!((facts().free, facts().waiting), (facts().window, 0));
    eventually("its tenant stays", || lender.daemon.tenants().len() == 1);
}

#[test]
fn a_region_is_reached_with_its_key_alone_registered_anew_and_gone_with_its_memory() {
    let lender = udp_lender("rma-driver", &Options::default());
    let served = Program::new(&lender, 1);
    let memory = served.domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    memory.write(0, &pattern(4)).unwrap();
    let mut table = served.rma.expose(memory, Rights::READ, None).unwrap();
    let mut client = Program::new(&lender, 8);
    let refused = |client: &mut Program, grant: &Grant| {
        let ended = client.portal.read(&client.local, 0, grant, 0, 64, LONG);
        assert_eq!(ended, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    };
    let old = table.grant(&client.identity());
    client.reads(&old, 4);
    table.rekey(None).unwrap();
    refused(&mut client, &old);
    let old = table.grant(&client.identity());
    client.reads(&old, 4);
    table.register_anew(None).unwrap();
    refused(&mut client, &old);
    let old = table.grant(&client.identity());
    client.reads(&old, 4);
    // The program deregisters the memory of its RegionId.
    let daemon = served.context.daemon().unwrap();
    daemon.done(&revoke(table.memory().lkey().get())).unwrap();
    refused(&mut client, &old);
    assert!(daemon.rma_key(table.id()).is_err());
}
