//! StRoM by the API, over real ports: a client sends requests to kernels on the NIC of a server whose
//! program does nothing meanwhile.

use crate::veth::{self, Veth};
use remora_fault::Random;
use remora_fault::{Action, Rule};
use remora_netns::Process;
use remora_verbs::kernel::{
    Ask, Get, Invocation, Kernel, Lookup, Object, Partition, Predicate, Progress, Shape, Shipped, Slot,
    Status, Streams, Walk, crc64, histogram,
};
use remora_verbs::{
    Access, AnswerBuffers, CompletionKind, CompletionQueue, Context, CreateError, Device, EMPTY,
    KernelAnswer, KernelHandle, KernelOptions, Listener, MemoryRegion, Mode, NicError, ProtectionDomain,
    QpOptions, QueuePair, ReceiveRequest, RemoteMemory, Rules, work,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const GET: u64 = 0x6e7;
const WALK: u64 = 0x3a1f;
const WHOLE: u64 = 0xc64;
const SHUFFLE: u64 = 0x5f1e;
const COUNT: u64 = 0x411;
const NUMBER: u64 = 0x111;
/// The layout of the server's memory.
const SLOTS: u64 = 16;
const VALUES: usize = 4096;
const LIST: usize = 1 << 18;
const OBJECT: usize = 1 << 19;
const PARTITIONS: usize = 3 << 18;
const SENT: usize = 7 << 17;

struct Party {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

fn party(context: Context) -> Party {
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let memory = domain.allocate(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    Party { context, domain, cq, memory }
}

fn strom(irn: bool) -> QpOptions {
    // A timeout of 17 ms, so that lost packets are retransmitted soon.
    QpOptions { strom: true, irn, path_mtu: 1024, timeout: 12, ..QpOptions::default() }
}

fn lanes<K: Kernel + Default + 'static>(count: usize) -> Vec<Box<dyn Kernel>> {
    (0..count).map(|_| Box::new(K::default()) as Box<dyn Kernel>).collect()
}

/// A connected client and server.
struct World {
    client: Party,
    server: Party,
    pair: QueuePair,
    peer: QueuePair,
    answers: AnswerBuffers,
}

impl World {
    fn new([client, server]: [Context; 2], [ours, theirs]: [&QpOptions; 2]) -> World {
        let client = party(client);
        let server = party(server);
        let pair = client.domain.create_qp(&client.cq, &client.cq, ours).unwrap();
        let peer = server.domain.create_qp(&server.cq, &server.cq, theirs).unwrap();
        let (pair, peer) = QueuePair::connect_pair(pair, peer).unwrap();
        let answers = client.domain.create_answers(16, 8192).unwrap();
        World { client, server, pair, peer, answers }
    }

    fn deploy(&self, opcode: Option<u64>, kernels: Vec<Box<dyn Kernel>>) -> KernelHandle {
        let grants = [&self.server.memory];
        let options = KernelOptions { opcode, grants: &grants, longest: 8192, ..KernelOptions::default() };
        self.server.domain.deploy_kernel(kernels, &options).unwrap()
    }

    /// Deploys a kernel with one lane that a daemon's NIC has, too.
    fn deploy_shipped(&self, opcode: u64, kernel: Shipped) -> KernelHandle {
        let grants = [&self.server.memory];
        let options = KernelOptions {
            opcode: Some(opcode),
            grants: &grants,
            longest: 8192,
            ..KernelOptions::default()
        };
        self.server.domain.deploy_shipped(kernel, 1, &options).unwrap()
    }

    fn wait(&mut self, tag: u32) -> (Status, Vec<u8>) {
        let answer = self.answers.wait(&mut self.client.cq, tag, LONG).unwrap();
        assert_eq!(answer.tag, tag);
        let mut bytes = vec![0; answer.len as usize];
        self.answers.read(&answer, &mut bytes).unwrap();
        (answer.status, bytes)
    }

    fn ask(&mut self, opcode: u64, params: &[u8]) -> (Status, Vec<u8>) {
        let tag = self.answers.ask(&mut self.pair, opcode, params).unwrap();
        self.wait(tag)
    }

    /// Sends bytes of the client's memory to a kernel.
    fn give(&mut self, opcode: u64, len: usize) -> (Status, Vec<u8>) {
        let local = [self.client.memory.sge(0, len)];
        let tag = self.answers.give(&mut self.pair, opcode, &local).unwrap();
        self.wait(tag)
    }

    /// Writes bytes of the client's memory to the server's.
    fn write(&mut self, len: usize, offset: usize) {
        let local = [self.client.memory.sge(0, len)];
        self.pair.post_send(&work::write(1, &local, self.server.memory.remote(offset as u64))).unwrap();
        self.client.cq.wait(&mut [EMPTY; 1], LONG).unwrap();
    }

    /// Removes the kernel, once its answers are no longer on their way.
    fn remove(&mut self, kernel: &KernelHandle) {
        while let Err(error) = kernel.remove() {
            assert_eq!(error, CreateError::Nic(NicError::Busy));
            self.client.cq.poll(&mut [EMPTY; 1]).unwrap();
        }
    }

    fn there(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.server.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Fills a hash table in a server's memory. Returns its entries.
fn table(memory: &MemoryRegion, random: &mut Random) -> BTreeMap<u64, Vec<u8>> {
    let mut model = BTreeMap::new();
    let mut next = VALUES;
    for number in 0..SLOTS {
        let mut slot = Slot::default();
        for bucket in 0..3 {
            let key = number + SLOTS * bucket as u64;
            let len = 1 + random.below(4000) as usize;
            let value: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            memory.write(next, &value).unwrap();
            (slot.keys[bucket], slot.lens[bucket]) = (key, len as u32);
            slot.values[bucket] = memory.remote(next as u64).addr;
            next += len.next_multiple_of(8);
            model.insert(key, value);
        }
        memory.write(number as usize * Slot::LEN, &slot.emit()).unwrap();
    }
    model
}

fn lookup(table: RemoteMemory, key: u64) -> [u8; 16] {
    Lookup { slot: table.at(key % SLOTS * Slot::LEN as u64).addr, key }.emit()
}

/// Eight GETs in progress at a time.
fn gets(world: &mut World, random: &mut Random) {
    let model = table(&world.server.memory, random);
    let _get = world.deploy_shipped(GET, Shipped::Get);
    let there = world.server.memory.remote_memory();
    let mut missed = 0;
    for _ in 0..10 {
        let keys: Vec<u64> = (0..8).map(|_| random.below(SLOTS * 4)).collect();
        let ask = |key: &u64| world.answers.ask(&mut world.pair, GET, &lookup(there, *key)).unwrap();
        let tags: Vec<u32> = keys.iter().map(ask).collect();
        for (key, tag) in keys.iter().zip(tags).rev() {
            let wanted = match model.get(key) {
                Some(value) => (Status::DONE, value.clone()),
                None => (Status::MISS, Vec::new()),
            };
            missed += usize::from(wanted.0 == Status::MISS);
            assert_eq!(world.wait(tag), wanted, "key {key}");
        }
    }
    assert!(missed > 0);
}

/// Walks the paper's list, and reads an object whose checksum the kernel verifies.
fn walks_and_checks(world: &mut World) {
    let _kernels =
        [world.deploy_shipped(WALK, Shipped::Traversal), world.deploy_shipped(WHOLE, Shipped::Consistency)];
    let memory = &world.server.memory;
    for number in 0..16 {
        let offset = LIST + number * 64;
        let next = if number == 15 { 0 } else { memory.remote(offset as u64 + 64).addr };
        memory
            .write(
                offset,
                &[number as u64, next, memory.remote(VALUES as u64 + 8 * number as u64).addr]
                    .map(u64::to_le_bytes)
                    .concat(),
            )
            .unwrap();
        memory.write(VALUES + 8 * number, &(number as u64 * 3).to_le_bytes()).unwrap();
    }
    let walk = Walk {
        address: memory.remote(LIST as u64).addr,
        value_size: 8,
        key_mask: 1,
        predicate: Predicate::Equal,
        key: 0,
        value_position: 4,
        relative: false,
        next: Some(2),
        element: 24,
        most: 64,
        shape: Shape::List,
    };
    for key in [0, 7, 15] {
        let answer = world.ask(WALK, &Walk { key, ..walk }.emit());
        assert_eq!(answer, (Status::DONE, (key * 3).to_le_bytes().to_vec()));
    }
    assert_eq!(world.ask(WALK, &Walk { key: 16, ..walk }.emit()), (Status::MISS, Vec::new()));

    let object: Vec<u8> = (0..5000).map(|index| (index * 7) as u8).collect();
    let memory = &world.server.memory;
    memory.write(OBJECT, &object).unwrap();
    memory.write(OBJECT + 5000, &crc64(&object).to_le_bytes()).unwrap();
    let wanted = Object { address: memory.remote(OBJECT as u64).addr, len: 5000, tries: 3 }.emit();
    assert_eq!(world.ask(WHOLE, &wanted), (Status::DONE, object));
    world.server.memory.write(OBJECT + 17, &[1]).unwrap();
    assert_eq!(world.ask(WHOLE, &wanted), (Status::INCONSISTENT, Vec::new()));
}

/// Sends bytes to a kernel that distributes them to partitions.
fn shuffles(world: &mut World, random: &mut Random) {
    let _shuffle = world.deploy_shipped(SHUFFLE, Shipped::Shuffle);
    let there = |number: usize| PARTITIONS + number * 4096;
    let address = |number| world.server.memory.remote(there(number) as u64).addr;
    let partitions: Vec<Partition> =
        (0..8).map(|number| Partition { address: address(number), values: 512 }).collect();
    assert_eq!(world.ask(SHUFFLE, &histogram(3, 0, &partitions)).0, Status::DONE);
    let values: Vec<u64> = (0..1000).map(|_| random.below(u64::MAX)).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    world.client.memory.write(0, &bytes).unwrap();
    assert_eq!(world.give(SHUFFLE, bytes.len()), (Status::DONE, Vec::new()));
    for number in 0..8 {
        let members = values.iter().filter(|value| **value % 8 == number as u64);
        let wanted: Vec<u8> = members.flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(world.there(there(number), wanted.len()), wanted, "partition {number}");
    }
}

fn estimate(world: &mut World) -> f64 {
    let (status, bytes) = world.ask(COUNT, &[Ask::Estimate as u8]);
    assert_eq!(status, Status::DONE);
    f64::from_le_bytes(bytes.try_into().unwrap())
}

/// WRITEs pass a kernel while it is attached.
fn counts_what_passes(world: &mut World) {
    let count = world.deploy_shipped(COUNT, Shipped::HyperLogLog);
    let fill = |world: &World, first: u64| {
        let bytes: Vec<u8> = (first..first + 4000).flat_map(u64::to_le_bytes).collect();
        world.client.memory.write(0, &bytes).unwrap();
        bytes
    };
    world.peer.attach(Some(&count)).unwrap();
    let bytes = fill(world, 0);
    for _ in 0..2 {
        world.write(bytes.len(), OBJECT);
        assert_eq!(world.there(OBJECT, bytes.len()), bytes);
        let cardinality = estimate(world);
        // Four times the algorithm's standard error of 0.81 %.
        assert!((cardinality - 4000.0).abs() < 130.0, "{cardinality}");
    }
    world.peer.attach(None).unwrap();
    let before = estimate(world);
    let bytes = fill(world, 10_000);
    world.write(bytes.len(), OBJECT);
    assert_eq!(estimate(world), before);
    world.remove(&count);
    assert!(world.peer.attach(Some(&count)).is_err());
}

/// A kernel that sends the program's bytes to consecutive addresses of the peer, each byte with 1 added, and
/// answers at the end.
struct AddOne {
    address: u64,
    rkey: u32,
    ends: bool,
}

impl Kernel for AddOne {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if std::mem::take(&mut self.ends) {
            streams.answer(Status(77), 0);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        let bytes: Vec<u8> = input.bytes.iter().map(|byte| byte.wrapping_add(1)).collect();
        streams.send(self.address, self.rkey, bytes.len() as u32);
        streams.put(&bytes);
        self.address += bytes.len() as u64;
        self.ends = input.last;
        if input.last { Progress::Again } else { Progress::Waits }
    }

    fn reset(&mut self) {}
}

/// A kernel of the client's own NIC processes what the client's program sends to the server.
fn sends_through_a_kernel(world: &mut World) {
    let place = world.server.memory.remote(SENT as u64);
    let kernel = AddOne { address: place.addr, rkey: place.rkey.get(), ends: false };
    let options = KernelOptions { opcode: Some(NUMBER), ..KernelOptions::default() };
    let _sender = world.client.domain.deploy_kernel(vec![Box::new(kernel)], &options).unwrap();
    // The kernel's answer goes to the peer too, after all other bytes.
    world.peer.post_recv(&ReceiveRequest { id: 5, sges: &[] }).unwrap();
    let message: Vec<u8> = (0..10_000).map(|index| (index * 3) as u8).collect();
    let mut left = &message[..];
    while !left.is_empty() {
        let (piece, rest) = left.split_at(left.len().min(remora_verbs::kernel::PACKET));
        let first = left.len() == message.len();
        let whole = left.len() as u32;
        let invocation =
            Invocation { opcode: NUMBER, tag: 9, params: false, left: whole, first, bytes: piece.to_vec() };
        match world.pair.invoke(&invocation) {
            Ok(()) => left = rest,
            Err(CreateError::Nic(NicError::Busy)) => {
                world.client.cq.poll(&mut [EMPTY; 1]).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut done = [EMPTY; 1];
    world.server.cq.wait(&mut done, LONG).unwrap();
    assert_eq!((done[0].kind, done[0].imm), (CompletionKind::ReceiveWriteImm, Some(77 << 24 | 9)));
    let wanted: Vec<u8> = message.iter().map(|byte| byte.wrapping_add(1)).collect();
    assert_eq!(world.there(SENT, wanted.len()), wanted);
}

/// A kernel that answers any request with its number.
#[derive(Default)]
struct Number(u8);

impl Kernel for Number {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if streams.input().is_some_and(|input| input.last) && streams.answer(Status::DONE, 1) {
            streams.put(&[self.0]);
        }
        streams.take();
        Progress::Rests
    }

    fn reset(&mut self) {}
}

/// Deploys, replaces and removes kernels while a client sends requests.
fn lifetimes(world: &mut World) {
    let boxed = |number| vec![Box::new(Number(number)) as Box<dyn Kernel>];
    let nobody = (Status::NO_KERNEL, Vec::new());
    assert_eq!(world.ask(NUMBER, &[]), nobody);
    let one = world.deploy(Some(NUMBER), boxed(1));
    let other = world.deploy(None, boxed(9));
    let numbers: Vec<(usize, Option<u64>)> = world
        .server
        .context
        .kernels()
        .unwrap()
        .iter()
        .map(|(engine, facts)| (*engine, facts.opcode))
        .collect();
    assert_eq!(numbers, [(0, Some(NUMBER)), (0, None)]);
    assert_eq!(world.ask(NUMBER, &[]), (Status::DONE, vec![1]));
    one.replace(boxed(2)).unwrap();
    assert_eq!(world.ask(NUMBER, &[]), (Status::DONE, vec![2]));
    let facts = one.facts().unwrap();
    assert_eq!((facts.requests, facts.lanes, facts.busy_lanes), (2, 1, 0));
    let again = KernelOptions { opcode: Some(NUMBER), ..KernelOptions::default() };
    let taken = world.server.domain.deploy_kernel(boxed(3), &again).map(drop);
    assert_eq!(taken, Err(CreateError::Nic(NicError::Busy)));
    world.remove(&one);
    assert_eq!(one.facts(), Err(CreateError::Nic(NicError::Unknown)));
    // The fallback kernel serves the op-codes that no other kernel serves.
    assert_eq!(world.ask(NUMBER, &[]), (Status::DONE, vec![9]));
    drop(other);
    assert_eq!(world.ask(NUMBER, &[]), nobody);
}

/// Asks the shipped kernels, on NICs of the process or of daemons.
pub(crate) fn shipped_kernels(contexts: [Context; 2], irn: bool, seed: u64) {
    asked(contexts, irn, seed);
}

/// A connection on which the shipped kernels have been asked.
fn asked(contexts: [Context; 2], irn: bool, seed: u64) -> World {
    let options = strom(irn);
    let mut world = World::new(contexts, [&options, &options]);
    let agreement = world.pair.agreement().unwrap();
    assert_eq!((agreement.strom, agreement.irn.is_some()), (true, irn));
    let mut random = Random::new(seed);
    gets(&mut world, &mut random);
    walks_and_checks(&mut world);
    shuffles(&mut world, &mut random);
    counts_what_passes(&mut world);
    world
}

/// Uses every function of the API on one connection.
fn body(contexts: [Context; 2], irn: bool, seed: u64) {
    let mut world = asked(contexts, irn, seed);
    sends_through_a_kernel(&mut world);
    lifetimes(&mut world);
}

fn bad_links(seed: u64) -> Rules {
    let bad = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 3 }];
    Rules { seed, ..Rules::of(bad.map(|action| Rule::chance(action, 0.01)).to_vec()) }
}

fn each(open: impl Fn(u64) -> [Context; 2]) {
    for (seed, irn) in [false, true].into_iter().enumerate() {
        body(open(seed as u64), irn, seed as u64);
    }
}

fn shm() -> Device {
    Device::shm()
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

#[test]
fn kernels_serve_over_shm_and_udp() {
    for device in [shm, udp] {
        each(|_| [device().open().unwrap(), device().open().unwrap()]);
        each(|_| [device().open().unwrap(), device().mode(Mode::Dedicated).open().unwrap()]);
    }
}

#[test]
fn kernels_serve_over_links_that_lose_repeat_and_reorder() {
    for device in [shm, udp] {
        each(|seed| [0, 1].map(|end| device().fault(bad_links(2 * seed + end)).open().unwrap()));
    }
}

#[test]
fn kernels_serve_over_xdp() {
    let veth = remora_netns::require!(Veth::new());
    let device = |end: usize| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap()));
    each(|_| [0, 1].map(|end| veth.open(end, &device(end))));
}

#[test]
fn what_the_other_side_did_not_ask_for_fails_here() {
    let ours = strom(false);
    let theirs = QpOptions::default();
    let mut world = World::new([shm(), shm()].map(|device| device.open().unwrap()), [&ours, &theirs]);
    assert!(!world.pair.agreement().unwrap().strom);
    let place = world.answers.place(0);
    world.pair.post_rpc(1, GET, 0, &place, &[]).unwrap();
    let mut done = [EMPTY; 1];
    world.client.cq.wait(&mut done, LONG).unwrap();
    assert_eq!((done[0].status, done[0].kind), (remora_verbs::Status::LocalQpOperation, CompletionKind::Rpc));
}

#[test]
fn a_room_is_not_given_twice_and_a_full_queue_takes_nothing_back() {
    let options = QpOptions { max_recv_wr: 4, ..strom(false) };
    let mut world = World::new([shm(), shm()].map(|device| device.open().unwrap()), [&options, &options]);
    let _number = world.deploy(Some(NUMBER), vec![Box::new(Number(5))]);
    let full = Err(remora_verbs::PostError::Queue(remora_verbs::QueueError::QueueFull));
    // Each request needs a receive work request, and there are four.
    let tags: Vec<u32> = (0..4).map(|_| world.answers.ask(&mut world.pair, NUMBER, &[]).unwrap()).collect();
    assert_eq!(world.answers.ask(&mut world.pair, NUMBER, &[]), full);
    for tag in &tags {
        assert_eq!(world.wait(*tag), (Status::DONE, vec![5]));
    }
    // Of sixteen buffers, four answers were handed out, and one answer is not handed out here.
    let kept = world.answers.ask(&mut world.pair, NUMBER, &[]).unwrap();
    for _ in 0..15 {
        assert_eq!(world.ask(NUMBER, &[]), (Status::DONE, vec![5]));
    }
    assert_eq!(world.answers.ask(&mut world.pair, NUMBER, &[]), full);
    assert_eq!(world.wait(kept), (Status::DONE, vec![5]));
    let next = world.answers.ask(&mut world.pair, NUMBER, &[]).unwrap();
    assert_ne!(next, kept, "the same buffer, another tag");
    assert_eq!(world.wait(next), (Status::DONE, vec![5]));
    assert_eq!(world.answers.answer(kept), None::<KernelAnswer>);
}

#[test]
fn answers_that_take_no_bytes_or_too_many_are_refused_before_any_kernel_is_made() {
    let server = party(shm().open().unwrap());
    let most = u64::from(u32::MAX);
    let refused = |lanes, options: KernelOptions<'_>| {
        let result = server.domain.deploy_shipped(Shipped::Get, lanes, &options).map(drop);
        let Err(CreateError::TooMany(resource, asked, limit)) = result else { panic!("{result:?}") };
        assert_eq!((resource, limit), ("bytes for answers", most));
        asked
    };
    let options = KernelOptions { longest: 1, ..KernelOptions::default() };
    assert!(refused(u32::MAX, options) > most);
    assert!(refused(1, KernelOptions { answers: 1 << 26, ..options }) > most);
    assert!(refused(1, KernelOptions { longest: u32::MAX, ..options }) > most);
    assert_eq!(refused(1, KernelOptions { longest: 0, ..options }), 0);
    assert_eq!(refused(0, KernelOptions { answers: 0, ..options }), 0);
}

/// The entry point of the other process. Its program sleeps while its NIC
/// answers.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn other_process() {
    let name = std::env::var("REMORA_STROM_DEVICE").expect("set by the test that starts this process");
    let device = if name == "udp" { udp() } else { shm() };
    let server = party(device.open().unwrap());
    table(&server.memory, &mut Random::new(1));
    let grants = [&server.memory];
    let options = KernelOptions { opcode: Some(GET), grants: &grants, ..KernelOptions::default() };
    let get = server.domain.deploy_kernel(lanes::<Get>(4), &options).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("listening at {}", listener.address());
    let private_data = server.memory.remote_memory().to_bytes().to_vec();
    let options = QpOptions { private_data, ..strom(false) };
    let request = listener.accept(Some(LONG)).unwrap().unwrap();
    let _pair = request.accept(server.domain.create_qp(&server.cq, &server.cq, &options).unwrap()).unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    println!("requests {}", get.facts().unwrap().requests);
}

#[test]
fn a_kernel_of_another_process_answers_while_its_program_sleeps() {
    for (name, device) in [("shm", shm()), ("udp", udp())] {
        let mut command = crate::own::test(module_path!(), "other_process");
        let mut other = Process::start_piped(command.env("REMORA_STROM_DEVICE", name));
        let address = other.line_with("listening at ");
        let mut client = party(device.open().unwrap());
        let pair = client.domain.create_qp(&client.cq, &client.cq, &strom(false)).unwrap();
        let mut pair = pair.connect(address).unwrap();
        let there = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        let memory = client.domain.allocate(1 << 20, Access::LOCAL_WRITE).unwrap();
        let model = table(&memory, &mut Random::new(1));
        let mut answers = client.domain.create_answers(8, 4096).unwrap();
        for key in 0..SLOTS * 3 {
            let tag = answers.ask(&mut pair, GET, &lookup(there, key)).unwrap();
            let answer = answers.wait(&mut client.cq, tag, LONG).unwrap();
            let mut value = vec![0; answer.len as usize];
            answers.read(&answer, &mut value).unwrap();
            assert_eq!((answer.status, &value), (Status::DONE, &model[&key]));
        }
        let words = other.end();
        assert!(words.lines().any(|line| line == format!("requests {}", SLOTS * 3)), "{words}");
    }
}
