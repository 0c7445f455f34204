//! Tests of the daemon with hostile programs, and of a tenant's limits. Daemon and programs run in one
//! process here. They share nothing but what separate processes would share.

mod rma;
mod users;

use remora_host::connect::LinkPeer;
use remora_host::packet::{PacketListener, PacketSocket};
use remora_host::{EngineId, PortFacts, PortKind};
use remora_memory::{Bytes, Key, Pd};
use remora_nic::chain::LoopbackInit;
use remora_nic::kernel::KernelInit;
use remora_nic::prism::{self, FreeListInit};
use remora_nic::rma::{PortalInit, RegionKey, Rights};
use remora_nic::{
    AddressVector, AsyncEvent, BellOwner, Command, CommandError, CqFlags, Fetching, Flags, Modify, NicError,
    Notify, ObjectName, PartNumber, Payload, QueuePairInit, Receives, Ring, Service, SrqInit,
};
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Peer, Route};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::message::{
    KeptObject, LongRequest, MAX_NOTE, MAX_PACKET, MAX_RANGES, RegisterRma, Reply, Request, SentRange,
    TableCommand, VERSION,
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
        number(self.ask(request))
    }

    /// Hands over new memory for a queue of `slots` slots.
    fn hand(&self, slots: u32) -> Reply {
        let memory = Bytes::memfd("test", Ring::size(slots)).unwrap();
        self.ask_with(&Request::HandRing, &[memory.fd().unwrap()]).0
    }

    fn part(&self, slots: u32) -> PartNumber {
        PartNumber(number(self.hand(slots)))
    }

    fn execute(&self, command: Command) -> Reply {
        self.ask(&Request::Execute(command))
    }

    /// Registers `len` bytes of new memory.
    fn register(&self, domain: u32, len: u64) -> Reply {
        self.register_memory(domain, &Bytes::memfd("test", len as usize).unwrap())
    }

    fn register_memory(&self, domain: u32, memory: &Bytes) -> Reply {
        self.ask_with(&register(domain, &[range(memory.len() as u64)]), &[memory.fd().unwrap()]).0
    }

    fn create_cq(&self, depth: u32) -> Reply {
        match self.hand(depth) {
            Reply::Number(part) => self.execute(create_cq(part)),
            refused => refused,
        }
    }

    fn create_qp(&self, domain: u32, send_cq: u32, receive_cq: u32) -> Reply {
        let [send, receive] = [self.part(64), self.part(64)];
        self.execute(create_qp(domain, send_cq, receive_cq, [send, receive]))
    }

    fn create_loopback(&self, domain: u32, cq: u32) -> Reply {
        let [send, receive] = [self.part(64), self.part(64)];
        self.execute(create_loopback(domain, cq, [send, receive]))
    }

    fn deploy(&self, init: KernelInit) -> Reply {
        match self.ask(&Request::HandKernel { kernel: 0, lanes: 2 }) {
            Reply::Number(part) => {
                self.execute(Command::DeployKernel(KernelInit { code: PartNumber(part), ..init }))
            }
            refused => refused,
        }
    }

    fn domain(&self) -> u32 {
        self.number(&DOMAIN)
    }
}

/// The number in a reply.
#[track_caller]
fn number(reply: Reply) -> u32 {
    match reply {
        Reply::Number(number) => number,
        Reply::Domain(pd) => pd.get(),
        Reply::Key(key) => key.get(),
        Reply::Executed(remora_nic::Reply::Number(number)) => number as u32,
        Reply::Executed(remora_nic::Reply::Portal(facts)) => facts.number,
        reply => panic!("{reply:?}"),
    }
}

#[track_caller]
fn refused(reply: Reply, words: &str) {
    match reply {
        Reply::Refused(why) => assert!(why.contains(words), "{why}"),
        Reply::RefusedByNic(error) => assert!(error.to_string().contains(words), "{error}"),
        reply => panic!("{words}: {reply:?}"),
    }
}

const DOMAIN: Request = Request::Table(TableCommand::AllocDomain);

fn free_domain(domain: u32) -> Request {
    Request::Table(TableCommand::FreeDomain(Pd::of_number(domain)))
}

fn revoke(key: u32) -> Request {
    Request::Table(TableCommand::Revoke(Key::new(key)))
}

const fn range(len: u64) -> SentRange {
    SentRange { descriptor: 0, offset: 0, len, iova: 1 << 40 }
}

fn register(domain: u32, ranges: &[SentRange]) -> Request {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    Request::Table(TableCommand::Register { pd: Pd::of_number(domain), access, ranges: ranges.to_vec() })
}

fn create_cq(part: u32) -> Command {
    Command::CreateCq { ring: PartNumber(part), flags: CqFlags::default() }
}

fn create_qp(domain: u32, send_cq: u32, receive_cq: u32, [send, receive]: [PartNumber; 2]) -> Command {
    Command::CreateQp(QueuePairInit {
        service: Service::Rc,
        pd: Pd::of_number(domain),
        send_ring: send,
        receives: Receives::Own { ring: receive, max_sge: 1 },
        send_cq,
        receive_cq,
        signal_all: false,
        fetching: Fetching::Posted,
    })
}

fn create_loopback(domain: u32, cq: u32, [send, receive]: [PartNumber; 2]) -> Command {
    Command::CreateLoopback(LoopbackInit {
        pd: Pd::of_number(domain),
        send_ring: send,
        receive_ring: receive,
        receive_max_sge: 1,
        send_cq: cq,
        receive_cq: cq,
        fetching: Fetching::Posted,
    })
}

fn kernel(domain: u32, grants: &[u32]) -> KernelInit {
    KernelInit {
        pd: Pd::of_number(domain),
        opcode: Some(9),
        code: PartNumber(0),
        grants: grants.iter().map(|key| Key::new(*key)).collect(),
        answers: 8,
        longest: 64,
        limit: 1 << 60,
    }
}

fn portal(domain: u32, cq: u32, slots: u16, bulk_only: bool, ring: PartNumber) -> Command {
    let pd = Pd::of_number(domain);
    Command::CreatePortal(PortalInit { ring, slots, pd, cq, pid: 1, incarnation: 1, bulk_only })
}

const ENDPOINT: Endpoint = Endpoint { address: Address([7; 16]), udp_port: 4791 };
const PARTS: [PartNumber; 2] = [PartNumber(0), PartNumber(1)];

/// Returns one request of each kind.
fn requests() -> Vec<Request> {
    let qp = Qpn::new(17);
    let peer = LinkPeer { id: EngineId(9), endpoint: ENDPOINT };
    let patience = Duration::from_millis(1);
    let address = AddressVector::new(Peer(3), Route::new(ENDPOINT, ENDPOINT));
    let toward = Modify { address: Some(address), state: Some(State::Rtr), ..Modify::default() };
    let mut requests: Vec<Request> = vec![
        Request::Attach { version: VERSION, name: "tenant".to_owned(), kept: true },
        DOMAIN,
        free_domain(1),
        register(1, &[range(4096)]),
        register(1, &[range(4096); MAX_RANGES]),
        revoke(3),
        Request::Table(TableCommand::RegisterNull(Pd::of_number(1))),
        Request::Table(TableCommand::Deregister(Key::new(3))),
        Request::Table(TableCommand::AllocWindow { pd: Pd::of_number(1), second: true }),
        Request::Table(TableCommand::QueryWindow(Key::new(3))),
        Request::Table(TableCommand::FreeWindow(Key::new(3))),
        Request::NameRegion { key: 3, name: "table".to_owned() },
        Request::HandRing,
        Request::HandKernel { kernel: 1, lanes: 2 },
        Request::AssignBell(BellOwner::QueuePair(qp)),
        Request::CreateChannel,
        Request::DestroyChannel(2),
        Request::SetChannel { cq: 0, tag: 7, channel: 2 },
        Request::ReuseLink(EngineId(9)),
        Request::LoopBack,
        Request::OfferLink,
        Request::WithdrawLink(3),
        Request::ReleasePeer(Peer(1)),
        Request::Long(LongRequest::Reach { address: 0, endpoint: ENDPOINT, patience }),
        Request::Long(LongRequest::TakeLink { from: peer, name: "no link".to_owned(), patience }),
        Request::Long(LongRequest::GiveLink { to: peer, offer: 0, patience }),
        Request::JoinGroup { qp, group: ENDPOINT },
        Request::LeaveGroup { qp, group: ENDPOINT },
        Request::Note { object: ObjectName::Qp(qp), note: vec![7; MAX_NOTE] },
        Request::Kept(0),
        Request::Identify,
        Request::RegisterRma(RegisterRma {
            region: 9,
            base: 0,
            len: 64,
            rights: Rights::READ,
            key: key_of_rma(),
        }),
        Request::DeregisterRma(1),
        Request::RekeyRma { region: 1, key: key_of_rma() },
        Request::RmaKey(1),
        Request::List { version: VERSION },
        Request::End { version: VERSION, uid: 1001, name: "tenant".to_owned() },
    ];
    let commands = [
        create_cq(0),
        Command::DestroyCq { cq: 0 },
        Command::NotifyCq { cq: 0, notify: Notify::Solicited },
        create_qp(1, 0, 0, PARTS),
        Command::DestroyQp(qp),
        Command::QueryQp(qp),
        fail(17),
        Command::ModifyQp { qp, change: Box::new(toward) },
        create_loopback(1, 0, PARTS),
        Command::Enable { qp, count: 1 << 40 },
        Command::CreateSrq(SrqInit { pd: Pd::of_number(1), ring: PARTS[0], max_sge: 1, xrc: None }),
        Command::AllocXrcDomain,
        Command::CreateXrcTarget { domain: 0 },
        Command::CreateAddressHandle { pd: Pd::of_number(1), address },
        Command::DeployKernel(kernel(1, &[3, 4])),
        Command::RemoveKernel { kernel: 2 },
        portal(1, 0, 16, true, PARTS[0]),
        Command::DestroyPortal { portal: 0 },
    ];
    requests.extend(commands.map(Request::Execute));
    requests
}

fn key_of_rma() -> RegionKey {
    RegionKey::new([0x6b; 16]).unwrap()
}

fn replies() -> Vec<Reply> {
    let manner = "through its daemon";
    let source = Endpoint { udp_port: 50_000, ..ENDPOINT };
    let port = PortFacts { kind: PortKind::Udp, endpoint: ENDPOINT, source, path_mtu: 4096, manner };
    let region = KeptObject::Region {
        key: Key::new(9),
        pd: Pd::of_number(1),
        first: range(4096),
        name: "table".to_owned(),
    };
    let object =
        KeptObject::Object { object: ObjectName::Qp(Qpn::new(17)), bell: 1, note: vec![7; MAX_NOTE] };
    vec![
        Reply::Refused("no".to_owned()),
        Reply::Done,
        Reply::Attached { port, engine: EngineId(1 << 100), irn_reach: 64, places: 64 },
        Reply::Number(4),
        Reply::Domain(Pd::of_number(1)),
        Reply::Key(Key::new(9)),
        Reply::Peer(Peer(3)),
        Reply::Link { name: "link".to_owned(), offer: 2 },
        DONE,
        Reply::RefusedByNic(CommandError { kind: fail(3).kind(), fault: NicError::Unknown.into() }),
        Reply::Kept(Box::new(KeptObject::Domain(Pd::of_number(1)))),
        Reply::Kept(Box::new(region)),
        Reply::Kept(Box::new(object)),
        Reply::Nothing,
        Reply::Identity { pid: 77, incarnation: 0x1234_5678 },
        Reply::RmaKey(key_of_rma()),
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

#[test]
fn events_come_back_from_their_words() {
    let qp = Qpn::new(0x00ff_ffff);
    for event in [AsyncEvent::QpFatal(qp), AsyncEvent::CqOverrun(u32::MAX), AsyncEvent::DeviceFatal] {
        assert_eq!(super::daemon_client::event_of(super::daemon_client::event_word(event)), Some(event));
    }
    assert_eq!(super::daemon_client::event_of(u64::MAX), None);
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
    let stranger = attributes.address.map(|address| AddressVector { peer: Peer(77), ..address });
    let refused = innocent.pair.modify(&Modify { address: stranger, ..to(State::Rts) });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("no peer 77"), "{refused}");
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
    let send = Ring::size(options.max_send_wr.max(remora_nic::wqe::MAX_SLOTS as u32));
    let receive = Ring::size(options.max_recv_wr.max(1) * remora_nic::stride(options.max_recv_sge) as u32);
    Ring::size(cq.depth()) as u64 + pairs * (send + receive) as u64
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
    let theirs_domain = innocent._domain.pd().get();
    let peer = innocent.pair.agreement().unwrap().peer;
    let raw = lender.raw();
    let domain = raw.domain();
    let mine = number(raw.create_cq(4));
    let memory = Bytes::memfd("test", 64).unwrap();
    for (request, words) in [
        (free_domain(theirs_domain), "no protection domain"),
        (revoke(key), "no region"),
        (Request::Table(TableCommand::QueryWindow(Key::new(key))), "no memory window"),
        (Request::NameRegion { key, name: "mine".to_owned() }, "no region"),
        (Request::DestroyChannel(9), "no completion channel"),
        (Request::SetChannel { cq, tag: 1, channel: 1 }, "no completion queue"),
        (Request::SetChannel { cq: mine, tag: 1, channel: 9 }, "no completion channel"),
        (Request::AssignBell(BellOwner::QueuePair(Qpn::new(pair))), "no queue pair"),
        (Request::AssignBell(BellOwner::Portal(0)), "no command portal"),
        (Request::ReleasePeer(peer), "no peer"),
        (Request::JoinGroup { qp: Qpn::new(pair), group: ENDPOINT }, "no queue pair"),
        (Request::LeaveGroup { qp: Qpn::new(pair), group: ENDPOINT }, "no queue pair"),
        (Request::Note { object: ObjectName::Qp(Qpn::new(pair)), note: Vec::new() }, "no queue pair"),
        (Request::Note { object: ObjectName::Portal(0), note: Vec::new() }, "outlive"),
    ] {
        raw.refuses(&request, words);
    }
    refused(raw.register_memory(theirs_domain, &memory), "no protection domain");
    let address = AddressVector::new(peer, Route::new(ENDPOINT, ENDPOINT));
    let toward = Modify { address: Some(address), ..Modify::default() };
    let own = number(raw.create_qp(domain, mine, mine));
    for (command, words) in [
        (Command::DestroyCq { cq }, "no completion queue"),
        (Command::NotifyCq { cq, notify: Notify::Any }, "no completion queue"),
        (create_qp(domain, cq, mine, PARTS), "no completion queue"),
        (create_qp(domain, mine, cq, PARTS), "no completion queue"),
        (create_qp(domain, mine, mine, [PartNumber(70); 2]), "no memory with number 70"),
        (create_qp(theirs_domain, mine, mine, PARTS), "no protection domain"),
        (Command::DestroyQp(Qpn::new(pair)), "no queue pair"),
        (Command::QueryQp(Qpn::new(pair)), "no queue pair"),
        (fail(pair), "no queue pair"),
        (Command::ModifyQp { qp: Qpn::new(own), change: Box::new(toward) }, "no peer"),
        (Command::CreateAddressHandle { pd: Pd::of_number(domain), address }, "no peer"),
        (create_loopback(domain, cq, PARTS), "no completion queue"),
        (create_loopback(theirs_domain, mine, PARTS), "no protection domain"),
        (Command::Enable { qp: Qpn::new(pair), count: 1 }, "no queue pair"),
        (Command::RemoveKernel { kernel }, "no kernel"),
        (Command::CountCompletions { cq }, "no completion queue"),
        (Command::AttachKernel { qp: Qpn::new(pair), kernel: None }, "no queue pair"),
        (Command::QuerySrq(Qpn::new(0)), "no shared receive queue"),
        (Command::FreeXrcDomain { domain: 0 }, "no XRC domain"),
        (Command::CreateXrcTarget { domain: 0 }, "no XRC domain"),
        (Command::DestroyAddressHandle { handle: 0 }, "no address handle"),
        (Command::QueryFreeList { list: 0 }, "no free list"),
        (Command::Fail, "daemon's owner"),
        (Command::QueryRma, "daemon's owner"),
        (Command::SetTenant { qp: Qpn::new(own), tenant: 0 }, "divides the bandwidth"),
        (Command::AttachMulticast { qp: Qpn::new(own), group: ENDPOINT.address }, "request of its own"),
    ] {
        refused(raw.execute(command), words);
    }
    refused(raw.deploy(self::kernel(domain, &[key])), "no region");
    refused(raw.deploy(self::kernel(theirs_domain, &[])), "no protection domain");
    let reach = Request::Long(LongRequest::Reach { address: 0, endpoint: ENDPOINT, patience: LONG });
    raw.refuses(&reach, "needs a socket");
    innocent.works();
}

/// The memory of a send queue is freed with the queue, and not with a code region over its slots.
#[test]
fn a_queue_outlives_the_code_region_over_its_slots() {
    let lender = lender("code", &Options::default());
    let context = lender.open();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let mut pair = domain.create_loopback(&cq, &cq, &QpOptions::default()).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut done = [EMPTY; 1];
    for id in 0..3 {
        let code = domain.register_ranges(&[pair.code()], rights).unwrap();
        pair.post_send(&work::nop(id)).unwrap();
        cq.wait(&mut done, LONG).unwrap();
        assert_eq!((done[0].id, done[0].status), (id, Status::Success));
        drop(code);
    }
    assert_eq!(lender.daemon.tenants()[0].regions, 0);
}

/// Memory over the limit of the user is refused before its pages are allocated, however much of it a hole is.
#[test]
fn memory_over_the_limit_is_not_populated() {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let lender = lender("sparse", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    let sparse = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&sparse, 1 << 40).unwrap();
    rustix::fs::fcntl_add_seals(&sparse, rustix::fs::SealFlags::SHRINK).unwrap();
    let sent = [sparse.as_fd()];
    refused(raw.ask_with(&register(domain, &[range(64)]), &sent).0, "--memory");
    refused(raw.ask_with(&Request::HandRing, &sent).0, "--memory");
    assert_eq!(rustix::fs::fstat(&sparse).unwrap().st_blocks, 0);
}

/// A link that is offered and not given takes a place of those being set up until it is withdrawn.
#[test]
fn offered_links_count_until_they_are_withdrawn() {
    let limits = Limits { negotiations: 2, ..Limits::default() };
    let lender = lender("offers", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let offer = |raw: &Raw| match raw.ask(&Request::OfferLink) {
        Reply::Link { offer, .. } => offer,
        reply => panic!("{reply:?}"),
    };
    let offers = [offer(&raw), offer(&raw)];
    raw.refuses(&Request::OfferLink, "3 connections being set up are over the 2");
    assert_eq!(raw.ask(&Request::WithdrawLink(offers[0])), Reply::Done);
    raw.refuses(&Request::WithdrawLink(offers[0]), "no offered link");
    offer(&raw);
}

/// Ranges that leave the memory that came with them, memory that can shrink, and no memory at all are no region.
#[test]
fn a_region_lies_within_sealed_memory_of_the_program() {
    let lender = lender("ranges", &Options::default());
    let raw = lender.raw();
    let domain = raw.domain();
    let memory = Bytes::memfd("test", 4096).unwrap();
    let fds = [memory.fd().unwrap()];
    for ranges in [
        vec![],
        vec![range(0)],
        vec![range(4097)],
        vec![SentRange { offset: u64::MAX, ..range(64) }],
        vec![SentRange { offset: 1, ..range(4096) }],
        vec![SentRange { descriptor: 1, ..range(64) }],
        vec![range(64), range(64)],
    ] {
        refused(raw.ask_with(&register(domain, &ranges), &fds).0, "");
    }
    refused(raw.ask(&register(domain, &[range(64)])), "without memory");
    let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&open, 4096).unwrap();
    refused(raw.ask_with(&register(domain, &[range(64)]), &[open.as_fd()]).0, "");
    refused(raw.ask_with(&Request::HandRing, &[open.as_fd()]).0, "");
    raw.refuses(&Request::HandRing, "one descriptor");
    let (socket, _other) = PacketSocket::pair().unwrap();
    refused(raw.ask_with(&Request::HandRing, &[socket.as_fd()]).0, "");
    number(raw.ask_with(&register(domain, &[range(4096)]), &fds).0);
    assert_eq!(lender.daemon.tenants()[0].bytes, 4096, "a refused region counts");
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
    let mut queue = remora_nic::SendQueue::new(chain.rings()[0].clone(), bounds);
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
        handles: 1,
        windows: 1,
        group_members: 1,
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
    let domain = raw.domain();
    raw.domain();
    raw.refuses(&DOMAIN, "--domains");
    raw.refuses(&free_domain(domain + 7), "no protection domain");
    let keys: Vec<u32> = (0..3).map(|_| number(raw.register(domain, 4096))).collect();
    refused(raw.register(domain, 4096), "--regions");
    raw.refuses(&Request::Table(TableCommand::RegisterNull(Pd::of_number(domain))), "--regions");
    raw.refuses(&free_domain(domain), "are in this protection domain");
    assert_eq!(raw.ask(&revoke(keys[0])), Reply::Done);
    refused(raw.register(domain, (1 << 20) - 8191), "--memory");
    let rest = number(raw.register(domain, (1 << 20) - 8192));
    refused(raw.create_cq(1), "--memory");
    assert_eq!(raw.ask(&revoke(rest)), Reply::Done);
    raw.number(&Request::CreateChannel);
    raw.refuses(&Request::CreateChannel, "--channels");
    let window = Request::Table(TableCommand::AllocWindow { pd: Pd::of_number(domain), second: false });
    let window_key = Key::new(raw.number(&window));
    raw.refuses(&window, "2 memory windows are over the 1");
    raw.refuses(&free_domain(domain), "are in this protection domain");
    assert_eq!(raw.ask(&Request::Table(TableCommand::FreeWindow(window_key))), Reply::Done);
    let kernel = number(raw.deploy(self::kernel(domain, &[keys[1]])));
    refused(raw.deploy(self::kernel(domain, &[])), "--kernels");
    assert_eq!(raw.execute(Command::RemoveKernel { kernel }), DONE);
    refused(raw.deploy(KernelInit { longest: 1 << 20, ..self::kernel(domain, &[]) }), "--memory");
    raw.refuses(&Request::HandKernel { kernel: 0, lanes: 0 }, "lanes");
    raw.refuses(&Request::HandKernel { kernel: 0, lanes: u32::MAX }, "lanes");
    raw.refuses(&Request::HandKernel { kernel: 99, lanes: 1 }, "no such kernel");
    let cq = number(raw.create_cq(16));
    number(raw.create_cq(16));
    refused(raw.create_cq(16), "--queues");
    let pairs = [number(raw.create_qp(domain, cq, cq)), number(raw.create_qp(domain, cq, cq))];
    refused(raw.create_qp(domain, cq, cq), "--pairs");
    refused(raw.create_loopback(domain, cq), "--pairs");
    refused(raw.execute(Command::DestroyCq { cq }), "in use");
    raw.refuses(&free_domain(domain), "are in this protection domain");
    for pair in pairs {
        assert_eq!(raw.execute(Command::DestroyQp(Qpn::new(pair))), DONE);
    }
    refused(raw.hand(1 << 16), "--memory");
    assert_eq!(raw.execute(Command::DestroyCq { cq }), DONE);
    let facts = lender.daemon.tenants();
    assert_eq!((facts.len(), facts[0].regions, facts[0].queues, facts[0].pairs), (1, 2, 1, 0));
    let held = 2 * 4096 + Ring::size(16) as u64;
    assert_eq!(facts[0].bytes, held, "released memory still counts");
}

#[test]
fn a_tenant_has_as_many_queues_of_other_services_as_it_may() {
    let limits = Limits { queues: 2, domains: 2, handles: 1, pairs: 2, ..Limits::default() };
    let lender = lender("services", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    let pd = Pd::of_number(domain);
    let srq = |raw: &Raw| {
        let ring = raw.part(16);
        raw.execute(Command::CreateSrq(SrqInit { pd, ring, max_sge: 1, xrc: None }))
    };
    let first = number(srq(&raw));
    number(srq(&raw));
    refused(srq(&raw), "3 shared receive queues are over the 2");
    let xrc = number(raw.execute(Command::AllocXrcDomain));
    number(raw.execute(Command::AllocXrcDomain));
    refused(raw.execute(Command::AllocXrcDomain), "3 XRC domains are over the 2");
    let targets = [(); 2].map(|()| number(raw.execute(Command::CreateXrcTarget { domain: xrc })));
    refused(raw.execute(Command::CreateXrcTarget { domain: xrc }), "--pairs");
    refused(raw.execute(Command::FreeXrcDomain { domain: xrc }), "in use");
    let Reply::Peer(peer) = raw.ask(&Request::LoopBack) else { panic!() };
    let address = AddressVector::new(peer, Route::new(ENDPOINT, ENDPOINT));
    let handle = Command::CreateAddressHandle { pd, address };
    let created = number(raw.execute(handle.clone()));
    refused(raw.execute(handle), "2 address handles are over the 1");
    raw.refuses(&Request::ReleasePeer(peer), "use this peer");
    assert_eq!(raw.execute(Command::DestroyAddressHandle { handle: created }), DONE);
    assert_eq!(raw.ask(&Request::ReleasePeer(peer)), Reply::Done);
    raw.refuses(&Request::ReleasePeer(peer), "no peer");
    for (number, peers) in (0..6).map(|_| raw.ask(&Request::LoopBack)).enumerate() {
        assert!(
            matches!(peers, Reply::Peer(_)),
            "{number}: each of 2 queue pairs and 1 handle has 2: {peers:?}"
        );
    }
    raw.refuses(&Request::LoopBack, "7 users of peers are over the 6");
    for target in targets {
        assert_eq!(raw.execute(Command::DestroyQp(Qpn::new(target))), DONE);
    }
    assert_eq!(raw.execute(Command::FreeXrcDomain { domain: xrc }), DONE);
    assert_eq!(raw.execute(Command::DestroySrq(Qpn::new(first))), DONE);
    assert_eq!(lender.daemon.tenants()[0].bytes, Ring::size(16) as u64);
}

#[test]
fn a_tenant_has_as_many_free_lists_and_as_much_memory_for_queues_as_it_may() {
    let limits = Limits { free_lists: 1, bytes: 1 << 20, ..Limits::default() };
    let lender = lender("free-lists", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let pd = Pd::of_number(raw.domain());
    let list = |raw: &Raw, size, count| {
        let ring = raw.part(4);
        raw.execute(Command::CreateFreeList(FreeListInit { pd, ring, base: 1 << 44, size, count }))
    };
    refused(list(&raw, 64, 1 << 24), "--memory");
    let too_small = list(&raw, 0, 4);
    assert!(matches!(too_small, Reply::RefusedByNic(_)), "{too_small:?}");
    let first = u64::from(number(list(&raw, 64, 4)));
    refused(list(&raw, 64, 4), "--free-lists");
    let destroy = Request::Execute(Command::DestroyFreeList { list: first });
    assert_eq!(raw.ask(&destroy), DONE);
    raw.refuses(&destroy, "no free list");
    let raw = lender.raw();
    let pd = Pd::of_number(raw.domain());
    let handed: Vec<PartNumber> = (0..16).map(|_| raw.part(1)).collect();
    refused(raw.hand(1), "are not created");
    for ring in handed {
        let spent = Command::CreateFreeList(FreeListInit { pd, ring, base: 0, size: 0, count: 1 });
        assert!(matches!(raw.execute(spent.clone()), Reply::RefusedByNic(_)));
        refused(raw.execute(spent), "no memory with number");
    }
    assert!(lender.daemon.tenants().iter().all(|facts| facts.bytes == 0), "released memory still counts");
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
    let access = Access::LOCAL_WRITE;
    let own = crate::Bytes::heap(64).unwrap();
    let refusals = [
        domain.register(&own, access).err(),
        domain.allocate_on_nic(64, access).err(),
        domain.deploy_kernel(Shipped::Get.lanes(1), &KernelOptions::default()).map(drop).err(),
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
        let [send, receive] = other.pair.rings();
        let [slots, _] = chain.rings();
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
            other.pair.ring();
            chain.ring();
        }
        let daemon = stranger.daemon().unwrap();
        for _ in 0..100 {
            daemon.ring_bell(numbers.next() as u32);
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
    let domain = raw.domain();
    let memory = Bytes::memfd("test", LEN as usize).unwrap();
    number(raw.register_memory(domain, &memory));
    let kept = memory.fd().unwrap();
    let pages = || fstat(kept).unwrap().st_blocks as u64 * 512;
    assert!(pages() >= LEN, "the memory is populated");
    assert!(ftruncate(kept, 0).is_err(), "the program could end the daemon by SIGBUS");
    assert!(fcntl_add_seals(kept, SealFlags::FUTURE_WRITE).is_err(), "the program could add seals");
    drop(raw);
    let until = Instant::now() + LONG;
    while pages() > 0 {
        assert!(Instant::now() < until, "{} bytes are kept", pages());
        std::thread::sleep(Duration::from_millis(1));
    }
}
