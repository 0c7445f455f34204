//! Tests of the daemon with hostile programs, and of a tenant's limits. Daemon and programs run in one
//! process here. They share nothing but what separate processes would share.

mod rma;
mod users;

use remora_host::connect::{Agreement, Full, Hello, LinkOffer};
use remora_host::packet::{PacketListener, PacketSocket};
use remora_host::{PortFacts, PortKind};
use remora_memory::Pd;
use remora_nic::prism::{self, FreeListInit};
use remora_nic::rma::{RegionKey, Rights};
use remora_nic::{
    Command, CommandError, Fetching, Flags, Modify, NicError, Notify, PartNumber, Payload, Service,
};
use remora_port::Peer;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::{Psn, Qpn};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::message::{
    Allocate, CodeOf, CodePart, CreateCode, CreateCq, CreatePortal, CreateQp, Deploy, MAX_PACKET, MAX_PARTS,
    PairFacts, PortalFacts, QueueFacts, RegionFacts, RegisterRma, Reply, Request, VERSION,
};
use super::{Daemon, Limits, Options, TenantFacts};
use crate::kernel::Shipped;
use crate::{
    Access, CompletionQueue, Context, CreateError, Device, EMPTY, FreeListOptions, KernelOptions,
    MemoryRegion, ProtectionDomain, QpOptions, QueuePair, State, Status, work,
};

/// The reply to a command that was executed.
const DONE: Reply = Reply::Executed(remora_nic::Reply::Done);

/// The command that puts a queue pair into the error state.
fn fail(pair: u32) -> Command {
    let change = Modify { state: Some(State::Err), ..Modify::default() };
    Command::ModifyQp { qp: Qpn::new(pair), change: Box::new(change) }
}

/// Time limit of a test: longer means that the daemon hangs.
const LONG: Duration = Duration::from_secs(60);

/// A pseudo-random number generator, which gives the same sequence for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

struct Lender {
    daemon: Daemon,
    path: SocketPath,
}

/// The path of a daemon's socket, which is removed when the value is dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn of(test: &str) -> SocketPath {
        SocketPath(tempfile::tempdir().unwrap().keep().join(test))
    }
}

impl std::ops::Deref for SocketPath {
    type Target = std::path::Path;

    fn deref(&self) -> &std::path::Path {
        &self.0
    }
}

impl AsRef<std::path::Path> for SocketPath {
    fn as_ref(&self) -> &std::path::Path {
        self
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

fn lender(test: &str, options: &Options) -> Lender {
    lender_of(&Device::shm(), test, options)
}

fn lender_of(device: &Device, test: &str, options: &Options) -> Lender {
    let path = SocketPath::of(test);
    Lender { daemon: Daemon::open(device, &path, options).unwrap(), path }
}

impl Lender {
    fn open(&self) -> Context {
        Device::nicd(&self.path).open().unwrap()
    }

    fn raw(&self) -> Raw {
        let raw = Raw(PacketSocket::connect(&self.path, LONG).unwrap());
        let hello = Request::Attach { version: VERSION, name: String::new(), kept: false };
        assert!(matches!(raw.ask(&hello), Reply::Attached { .. }));
        raw
    }
}

/// A program that writes its own packets.
struct Raw(PacketSocket);

impl Raw {
    fn ask(&self, request: &Request) -> Reply {
        self.ask_with(request, &[]).0
    }

    fn ask_with(
        &self,
        request: &Request,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> (Reply, Vec<OwnedFd>) {
        self.0.send(&request.emit(), descriptors).unwrap();
        let mut buffer = [0; MAX_PACKET];
        let packet = self.0.receive(&mut buffer).unwrap();
        (Reply::parse(&buffer[..packet.len]).unwrap(), packet.descriptors)
    }

    fn refuses(&self, request: &Request, words: &str) {
        match self.ask(request) {
            Reply::Refused(why) => assert!(why.contains(words), "{request:?}: {why}"),
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    fn number(&self, request: &Request) -> u32 {
        match self.ask(request) {
            Reply::Number(number) => number,
            Reply::Queue(facts) => facts.number,
            Reply::Pair(facts) => facts.number,
            Reply::Region(facts) => facts.key,
            Reply::Portal(facts) => facts.number,
            reply => panic!("{request:?}: {reply:?}"),
        }
    }
}

fn hello() -> Hello {
    Hello {
        kind: PortKind::Shm,
        link: LinkOffer::None,
        path_mtu: 1024,
        service: Service::Rc,
        qkey: 0,
        qp: Qpn::new(17),
        psn: Psn::new(5),
        initiator_depth: 4,
        responder_resources: 4,
        endpoint: Endpoint { address: Address([7; 16]), udp_port: 4791 },
        engine: remora_host::EngineId(9),
        extensions: 0,
        irn_reach: 0,
        private_data: b"private".to_vec(),
    }
}

fn allocate(domain: u32, len: u64) -> Request {
    let access = (Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ).bits();
    Request::Allocate(Allocate { domain, len, access, name: String::new() })
}

fn create_cq(depth: u32, channel: u32) -> Request {
    Request::CreateCq(CreateCq { depth, channel, tag: 77, counted: false })
}

fn a_pair(domain: u32, send_cq: u32, receive_cq: u32) -> CreateQp {
    let service = Service::Rc;
    let options = Box::new(QpOptions::default());
    CreateQp { domain, send_cq, receive_cq, service, options }
}

fn create_qp(domain: u32, send_cq: u32, receive_cq: u32) -> Request {
    Request::CreateQp(a_pair(domain, send_cq, receive_cq))
}

fn create_loopback(domain: u32, cq: u32) -> Request {
    Request::CreateLoopback(a_pair(domain, cq, cq))
}

/// The request for a code region of `len` bytes.
fn create_code(domain: u32, len: u64, parts: &[CodePart]) -> Request {
    Request::CreateCode(CreateCode { domain, len, parts: parts.to_vec() })
}

fn deploy(domain: u32, grants: &[u32]) -> Request {
    Request::Deploy(Deploy {
        domain,
        kernel: 0,
        lanes: 2,
        opcode: Some(9),
        longest: 64,
        answers: 6,
        limit: 1 << 60,
        grants: grants.to_vec(),
    })
}

const fn memory(offset: u64, len: u64) -> CodePart {
    CodePart { of: CodeOf::Memory(offset, len), iova: 1 << 40 }
}

const fn slots(pair: u32) -> CodePart {
    CodePart { of: CodeOf::Pair(pair), iova: 1 << 41 }
}

/// Returns one request of each kind.
fn requests() -> Vec<Request> {
    vec![
        Request::Attach { version: VERSION, name: "tenant".to_owned(), kept: true },
        Request::AllocDomain,
        Request::Hand(64),
        Request::FreeDomain(1),
        allocate(1, 4096),
        Request::Deregister(3),
        Request::CreateChannel,
        Request::DestroyChannel(2),
        create_cq(16, 0),
        Request::Execute(Command::DestroyCq { cq: 0 }),
        Request::Execute(Command::NotifyCq { cq: 0, notify: Notify::Solicited }),
        create_qp(1, 0, 0),
        Request::Execute(Command::DestroyQp(Qpn::new(17))),
        Request::Connect { number: 17, address: "127.0.0.1:9".parse().unwrap() },
        Request::ConnectPair { one: 17, other: 18 },
        Request::Answer { number: 17, hello: Box::new(hello()) },
        Request::Agreement(17),
        Request::Execute(Command::QueryQp(Qpn::new(17))),
        Request::Execute(fail(17)),
        Request::Kept(0),
        Request::SetChannel { number: 0, channel: 2 },
        create_loopback(1, 0),
        create_code(1, 4096, &[memory(64, 128), slots(17)]),
        create_code(1, 4096, &[slots(17); MAX_PARTS]),
        Request::Execute(Command::Enable { qp: Qpn::new(17), count: 1 << 40 }),
        deploy(1, &[3, 4]),
        deploy(1, &[3; MAX_PARTS]),
        Request::Execute(Command::RemoveKernel { kernel: 2 }),
        Request::Identify,
        Request::RegisterRma(RegisterRma { region: 9, rights: Rights::READ, key: key_of_rma() }),
        Request::DeregisterRma(1),
        Request::RekeyRma { region: 1, key: key_of_rma() },
        Request::RmaKey(1),
        Request::CreatePortal(CreatePortal { domain: 1, cq: 0, slots: 16, bulk_only: true }),
        Request::Execute(Command::DestroyPortal { portal: 0 }),
        Request::Reach(hello().endpoint),
        Request::List { version: VERSION },
        Request::End { version: VERSION, uid: 1001, name: "tenant".to_owned() },
    ]
}

fn key_of_rma() -> RegionKey {
    RegionKey::new([0x6b; 16]).unwrap()
}

fn replies() -> Vec<Reply> {
    let agreement = Agreement {
        peer: Peer(3),
        remote: hello(),
        path_mtu: 1024,
        max_rd_atomic: 4,
        extensions: 9,
        irn: Some(64),
        prism: false,
        strom: true,
        lasting: true,
    };
    let facts = PairFacts {
        number: 17,
        bell: 1,
        domain: 1,
        send_cq: 0,
        receive_cq: 1,
        service: Service::Uc,
        options: Box::new(QpOptions { irn: true, private_data: vec![1, 2], ..QpOptions::default() }),
        agreement: Some(agreement.clone()),
    };
    let endpoint = hello().endpoint;
    let kind = PortKind::Udp;
    let source = endpoint;
    let manner = "through its daemon";
    let port = PortFacts { kind, endpoint, source, path_mtu: 4096, manner };
    vec![
        Reply::Refused("no".to_owned()),
        Reply::Done,
        Reply::Attached { port, places: 64 },
        Reply::Number(4),
        Reply::Region(RegionFacts { domain: 1, key: 9, iova: 1 << 44, name: "table".to_owned() }),
        Reply::Queue(QueueFacts { number: 2, tag: 7 }),
        Reply::Pair(Box::new(facts)),
        Reply::Agreed(Box::new(agreement)),
        DONE,
        Reply::RefusedByNic(CommandError { kind: fail(3).kind(), fault: NicError::Unknown.into() }),
        Reply::Domain(1),
        Reply::Nothing,
        Reply::Kernel { number: 3, domain: 1 },
        Reply::Full(Full::clients(64)),
        Reply::Identity { pid: 77, incarnation: 0x1234_5678 },
        Reply::RmaKey(key_of_rma()),
        Reply::Portal(PortalFacts { number: 3, bell: 1, first: 64 }),
        Reply::Tenant(TenantFacts {
            uid: 1001,
            name: "store".to_owned(),
            attached: true,
            regions: 1,
            queues: 2,
            pairs: 3,
            bytes: 1 << 40,
            rma_slots: 4,
            rma_regions: 5,
        }),
    ]
}

#[test]
fn messages_come_back_as_they_were_and_no_part_of_one_is_a_message() {
    for request in requests() {
        let bytes = request.emit();
        assert!(bytes.len() <= MAX_PACKET);
        assert_eq!(Request::parse(&bytes), Some(request));
        assert!((0..bytes.len()).all(|len| Request::parse(&bytes[..len]).is_none()));
        assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None);
    }
    for reply in replies() {
        let bytes = reply.emit();
        assert!(bytes.len() <= MAX_PACKET);
        assert_eq!(Reply::parse(&bytes), Some(reply));
        assert!((0..bytes.len()).all(|len| Reply::parse(&bytes[..len]).is_none()));
    }
}

/// A well-behaved program, by which tests check that the daemon still works.
struct Innocent {
    _domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pair: QueuePair,
    _other: QueuePair,
}

impl Innocent {
    fn new(context: &Context) -> Innocent {
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(16).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = domain.allocate(4096, access).unwrap();
        let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let (pair, other) = QueuePair::connect_pair(pair(), pair()).unwrap();
        memory.write(0, &[0x5a; 2048]).unwrap();
        Innocent { _domain: domain, cq, memory, pair, _other: other }
    }

    fn works(&mut self) {
        let local = [self.memory.sge(2048, 2048)];
        self.memory.write(2048, &[0; 2048]).unwrap();
        self.pair.post_send(&work::read(1, &local, self.memory.remote(0))).unwrap();
        let mut done = [EMPTY; 1];
        self.cq.wait(&mut done, Duration::from_secs(60)).unwrap();
        assert_eq!((done[0].id, done[0].status), (1, Status::Success));
        assert_eq!(self.memory.get::<[u8; 2048]>(0), Ok([0x5a; 2048]));
        assert_eq!(self.memory.get::<[u8; 2048]>(2048), Ok([0x5a; 2048]));
    }
}

#[test]
fn objects_of_a_daemon_take_the_commands_of_ones_own() {
    let lender = lender("commands", &Options::default());
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let before = innocent.cq.count();
    innocent.works();
    assert_eq!(innocent.cq.count(), before + 1);
    let attributes = innocent.pair.query();
    assert_eq!(attributes.state, Some(State::Rts));
    assert!(attributes.dest_qp.is_some() && attributes.path_mtu.is_some() && attributes.address.is_some());

    let to = |state| Modify { state: Some(state), ..Modify::default() };
    innocent.pair.modify(&to(State::Sqd)).unwrap();
    assert_eq!(innocent.pair.state(), State::Sqd);
    let refused = innocent.pair.modify(&to(State::Init)).unwrap_err();
    assert!(matches!(refused, CreateError::Modify(_)), "{refused}");
    assert_eq!(innocent.pair.state(), State::Sqd);
    let peer = Modify { address: attributes.address, ..to(State::Rts) };
    let refused = innocent.pair.modify(&peer).unwrap_err().to_string();
    assert!(refused.contains("no peer"), "{refused}");
    innocent.pair.modify(&to(State::Rts)).unwrap();
    innocent.works();

    let kernel = innocent._domain.deploy_shipped(Shipped::Get, 1, &KernelOptions::default()).unwrap();
    let facts = kernel.facts().unwrap();
    assert_eq!((facts.number, facts.lanes, facts.requests), (kernel.number(), 1, 0));
    innocent.pair.attach(Some(&kernel)).unwrap();
    innocent.pair.attach(None).unwrap();
    let other = lender.open().alloc_pd().unwrap();
    let stranger = other.deploy_shipped(Shipped::Get, 1, &KernelOptions::default()).unwrap();
    let refused = innocent.pair.attach(Some(&stranger)).unwrap_err();
    assert_eq!(refused, CreateError::Nic(NicError::Unknown));
    innocent.works();
}

/// ALLOCATE takes a buffer of a list whose posts are in memory that the daemon and the program share.
#[test]
fn a_free_list_of_a_daemon_gives_its_buffers_to_a_client() {
    let lender = lender("free-list", &Options::default());
    let context = lender.open();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = domain.allocate(8192, access).unwrap();
    let options = FreeListOptions { offset: 4096, size: 1024, count: 2, engine: 0 };
    let mut list = domain.create_free_list(&memory, &options).unwrap();
    let other_engine = FreeListOptions { engine: 1, ..options };
    assert!(matches!(domain.create_free_list(&memory, &other_engine), Err(CreateError::TooMany(..))));
    (0..2).for_each(|index| list.post(index).unwrap());
    assert_eq!(list.facts().unwrap().free, 2);
    let pair = || domain.create_qp(&cq, &cq, &QpOptions { prism: true, ..QpOptions::default() }).unwrap();
    let (mut client, _server) = QueuePair::connect_pair(pair(), pair()).unwrap();
    let allocate = prism::WorkRequest {
        id: 1,
        operation: prism::Operation::Allocate {
            list: list.number(),
            rkey: memory.rkey(),
            data: prism::Data::Local(Payload::Inline(b"a value")),
        },
        conditional: false,
        redirect: Some(memory.remote(0).addr),
        result: None,
        flags: Flags { signaled: true, ..Flags::default() },
    };
    client.post_prism(&allocate).unwrap();
    let mut done = [EMPTY; 1];
    cq.wait(&mut done, LONG).unwrap();
    assert_eq!((done[0].status, done[0].outcome), (Status::Success, prism::Verdict::Done));
    let buffer = list.index(memory.get::<u64>(0).unwrap()).unwrap();
    assert_eq!(memory.get::<[u8; 7]>(4096 + 1024 * buffer as usize), Ok(*b"a value"));
    let mut bits = [0; 1];
    list.out(0, &mut bits).unwrap();
    assert_eq!((list.facts().unwrap().free, bits[0]), (1, 1 << buffer));
    drop(list);
    assert_eq!(lender.daemon.tenants()[0].bytes, 8192 + ring_bytes_of(&cq, 2));
}

/// The bytes of a completion queue and of `pairs` queue pairs with default options.
fn ring_bytes_of(cq: &CompletionQueue, pairs: u64) -> u64 {
    let options = QpOptions::default();
    let send = remora_nic::Ring::size(options.max_send_wr.max(remora_nic::wqe::MAX_SLOTS as u32));
    let receive =
        remora_nic::Ring::size(options.max_recv_wr.max(1) * remora_nic::stride(options.max_recv_sge) as u32);
    cq.ring().bytes().len() as u64 + pairs * (send + receive) as u64
}

#[test]
fn nothing_of_another_program_can_be_named() {
    let lender = lender("names", &Options::default());
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let pair = innocent.pair.number();
    let cq = innocent.cq.shared().number;
    let key = innocent.memory.lkey().get();
    let theirs = innocent._domain.deploy_shipped(Shipped::Get, 1, &KernelOptions::default()).unwrap();
    let kernel = theirs.number();
    let theirs_domain = innocent._domain.number().unwrap();
    let raw = lender.raw();
    let domain = raw.number(&Request::AllocDomain);
    let mine = raw.number(&create_cq(4, 0));
    for (request, words) in [
        (Request::FreeDomain(9), "no protection domain 9"),
        (Request::FreeDomain(theirs_domain), "no protection domain"),
        (allocate(theirs_domain, 64), "no protection domain"),
        (allocate(9, 64), "no protection domain 9"),
        (Request::Deregister(key), "no region"),
        (Request::DestroyChannel(9), "no completion channel"),
        (create_cq(4, 9), "no completion channel"),
        (Request::Execute(Command::DestroyCq { cq }), "no completion queue"),
        (Request::Execute(Command::NotifyCq { cq, notify: Notify::Any }), "no completion queue"),
        (Request::SetChannel { number: cq, channel: 1 }, "no completion queue"),
        (Request::SetChannel { number: mine, channel: 9 }, "no completion channel"),
        (create_qp(domain, cq, mine), "no completion queue"),
        (create_qp(domain, mine, cq), "no completion queue"),
        (create_qp(9, mine, mine), "no protection domain"),
        (Request::Execute(Command::DestroyQp(Qpn::new(pair))), "no queue pair"),
        (Request::Agreement(pair), "no queue pair"),
        (Request::Execute(Command::QueryQp(Qpn::new(pair))), "no queue pair"),
        (Request::Execute(fail(pair)), "no queue pair"),
        (create_loopback(domain, cq), "no completion queue"),
        (create_loopback(9, mine), "no protection domain"),
        (create_code(domain, 64, &[slots(pair)]), "no queue pair"),
        (create_code(9, 64, &[memory(0, 64)]), "no protection domain"),
        (create_code(domain, 64, &[memory(1, 64)]), ""),
        (create_code(domain, 64, &[memory(u64::MAX, 64)]), ""),
        (create_code(domain, 64, &[]), ""),
        (Request::Execute(Command::Enable { qp: Qpn::new(pair), count: 1 }), "no queue pair"),
        (deploy(domain, &[key]), "no region"),
        (deploy(9, &[]), "no protection domain"),
        (Request::Execute(Command::RemoveKernel { kernel }), "no kernel"),
        (Request::Execute(Command::CountCompletions { cq }), "no completion queue"),
        (Request::Execute(Command::AttachKernel { qp: Qpn::new(pair), kernel: None }), "no queue pair"),
        (Request::Execute(Command::RestrictToBulk { portal: 0 }), "no command portal"),
        (Request::Execute(Command::QuerySrq(Qpn::new(0))), "no shared receive queue"),
        (Request::Execute(Command::FreeXrcDomain { domain: 0 }), "no XRC domain"),
        (Request::Execute(Command::DestroyAddressHandle { handle: 0 }), "no address handle"),
        (Request::Execute(Command::QueryFreeList { list: 0 }), "no free list"),
        (Request::Execute(Command::Fail), "request of its own"),
        (Request::Execute(Command::AllocXrcDomain), "request of its own"),
        (Request::Execute(Command::SetTenant { qp: Qpn::new(pair), tenant: 0 }), "no queue pair"),
    ] {
        raw.refuses(&request, words);
    }
    for request in [
        Request::Connect { number: pair, address: "127.0.0.1:9".parse().unwrap() },
        Request::ConnectPair { one: pair, other: pair },
    ] {
        let (_here, there) = PacketSocket::pair().unwrap();
        let reply = raw.ask_with(&request, &[there.as_fd()]).0;
        assert!(matches!(&reply, Reply::Refused(words) if words.contains("no queue pair")), "{reply:?}");
        raw.refuses(&request, "needs a socket");
    }
    innocent.works();
}

#[test]
fn the_keys_of_another_program_open_nothing() {
    let lender = lender("keys", &Options::default());
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let stranger = lender.open();
    for attempt in 0..3 {
        let mut other = Innocent::new(&stranger);
        let own = [other.memory.sge(0, 8)];
        let theirs = [innocent.memory.sge(0, 8)];
        let (request, status) = match attempt {
            0 => (work::read(1, &own, innocent.memory.remote(0)), Status::RemoteAccess),
            1 => (work::write(1, &own, innocent.memory.remote(0)), Status::RemoteAccess),
            _ => (work::write(1, &theirs, other.memory.remote(0)), Status::LocalProtection),
        };
        other.pair.post_send(&request).unwrap();
        let mut done = [EMPTY; 1];
        other.cq.wait(&mut done, Duration::from_secs(60)).unwrap();
        assert_eq!(done[0].status, status);
    }
    innocent.works();
}

#[test]
fn a_chain_names_no_queue_of_another_program() {
    let lender = lender("chains", &Options::default());
    let managed = QpOptions { fetching: Fetching::Enabled, ..QpOptions::default() };
    let victims = lender.open();
    let strangers = lender.open();
    let domain = victims.alloc_pd().unwrap();
    let mut cq = victims.create_cq(16).unwrap();
    let mut victim = domain.create_loopback(&cq, &cq, &managed).unwrap();
    victim.post_send(&work::nop(7)).unwrap();
    let own = strangers.alloc_pd().unwrap();
    let mut counted = strangers.create_cq(16).unwrap();
    for request in [work::enable(1, victim.number(), 1), work::wait(1, &cq, 0)] {
        let mut stranger = own.create_loopback(&counted, &counted, &QpOptions::default()).unwrap();
        stranger.post_send(&request).unwrap();
        let mut done = [EMPTY; 1];
        counted.wait(&mut done, Duration::from_secs(60)).unwrap();
        assert_ne!(done[0].status, Status::Success, "{request:?}");
    }
    let mut done = [EMPTY; 1];
    assert_eq!(cq.poll(&mut done), Ok(0), "another tenant enabled the queue");
    victim.enable(1).unwrap();
    cq.wait(&mut done, Duration::from_secs(60)).unwrap();
    assert_eq!((done[0].id, done[0].status), (7, Status::Success));
}

#[test]
fn what_was_posted_and_not_rung_for_is_done_when_the_next_program_attaches() {
    let lender = lender("unrung", &Options::default());
    let open = || Device::nicd(&lender.path).keep("one").open().unwrap();
    let context = open();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let chain = domain.create_loopback(&cq, &cq, &QpOptions::default()).unwrap();
    let bounds = remora_nic::wqe::Bounds { max_sge: 1, max_inline: 0 };
    let mut queue = remora_nic::SendQueue::new(chain.rings().unwrap()[0].clone(), bounds);
    queue.push(&work::nop(7)).unwrap();
    queue.publish();
    context.leave();
    drop((chain, cq, domain, context));
    let context = open();
    let mut kept = context.kept().unwrap();
    let mut done = [EMPTY; 1];
    kept.queues[0].wait(&mut done, Duration::from_secs(60)).unwrap();
    assert_eq!((done[0].id, done[0].status), (7, Status::Success));
}

#[test]
fn a_tenant_has_as_much_as_it_may_and_no_more() {
    let limits = Limits {
        domains: 2,
        regions: 3,
        queues: 2,
        channels: 1,
        pairs: 2,
        kernels: 1,
        free_lists: 1,
        bytes: 1 << 20,
        negotiations: 1,
        rma_portals: 2,
        rma_slots: 24,
        rma_latency_slots: 16,
        rma_regions: 2,
    };
    let lender = lender("limits", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.number(&Request::AllocDomain);
    raw.number(&Request::AllocDomain);
    raw.refuses(&Request::AllocDomain, "--domains");
    raw.refuses(&Request::FreeDomain(domain + 7), "no protection domain");
    let keys: Vec<u32> = (0..3).map(|_| raw.number(&allocate(domain, 4096))).collect();
    raw.refuses(&allocate(domain, 4096), "--regions");
    raw.refuses(&create_code(domain, 64, &[memory(0, 64)]), "--regions");
    raw.refuses(&Request::FreeDomain(domain), "are in this protection domain");
    assert_eq!(raw.ask(&Request::Deregister(keys[0])), Reply::Done);
    raw.refuses(&allocate(domain, (1 << 20) - 8191), "--memory");
    raw.refuses(&allocate(domain, u64::MAX), "--memory");
    raw.refuses(&create_code(domain, u64::MAX, &[memory(0, 64)]), "--memory");
    let code = raw.number(&create_code(domain, 4096, &[memory(0, 64)]));
    raw.refuses(&allocate(domain, (1 << 20) - 12287), "");
    assert_eq!(raw.ask(&Request::Deregister(code)), Reply::Done);
    raw.refuses(&allocate(domain, 0), "");
    let rest = raw.number(&allocate(domain, (1 << 20) - 8192));
    raw.refuses(&create_cq(1, 0), "--memory");
    assert_eq!(raw.ask(&Request::Deregister(rest)), Reply::Done);
    raw.number(&Request::CreateChannel);
    raw.refuses(&Request::CreateChannel, "--channels");
    let kernel = raw.number(&deploy(domain, &[keys[1]]));
    raw.refuses(&deploy(domain, &[]), "--kernels");
    assert_eq!(raw.ask(&Request::Execute(Command::RemoveKernel { kernel })), DONE);
    let Request::Deploy(small) = deploy(domain, &[]) else { panic!() };
    raw.refuses(&Request::Deploy(Deploy { longest: 1 << 20, ..small.clone() }), "--memory");
    raw.refuses(&Request::Deploy(Deploy { lanes: 0, ..small.clone() }), "lanes");
    raw.refuses(&Request::Deploy(Deploy { lanes: u32::MAX, ..small.clone() }), "lanes");
    raw.refuses(&Request::Deploy(Deploy { kernel: 99, ..small }), "no such kernel");
    let cq = raw.number(&create_cq(16, 0));
    raw.number(&create_cq(16, 0));
    raw.refuses(&create_cq(16, 0), "--queues");
    raw.refuses(&create_cq(u32::MAX, 0), "");
    let pairs = [raw.number(&create_qp(domain, cq, cq)), raw.number(&create_qp(domain, cq, cq))];
    raw.refuses(&create_qp(domain, cq, cq), "--pairs");
    raw.refuses(&create_loopback(domain, cq), "--pairs");
    raw.refuses(&Request::Execute(Command::DestroyCq { cq }), "queue pairs use this");
    for pair in pairs {
        assert_eq!(raw.ask(&Request::Execute(Command::DestroyQp(Qpn::new(pair)))), DONE);
    }
    let large = QpOptions { max_send_wr: 1 << 20, ..QpOptions::default() };
    let large = CreateQp { domain, send_cq: cq, receive_cq: cq, service: Service::Rc, options: large.into() };
    raw.refuses(&Request::CreateQp(large), "--memory");
    assert_eq!(raw.ask(&Request::Execute(Command::DestroyCq { cq })), DONE);
    let facts = lender.daemon.tenants();
    assert_eq!((facts.len(), facts[0].regions, facts[0].queues, facts[0].pairs), (1, 2, 1, 0));
    assert_eq!(facts[0].bytes, 2 * 4096 + remora_nic::Ring::size(16) as u64, "released memory still counts");
}

#[test]
fn a_tenant_has_as_many_free_lists_and_as_much_memory_for_queues_as_it_may() {
    let limits = Limits { free_lists: 1, bytes: 1 << 20, ..Limits::default() };
    let lender = lender("free-lists", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.number(&Request::AllocDomain);
    let list = |raw: &Raw, size, count| {
        let ring = PartNumber(raw.number(&Request::Hand(4)));
        let pd = Pd::of_number(domain);
        Request::Execute(Command::CreateFreeList(FreeListInit { pd, ring, base: 1 << 44, size, count }))
    };
    raw.refuses(&list(&raw, 64, 1 << 24), "--memory");
    let too_small = raw.ask(&list(&raw, 0, 4));
    assert!(matches!(too_small, Reply::RefusedByNic(_)), "{too_small:?}");
    let Reply::Executed(remora_nic::Reply::Number(first)) = raw.ask(&list(&raw, 64, 4)) else { panic!() };
    raw.refuses(&list(&raw, 64, 4), "--free-lists");
    let destroy = Request::Execute(Command::DestroyFreeList { list: first });
    assert_eq!(raw.ask(&destroy), DONE);
    raw.refuses(&destroy, "no free list");
    let handed: Vec<u32> = (0..16).map(|_| raw.number(&Request::Hand(1))).collect();
    raw.refuses(&Request::Hand(1), "are not created");
    for ring in handed {
        let spent = Command::CreateFreeList(FreeListInit {
            pd: Pd::of_number(domain),
            ring: PartNumber(ring),
            base: 0,
            size: 0,
            count: 1,
        });
        assert!(matches!(raw.ask(&Request::Execute(spent.clone())), Reply::RefusedByNic(_)));
        raw.refuses(&Request::Execute(spent), "no memory with number");
    }
    assert_eq!(lender.daemon.tenants()[0].bytes, 0, "released memory still counts");
}

#[test]
fn no_more_programs_attach_than_may() {
    let lender = lender("attachments", &Options { attachments: 2, tenants: 1, ..Options::default() });
    let keep = |name: &str| Device::nicd(&lender.path).keep(name).open();
    let _one = keep("one").unwrap();
    let two = lender.open();
    let words = keep("two").unwrap_err().to_string();
    assert!(words.contains("--attachments"), "{words}");
    drop(two);
    // The thread of the program that has gone may take a moment.
    let until = Instant::now() + LONG;
    let words = loop {
        let words = keep("two").unwrap_err().to_string();
        if !words.contains("--attachments") {
            break words;
        }
        assert!(Instant::now() < until, "the program that has gone is counted still: {words}");
    };
    assert!(words.contains("--tenants"), "{words}");
    assert!(lender.daemon.refused() >= 2);
}

#[test]
fn what_a_daemon_does_not_lend_is_refused_by_words_that_say_so() {
    let lender = lender("refusals", &Options::default());
    let context = lender.open();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).unwrap();
    let access = Access::LOCAL_WRITE;
    let own = crate::Bytes::heap(64).unwrap();
    let refusals = [
        domain.register(&own, access).err(),
        domain.allocate_on_nic(64, access).err(),
        domain.create_srq(&crate::SrqOptions::default()).err(),
        domain.create_datagram_qp(&cq, &cq, &QpOptions::default()).err(),
        domain.create_xrc_initiator(&cq, &QpOptions::default()).err(),
        domain.allocate_window(crate::WindowType::Type1).err(),
        domain.null_region().err(),
        domain.deploy_kernel(Shipped::Get.lanes(1), &KernelOptions::default()).map(drop).err(),
        context.open_xrc_domain(0).err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal, Some(CreateError::NotByDaemon));
    }
    assert!(CreateError::NotByDaemon.to_string().contains("`ProtectionDomain::allocate`"));
    assert_eq!(Device::shm().open().unwrap().kept().err(), Some(CreateError::NotByDaemon));
}

/// Sends random requests, valid and corrupted, as one program.
fn babble(lender: &Lender, numbers: &mut Numbers) {
    let socket = PacketSocket::connect(&lender.path, LONG).unwrap();
    socket.set_patience(None, Some(Duration::from_secs(60))).unwrap();
    let mut buffer = [0; MAX_PACKET];
    let samples = requests();
    for turn in 0..40 {
        let mut bytes = match turn {
            0 if numbers.below(4) > 0 => {
                Request::Attach { version: VERSION, name: String::new(), kept: false }.emit()
            }
            _ => samples[numbers.below(samples.len())].emit(),
        };
        if turn > 0 && numbers.below(2) == 0 {
            let index = numbers.below(bytes.len());
            bytes[index] = numbers.next() as u8;
        }
        match numbers.below(16) {
            0 => bytes.truncate(numbers.below(bytes.len()).max(1)),
            1 => bytes.resize(1 + numbers.below(3 * MAX_PACKET), numbers.next() as u8),
            _ => {}
        }
        let (_here, there) = PacketSocket::pair().unwrap();
        let descriptors = [there.as_fd(), socket.as_fd()];
        let sent = socket.send(&bytes, &descriptors[..numbers.below(3)]);
        if sent.is_err() || socket.receive(&mut buffer).map_or(0, |packet| packet.len) == 0 {
            return;
        }
    }
}

#[test]
fn babble_harms_nobody() {
    let limits = Limits { bytes: 1 << 22, ..Limits::default() };
    let lender = lender("babble", &Options { limits, ..Options::default() });
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let mut numbers = Numbers(0x5eed);
    for _ in 0..100 {
        babble(&lender, &mut numbers);
    }
    innocent.works();
    assert!(lender.daemon.refused() > 0 && !lender.daemon.has_failed());
}

#[test]
fn programs_that_do_not_say_who_they_are_lock_nobody_out() {
    let lender = lender("silent", &Options { attachments: 4, ..Options::default() });
    let silent: Vec<PacketSocket> =
        (0..100).map(|_| PacketSocket::connect(&lender.path, LONG).unwrap()).collect();
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    innocent.works();
    // Programs that are attached already are not affected.
    let others = [lender.open(), lender.open(), lender.open()];
    let full = Device::nicd(&lender.path).open().unwrap_err().to_string();
    assert!(full.contains("5 programs attached are over the 4") && full.contains("--attachments"), "{full}");
    innocent.works();
    drop((others, silent));
}

#[test]
fn garbage_in_queues_and_doorbells_harms_nobody() {
    let lender = lender("garbage", &Options::default());
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let mut numbers = Numbers(0xbad);
    for _ in 0..20 {
        let stranger = lender.open();
        let other = Innocent::new(&stranger);
        let chain = other._domain.create_loopback(&other.cq, &other.cq, &QpOptions::default()).unwrap();
        let [send, receive] = other.pair.rings().unwrap();
        let [slots, _] = chain.rings().unwrap();
        for ring in [send, receive, slots, other.cq.ring()] {
            let words = ring.bytes().len() / 8;
            for _ in 0..2000 {
                // Rarely overwrite an index, else a slot.
                let index = if numbers.below(50) == 0 { numbers.below(3) } else { numbers.below(words) };
                let value = match numbers.below(3) {
                    0 => numbers.next(),
                    1 => numbers.next() & 0xff,
                    _ => u64::from(innocent.memory.lkey().get()),
                };
                ring.bytes().write(index * 8, &value.to_le_bytes()).unwrap();
            }
            other.pair.look();
            chain.look();
        }
        let daemon = stranger.daemon().unwrap();
        for _ in 0..100 {
            daemon.ring(numbers.next() as u32);
        }
        innocent.works();
    }
    assert!(!lender.daemon.has_failed());
}

/// Regression: sockets of these tests stayed in the temporary folder.
#[test]
fn who_is_no_daemon_and_what_is_no_program_part_with_words() {
    let missing = Device::nicd("/nowhere/at/all").open().unwrap_err().to_string();
    assert!(missing.contains("start it by `remora nicd --socket /nowhere/at/all`"), "{missing}");
    let path = SocketPath::of("nobody");
    let listener = PacketListener::bind(&path, false).unwrap();
    let attached = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| Device::nicd(&path).open().unwrap_err().to_string());
        let until = Instant::now() + LONG;
        let socket = loop {
            if let Some(socket) = listener.accept().unwrap() {
                break socket;
            }
            assert!(Instant::now() < until, "no program attaches");
        };
        socket.send(b"\x7fwhat?", &[]).unwrap();
        attaching.join().unwrap()
    });
    assert!(attached.contains("makes no sense"), "{attached}");
    let nameless = Device::nicd(&path).keep("").open().unwrap_err().to_string();
    assert!(nameless.contains("1 to 64 bytes"), "{nameless}");
    let lender = lender("version", &Options::default());
    let raw = Raw(PacketSocket::connect(&lender.path, LONG).unwrap());
    raw.refuses(&Request::Attach { version: 9, name: String::new(), kept: false }, "version 9");
    let taken = Daemon::open(&Device::shm(), &lender.path, &Options::default()).unwrap_err().to_string();
    assert!(taken.contains("is taken"), "{taken}");
}

#[test]
fn a_tenants_queue_pairs_share_its_turns_and_nobody_elses() {
    let lender = lender("parties", &Options::default());
    let contexts = [lender.open(), lender.open()];
    let tenants = contexts.each_ref().map(Innocent::new);
    let [first, second] = tenants.each_ref().map(|tenant| {
        let [party, other] = [&tenant.pair, &tenant._other].map(|pair| lender.daemon.party(pair.number()));
        assert_eq!(party, other);
        let chain = tenant._domain.create_loopback(&tenant.cq, &tenant.cq, &QpOptions::default()).unwrap();
        assert_eq!(lender.daemon.party(chain.number()), party, "the party of a chain is its tenant");
        party.unwrap()
    });
    assert!(first != second && first > 0 && second > 0, "{first} {second}");
}

/// Regression: a program that detached and kept the descriptors of its regions kept their pages, which no
/// limit counted, and could attach for more.
#[test]
fn memory_is_freed_with_its_region_though_the_program_keeps_the_descriptor() {
    use rustix::fs::{SealFlags, fcntl_add_seals, fstat, ftruncate};
    const LEN: u64 = 1 << 20;
    let lender = lender("kept-memory", &Options::default());
    let raw = lender.raw();
    let domain = raw.number(&Request::AllocDomain);
    let (_, kept) = raw.ask_with(&allocate(domain, LEN), &[]);
    let pages = || fstat(&kept[0]).unwrap().st_blocks as u64 * 512;
    assert!(pages() >= LEN, "the memory is populated");
    assert!(ftruncate(&kept[0], 0).is_err(), "the program could end the daemon by SIGBUS");
    assert!(fcntl_add_seals(&kept[0], SealFlags::FUTURE_WRITE).is_err(), "the program could add seals");
    drop(raw);
    let until = Instant::now() + LONG;
    while pages() > 0 {
        assert!(Instant::now() < until, "{} bytes are kept", pages());
        std::thread::sleep(Duration::from_millis(1));
    }
}
