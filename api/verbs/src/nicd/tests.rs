//! Tests of the daemon with hostile programs, and of a tenant's limits. Daemon and programs run in one
//! process here. They share nothing but what separate processes would share.

mod limits;
mod memory;
mod messages;
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
    AddressVector, BellOwner, Command, CommandError, CqFlags, Fetching, Flags, Modify, NicError, Notify,
    ObjectName, PartNumber, Payload, QueuePairInit, Receives, Ring, Service, SrqInit,
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

    #[track_caller]
    fn refuses(&self, request: &Request, words: &str) {
        refused(self.ask(request), words);
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
        Reply::Refused(why) | Reply::AtLimit(why) => assert!(why.contains(words), "{why}"),
        Reply::RefusedByTable(error) => assert!(error.to_string().contains(words), "{error}"),
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
    let ranges = ranges.to_vec();
    Request::Table(TableCommand::Register { pd: Pd::of_number(domain), access, ranges, own: false })
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

fn key_of_rma() -> RegionKey {
    RegionKey::new([0x6b; 16]).unwrap()
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
fn no_request_names_an_object_of_another_program() {
    let lender = lender("names", &Options::default());
    let context = lender.open();
    let mut innocent = Innocent::new(&context);
    let pair = innocent.pair.number();
    let cq = innocent.cq.shared().number;
    let key = innocent.memory.lkey().get();
    let theirs_domain = innocent._domain.pd().get();
    let peer = innocent.pair.agreement().unwrap().peer;
    let raw = lender.raw();
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
    let reach = Request::Long(LongRequest::Reach { address: 0, endpoint: ENDPOINT, patience: LONG });
    raw.refuses(&reach, "needs a socket");
    innocent.works();
}

#[test]
fn no_command_names_an_object_of_another_program() {
    let lender = lender("commands-names", &Options::default());
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
    let samples = messages::requests();
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
    assert!(missing.contains("start it by `remora serve nic --socket /nowhere/at/all`"), "{missing}");
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
