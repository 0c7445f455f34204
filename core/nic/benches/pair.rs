//! Two NICs in one thread, joined by a buffer: what a verb costs in instructions, without any port.
//!
//! `cargo bench -p remora-nic --bench pair [-- write|long|read|get|account]` prints nanoseconds per verb for
//! both sides together (`long`: a WRITE of eight packets), and where those of a READ go; `write-irn`,
//! `long-irn` and `read-irn` are the same over IRN. `indirect` and `bounded` are READs of 64 B through a
//! pointer, without and with its bound; `swap` is PRISM's CAS of 16 bytes, and `put` the chain of PRISM-KV's
//! PUT that loses: WRITE to scratch memory, ALLOCATE, CAS. `get` asks StRoM's kernel for values out of a
//! table that no cache holds, one at a time and sixteen together; `check` asks for an object with its check
//! value, beside `verify`, a READ whose client computes that (`checks` and `verifies`: sixteen together).
//! `stream` is long WRITEs, `tap` the same ones counted by HyperLogLog, and `give` RPC WRITEs that are
//! shuffled.

use std::sync::Arc;

use remora_memory::{Access, Bytes, Config as TableConfig, Range, Table};
use remora_nic::{
    AddressVector, Bare, Command, CompletionKind, CompletionPoller, Config, CqFlags, Fetching, Flags,
    HandedPart, Modify, Operation, Payload, QueuePairInit, ReceiveQueue, ReceiveRequest, Receives, Remote,
    Ring, SendQueue, Service, Sge, WorkRequest, kernel, prism, wqe,
};
use remora_transport::Instant;
use remora_transport::state::State;
use remora_wire::frame::Route;
use remora_wire::{Address, Class, Egress, Endpoint, Ingress, Lease, Peer, Psn, Start};

const SLOTS: usize = 256;
const MTU: usize = 1024;
/// Bytes of a buffer of the free lists.
const BUFFER: usize = 512;

/// Frames on their way to the other NIC.
struct Pipe {
    bytes: Vec<u8>,
    lens: Vec<usize>,
    slot: usize,
}

impl Pipe {
    /// For frames of verbs of `len` bytes.
    fn new(len: usize) -> Self {
        let slot = len.min(MTU) + 64;
        Pipe { bytes: vec![0; slot * SLOTS], lens: Vec::with_capacity(SLOTS), slot }
    }
}

impl Egress for Pipe {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }
    fn seals(&self, _: Peer) -> bool {
        false
    }
    #[inline(always)]
    fn lend(&mut self, _: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        let start = self.lens.len() * self.slot;
        if self.lens.len() == SLOTS {
            return None;
        }
        self.lens.push(len);
        Some(Lease { bytes: &mut self.bytes[start..start + len], ip_id: 0 })
    }
    fn commit(&mut self) {}
    fn flush(&mut self) {}
}

struct Side {
    engine: Bare,
    out: Pipe,
    send: SendQueue,
    poller: CompletionPoller,
    sge: Sge,
    memory: Bytes,
    remote: Remote,
    qp: remora_wire::Qpn,
    table: Arc<Table>,
    pd: remora_memory::Pd,
    receives: ReceiveQueue,
    /// A free list over the end of the memory, and where its buffers are posted.
    list: u64,
    posts: ReceiveQueue,
}

fn side(seed: u64, len: usize) -> Side {
    let table = Arc::new(Table::new(TableConfig { key_seed: seed, ..TableConfig::default() }).unwrap());
    let nic = Bare::new(&table, Config { checks_icrc: false, max_qps: 64, ..Config::default() });
    let pd = table.alloc_pd().unwrap();
    let memory = Bytes::heap(1 << 16).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let key = table.register(pd, &[Range::whole(&memory)], rights).unwrap();
    let ring = |slots| Ring::heap(slots).unwrap();
    let send = ring(256);
    let cq_ring = ring(512);
    let cq =
        nic.ask(Command::CreateCq { ring: nic.hand(cq_ring.clone()), flags: CqFlags::default() }).unwrap();
    let receives = ring(64);
    let init = QueuePairInit {
        service: Service::Rc,
        pd,
        send_ring: nic.hand(send.clone()),
        receives: Receives::Own { ring: nic.hand(receives.clone()), max_sge: 1 },
        send_cq: cq,
        receive_cq: cq,
        signal_all: false,
        fetching: Fetching::Posted,
    };
    let qp = nic.ask(Command::CreateQp(init)).unwrap();
    let base = memory.address() + 32768;
    let posts = ring(64);
    let list =
        prism::FreeListInit { pd, ring: nic.hand(posts.clone()), base, size: BUFFER as u32, count: 32 };
    let list = nic.ask(Command::CreateFreeList(list)).unwrap();
    Side {
        engine: nic,
        out: Pipe::new(len),
        send: SendQueue::new(send, wqe::Bounds { max_sge: 1, max_inline: 64 }),
        poller: CompletionPoller::new(cq_ring),
        sge: Sge { addr: memory.address(), len: len as u32, lkey: key },
        remote: Remote { addr: memory.address() + 16384, rkey: key },
        memory,
        qp,
        table,
        pd,
        receives: ReceiveQueue::new(receives, 1),
        list,
        posts: ReceiveQueue::new(posts, 1),
    }
}

/// The extensions that both peers of a connection agreed on.
#[derive(Copy, Clone, Default)]
struct Agreed {
    irn: bool,
    prism: bool,
    strom: bool,
}

fn connect(a: &Side, b: &Side, udp_port: u16, peer_udp_port: u16, agreed: Agreed) {
    let endpoint = |port| Endpoint { address: Address::from(std::net::Ipv4Addr::LOCALHOST), udp_port: port };
    let route = Route::new(endpoint(udp_port), endpoint(peer_udp_port));
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let init = Modify {
        state: Some(State::Init),
        access: Some(access),
        pkey_index: Some(0),
        port: Some(1),
        ..Modify::default()
    };
    let rtr = Modify {
        state: Some(State::Rtr),
        address: Some(AddressVector::new(Peer(0), route)),
        path_mtu: Some(MTU as u32),
        dest_qp: Some(b.qp),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: Some(12),
        irn: agreed.irn.then_some(128),
        prism: Some(agreed.prism),
        strom: Some(agreed.strom),
        ..Modify::default()
    };
    let rts = Modify {
        state: Some(State::Rts),
        sq_psn: Some(Psn::new(0)),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(16),
        ..Modify::default()
    };
    for change in [init, rtr, rts] {
        a.engine.ask::<()>(Command::ModifyQp { qp: a.qp, change: Box::new(change) }).unwrap();
    }
}

impl Side {
    fn post(&mut self, operation: Operation, count: usize, signaled_every: usize) {
        for n in 0..count {
            let flags = Flags { signaled: n % signaled_every == signaled_every - 1, ..Flags::default() };
            let list = [self.sge];
            let request = WorkRequest { id: n as u64, operation, payload: Payload::Sges(&list), flags };
            self.send.push(&request).unwrap();
        }
        self.send.publish();
    }

    /// Posts a receive without memory: what an answer takes.
    fn post_receive(&mut self) {
        self.receives.post(&ReceiveRequest { id: 0, sges: &[] }).unwrap();
    }

    /// Posts a request to the kernel, and the receive that its answer takes.
    fn ask(&mut self, params: &[u8]) {
        self.post_receive();
        let operation = Operation::Rpc { opcode: 1, tag: 0 };
        let request =
            WorkRequest { id: 0, operation, payload: Payload::Inline(params), flags: Flags::default() };
        self.send.push(&request).unwrap();
        self.send.publish();
    }

    /// Posts PRISM's operations, of which the last one signals.
    fn post_prism(&mut self, operations: &[prism::WorkRequest<'_>]) {
        operations.iter().for_each(|request| self.send.push_prism(request).unwrap());
        self.send.publish();
    }

    fn pass(&mut self, arriving: &mut Pipe, doorbell: bool) {
        self.receive(arriving);
        self.transmit(doorbell);
    }

    fn receive(&mut self, arriving: &mut Pipe) {
        let mut guard = self.engine.enter();
        let (nic, mem) = guard.parts();
        let source = Endpoint { address: Address([0; 16]), udp_port: 0 };
        for (index, len) in arriving.lens.iter().enumerate() {
            let bytes = &arriving.bytes[index * arriving.slot..index * arriving.slot + len];
            nic.receive(
                Instant(1),
                mem,
                &Ingress { bytes, start: Start::Ip, sealed: false, source, destination: None, origin: None },
            );
        }
        arriving.lens.clear();
    }

    fn transmit(&mut self, doorbell: bool) {
        let mut guard = self.engine.enter();
        let (nic, mem) = guard.parts();
        if doorbell {
            nic.doorbell(self.qp);
        }
        nic.transmit(Instant(1), mem, &mut self.out, 256);
    }
}

/// Nanoseconds that this process has run: what else the machine does disturbs it little.
fn on_cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn run(name: &str, len: usize, irn: bool, operation: impl Fn(Remote) -> Operation) {
    let mut a = side(1, len);
    let mut b = side(2, len);
    let agreed = Agreed { irn, ..Agreed::default() };
    connect(&a, &b, 1, 2, agreed);
    connect(&b, &a, 2, 1, agreed);
    let operation = operation(b.remote);
    measure(name, BATCH, &mut a, &mut b, |a, _| a.post(operation, BATCH, BATCH));
}

/// Verbs with one completion.
const BATCH: usize = 16;

/// Has `post` post `count` verbs at a time, the last one signaled.
fn measure(name: &str, count: usize, a: &mut Side, b: &mut Side, mut post: impl FnMut(&mut Side, &mut Side)) {
    let mut rounds = Vec::new();
    let wanted = verbs();
    for _ in 0..9 {
        let started = on_cpu();
        let mut done = 0;
        while done < wanted {
            post(a, b);
            a.transmit(true);
            for _ in 0..3 {
                b.pass(&mut a.out, false);
                a.pass(&mut b.out, false);
            }
            while let Some(cqe) = a.poller.poll() {
                assert_eq!(cqe.completion.status, remora_nic::Status::Success);
                // What arrives counts for itself, what was sent for all that were sent with it.
                done += if cqe.completion.kind == CompletionKind::ReceiveWriteImm { 1 } else { count };
            }
            a.poller.free();
        }
        rounds.push((on_cpu() - started) as f64 / done as f64);
    }
    rounds.sort_by(f64::total_cmp);
    println!("{name}: median {:.1} ns per verb, both sides; best round {:.1}", rounds[4], rounds[0]);
}

/// Two sides that agreed on PRISM; the second one's memory has a pointer with its bound at `remote`.
fn prism_sides() -> (Side, Side) {
    let a = side(1, BUFFER);
    let b = side(2, BUFFER);
    let agreed = Agreed { prism: true, ..Agreed::default() };
    connect(&a, &b, 1, 2, agreed);
    connect(&b, &a, 2, 1, agreed);
    let pointer = [(b.remote.addr + 1024).to_le_bytes(), 64u64.to_le_bytes()].concat();
    b.memory.write(16384, &pointer).unwrap();
    (a, b)
}

fn request(operation: prism::Operation<'_>, signaled: bool) -> prism::WorkRequest<'_> {
    let flags = Flags { signaled, ..Flags::default() };
    prism::WorkRequest { id: 0, operation, conditional: false, redirect: None, result: None, flags }
}

/// Sixteen times one operation of PRISM.
fn run_prism(name: &str, operation: impl for<'s> Fn(&Side, &'s [Sge]) -> prism::Operation<'s>) {
    let (mut a, mut b) = prism_sides();
    let list = [Sge { len: 64, ..a.sge }];
    measure(name, BATCH, &mut a, &mut b, |a, b| {
        for n in 0..BATCH {
            a.post_prism(&[request(operation(b, &list), n == BATCH - 1)]);
        }
    });
}

fn prism_read(from: prism::Address, buffers: &[Sge]) -> prism::Operation<'_> {
    prism::Operation::Read { from, len: 64, into: buffers }
}

fn scratch(side: &Side) -> prism::Address {
    prism::Address::direct(Remote { addr: prism::SCRATCH, ..side.remote })
}

fn swap(target: Remote, new: prism::Operand) -> prism::Operation<'static> {
    let operands = prism::Operands {
        mode: prism::Mode::Equal,
        size: 16,
        compare_mask: [u64::MAX, 0, 0, 0],
        swap_mask: [u64::MAX, u64::MAX, 0, 0],
        compare: prism::Operand::Immediate([1, 0, 0, 0]),
        swap_add: new,
    };
    prism::Operation::CompareSwap { at: prism::Address::direct(target), operands }
}

/// PUTs together: as many operations as may be unanswered.
const PUTS: usize = 8;

/// PUTs, `count` together, which lose, and whose buffers come back.
fn run_put(name: &str, count: usize) {
    let (mut a, mut b) = prism_sides();
    let first = b.memory.address() + 32768;
    let value = [Sge { len: 64, ..a.sge }];
    (0..32).for_each(|index| b.posts.post_buffer(first + index * BUFFER as u64).unwrap());
    let result_buffer =
        |a: &Side, index: usize| Sge { addr: a.sge.addr + 1024 + 8 * index as u64, len: 8, ..a.sge };
    let mut lost = false;
    measure(name, count, &mut a, &mut b, |a, b| {
        for index in 0..count {
            if lost {
                let buffer = a.memory.word(1024 + 8 * index).unwrap();
                b.posts.post_buffer(buffer.load(std::sync::atomic::Ordering::Relaxed)).unwrap();
            }
            let list = b.list;
            let rkey = b.remote.rkey;
            let result = Some(result_buffer(a, index));
            let bound = prism::Data::Local(Payload::Inline(&[64, 0, 0, 0, 0, 0, 0, 0]));
            let mut at_bound = scratch(b);
            at_bound.remote.addr += 8;
            let data = prism::Data::Local(Payload::Sges(&value));
            let allocate = request(prism::Operation::Allocate { list, rkey, data }, false);
            let lose = swap(b.remote, prism::Operand::At(prism::SCRATCH));
            let lose = request(lose, index == count - 1);
            a.post_prism(&[
                request(prism::Operation::Write { to: at_bound, data: bound }, false),
                prism::WorkRequest { conditional: true, redirect: Some(prism::SCRATCH), result, ..allocate },
                prism::WorkRequest { conditional: true, ..lose },
            ]);
        }
        lost = true;
    });
}

/// Two sides that agreed on StRoM, the second one with a kernel that may touch its memory and more; and the
/// kernel's number.
fn strom_sides(len: usize, kernel: Box<dyn kernel::Kernel>, more: Option<&Bytes>) -> (Side, Side, u32) {
    let a = side(1, len);
    let b = side(2, len);
    let agreed = Agreed { strom: true, ..Agreed::default() };
    connect(&a, &b, 1, 2, agreed);
    connect(&b, &a, 2, 1, agreed);
    let more = more.map(|bytes| b.table.register(b.pd, &[Range::whole(bytes)], Access::LOCAL_WRITE).unwrap());
    let init = kernel::KernelInit {
        pd: b.pd,
        opcode: Some(1),
        code: b.engine.hand(HandedPart::Kernels(vec![kernel])),
        grants: more.into_iter().chain([b.remote.rkey]).collect(),
        answers: 64,
        longest: 256,
        limit: 1 << 12,
    };
    let number = b.engine.ask(Command::DeployKernel(init)).unwrap();
    (a, b, number)
}

/// Objects of 64 B with their check values by a kernel, `count` together.
fn run_checks(name: &str, count: usize) {
    let (mut a, mut b, _) = strom_sides(64, Box::<kernel::Consistency>::default(), None);
    let bytes = [7; 64];
    b.memory.write(16384, &[&bytes[..], &kernel::crc64(&bytes).to_le_bytes()].concat()).unwrap();
    let object = kernel::Object { address: b.remote.addr, len: 64, tries: 8 };
    let place = kernel::Place { addr: a.remote.addr, rkey: a.remote.rkey.get(), len: 64 };
    let params = [&place.emit()[..], &object.emit()].concat();
    measure(name, count, &mut a, &mut b, |a, _| (0..count).for_each(|_| a.ask(&params)));
}

/// Measures checked objects by READs; each is checked after the next READs were posted.
fn run_verified(name: &str, count: usize) {
    let mut a = side(1, 72);
    let mut b = side(2, 72);
    connect(&a, &b, 1, 2, Agreed::default());
    connect(&b, &a, 2, 1, Agreed::default());
    let mut object = [7; 72];
    object[64..].copy_from_slice(&kernel::crc64(&[7; 64]).to_le_bytes());
    b.memory.write(16384, &object).unwrap();
    a.memory.write(0, &object).unwrap();
    let operation = Operation::Read(b.remote);
    measure(name, count, &mut a, &mut b, |a, _| {
        for _ in 0..count {
            let mut came = [0; 72];
            a.memory.read(0, &mut came).unwrap();
            let (object, sum) = came.split_at(64);
            assert_eq!(kernel::crc64(object).to_le_bytes(), *sum);
        }
        a.post(operation, count, count);
    });
}

/// Bytes of a message of a stream, and how many messages the memory holds.
const MESSAGE: usize = 1 << 20;
const MESSAGES: u64 = 16;
const PARTITIONS: usize = 1024;
/// Partitions that one RPC sets.
const SET: usize = 32;

/// The destination of a stream.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Fate {
    Written,
    Counted,
    Shuffled,
}

/// A stream of messages of 1024 packets, out of memory of values that are all different.
struct Stream {
    a: Side,
    b: Side,
    _source: Bytes,
    payload: Sge,
    /// Offset of the parameters.
    params: Sge,
    target: Bytes,
    rkey: remora_memory::Key,
    fate: Fate,
    sent: u64,
}

impl Stream {
    fn new(fate: Fate) -> Stream {
        let target = Bytes::heap(MESSAGES as usize * MESSAGE / 4 * 5).unwrap();
        let kernel: Box<dyn kernel::Kernel> = match fate {
            Fate::Shuffled => Box::<kernel::Shuffle>::default(),
            _ => Box::<kernel::HyperLogLog>::default(),
        };
        let (a, b, number) = strom_sides(MTU, kernel, Some(&target));
        if fate == Fate::Counted {
            b.engine.ask::<()>(Command::AttachKernel { qp: b.qp, kernel: Some(number) }).unwrap();
        }
        let source = Bytes::heap(MESSAGE + MTU).unwrap();
        for number in 0..(MESSAGE / 8) as u64 {
            let value = (number ^ number << 22).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes();
            source.write(number as usize * 8, &value.to_le_bytes()).unwrap();
        }
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let lkey = a.table.register(a.pd, &[Range::whole(&source)], rights).unwrap();
        let rkey = b.table.register(b.pd, &[Range::whole(&target)], rights).unwrap();
        let payload = Sge { addr: source.address(), len: MESSAGE as u32, lkey };
        let params = a.sge;
        Stream { a, b, _source: source, payload, params, target, rkey, fate, sent: 0 }
    }

    /// A message, and all that comes of it.
    fn message(&mut self) {
        let number = self.sent % MESSAGES;
        self.sent += 1;
        if self.fate == Fate::Shuffled {
            if number == 0 {
                self.partition();
            }
            return self.run(Operation::RpcWrite { opcode: 1, tag: 0 }, self.payload);
        }
        let addr = self.target.address() + number * MESSAGE as u64;
        self.run(Operation::Write(Remote { addr, rkey: self.rkey }), self.payload);
    }

    /// Sets all partitions anew.
    fn partition(&mut self) {
        let size = self.target.len() / PARTITIONS;
        for first in (0..PARTITIONS).step_by(SET) {
            let some: Vec<kernel::Partition> = (first..first + SET)
                .map(|number| self.target.address() + (number * size) as u64)
                .map(|address| kernel::Partition { address, values: size as u64 / 8 })
                .collect();
            let place = kernel::Place { addr: 0, rkey: 0, len: 0 };
            let params = kernel::histogram(PARTITIONS.ilog2(), first as u32, &some);
            let params = [&place.emit()[..], &params].concat();
            self.a.memory.write(0, &params).unwrap();
            let payload = Sge { len: params.len() as u32, ..self.params };
            self.run(Operation::Rpc { opcode: 1, tag: 0 }, payload);
        }
    }

    /// Posts a work request and runs both sides until it is answered, or completed for a WRITE.
    fn run(&mut self, operation: Operation, payload: Sge) {
        let Stream { a, b, .. } = self;
        let asks = !matches!(operation, Operation::Write(_));
        if asks {
            a.post_receive();
        }
        a.sge = payload;
        a.post(operation, 1, if asks { 2 } else { 1 });
        a.transmit(true);
        loop {
            b.pass(&mut a.out, false);
            a.pass(&mut b.out, false);
            if let Some(cqe) = a.poller.poll() {
                assert_eq!(cqe.completion.status, remora_nic::Status::Success);
                assert_eq!(cqe.completion.imm.unwrap_or(0) >> 24, 0, "done");
                return a.poller.free();
            }
        }
    }
}

fn run_stream(name: &str, fate: Fate) {
    let mut stream = Stream::new(fate);
    (0..MESSAGES).for_each(|_| stream.message());
    let mut rounds = Vec::new();
    let messages = (verbs() / (MESSAGE / MTU)).max(1);
    for _ in 0..9 {
        let started = on_cpu();
        (0..messages).for_each(|_| stream.message());
        rounds.push((on_cpu() - started) as f64 / (messages * MESSAGE / MTU) as f64);
    }
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name}: median {:.1} ns per packet of 1 KiB, both sides; best round {:.1}",
        rounds[4], rounds[0]
    );
}

/// Slots of the table, and from one value to the next.
const KEYS: u64 = 1 << 20;
const APART: usize = 256;

/// GETs of 64 B by a kernel, `count` together: keys at random.
fn run_gets(name: &str, count: usize) {
    let mut a = side(1, 64);
    let mut b = side(2, 64);
    let agreed = Agreed { strom: true, ..Agreed::default() };
    connect(&a, &b, 1, 2, agreed);
    connect(&b, &a, 2, 1, agreed);
    let slots = Bytes::heap(KEYS as usize * (kernel::Slot::LEN + APART)).unwrap();
    let key = b.table.register(b.pd, &[Range::whole(&slots)], Access::LOCAL_WRITE).unwrap();
    let values = slots.address() + KEYS * kernel::Slot::LEN as u64;
    for number in 0..KEYS {
        // Values stand in another order than their slots.
        let value = values + (number * 0x9e37_79b1 % KEYS) * APART as u64;
        let slot = kernel::Slot { keys: [number, 0, 0], values: [value, 0, 0], lens: [64, 0, 0] };
        slots.write(number as usize * kernel::Slot::LEN, &slot.emit()).unwrap();
        slots.write((value - slots.address()) as usize, &number.to_le_bytes()).unwrap();
    }
    let init = kernel::KernelInit {
        pd: b.pd,
        opcode: Some(1),
        code: b.engine.hand(HandedPart::Kernels(vec![Box::<kernel::Get>::default()])),
        grants: vec![key],
        answers: 128,
        longest: 256,
        limit: 1 << 12,
    };
    b.engine.ask::<u32>(Command::DeployKernel(init)).unwrap();
    let mut random = 1_u64;
    measure(name, count, &mut a, &mut b, |a, _| {
        for _ in 0..count {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let number = (random >> 32) % KEYS;
            let slot = slots.address() + number * kernel::Slot::LEN as u64;
            let place = kernel::Place { addr: a.remote.addr, rkey: a.remote.rkey.get(), len: 64 };
            let lookup = kernel::Lookup { slot, key: number };
            a.ask([&place.emit()[..], &lookup.emit()].concat().as_slice());
        }
    });
}

/// The stages of a 64 B READ, as it goes through them in batches.
const STAGES: [&str; 6] = [
    "requester: work request to WQE",
    "requester: doorbell, fetch, keys, plan, request frame",
    "responder: parse, PSN, keys, action",
    "responder: response frame, payload copied in",
    "requester: parse, payload scattered, message retired, CQE",
    "requester: CQE polled",
];

/// Returns the nanoseconds that reading the clock adds to each stage.
fn clock_ns() -> f64 {
    let mut gaps: Vec<f64> = (0..1000)
        .map(|_| {
            let before = std::time::Instant::now();
            (std::time::Instant::now() - before).as_nanos() as f64
        })
        .collect();
    gaps.sort_by(f64::total_cmp);
    gaps[gaps.len() / 10]
}

/// Returns the nanoseconds of each stage of a READ, in batches of `batch`: the quickest tenth of the readings
/// of each stage.
fn stages(batch: usize) -> [f64; STAGES.len()] {
    let mut a = side(1, 64);
    let mut b = side(2, 64);
    connect(&a, &b, 1, 2, Agreed::default());
    connect(&b, &a, 2, 1, Agreed::default());
    let operation = Operation::Read(b.remote);
    let clock = clock_ns();
    let mut times = STAGES.map(|_| Vec::new());
    for _ in 0..verbs() / 16 {
        let mut marks = [std::time::Instant::now(); STAGES.len() + 1];
        a.post(operation, batch, batch);
        marks[1] = std::time::Instant::now();
        a.transmit(true);
        marks[2] = std::time::Instant::now();
        b.receive(&mut a.out);
        marks[3] = std::time::Instant::now();
        b.transmit(false);
        marks[4] = std::time::Instant::now();
        a.receive(&mut b.out);
        marks[5] = std::time::Instant::now();
        while let Some(cqe) = a.poller.poll() {
            assert_eq!(cqe.completion.status, remora_nic::Status::Success);
        }
        a.poller.free();
        marks[6] = std::time::Instant::now();
        for (stage, times) in times.iter_mut().enumerate() {
            times.push(((marks[stage + 1] - marks[stage]).as_nanos() as f64 - clock) / batch as f64);
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 10]
    })
}

/// The account: a READ alone, and one of sixteen.
fn account() {
    let alone = stages(1);
    let together = stages(16);
    println!("{:>8} {:>8}   ns of a 64 B READ: alone, one of 16", "1", "16");
    for (index, name) in STAGES.iter().enumerate() {
        println!("{:8.1} {:8.1}   {name}", alone[index], together[index]);
    }
    println!("{:8.1} {:8.1}   in all", alone.iter().sum::<f64>(), together.iter().sum::<f64>());
}

/// Verbs a round; `PAIR_VERBS` sets fewer for instruction counters.
fn verbs() -> usize {
    std::env::var("PAIR_VERBS").ok().and_then(|verbs| verbs.parse().ok()).unwrap_or(1_000_000)
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|arg| arg == name);
    for (irn, by) in [(false, ""), (true, "-irn")] {
        for (verb, len, operation) in [
            ("write", 64, Operation::Write as fn(Remote) -> Operation),
            ("long", 8 * MTU, Operation::Write),
            ("read", 64, Operation::Read),
        ] {
            if wanted(&format!("{verb}{by}")) {
                run(&format!("{verb}{by}, {len} B"), len, irn, operation);
            }
        }
    }

    if wanted("indirect") {
        run_prism("indirect READ, 64 B", |b, buffers| {
            prism_read(prism::Address::indirect(b.remote), buffers)
        });
    }
    if wanted("bounded") {
        run_prism("bounded READ, 64 B", |b, buffers| prism_read(prism::Address::bounded(b.remote), buffers));
    }
    if wanted("swap") {
        run_prism("CAS, 16 B", |b, _| swap(b.remote, prism::Operand::Immediate([1, 2, 0, 0])));
    }
    if wanted("put") {
        run_put("PUT of 64 B, alone", 1);
        run_put("PUT of 64 B, one of 8", PUTS);
    }
    if wanted("get") {
        run_gets("GET of 64 B by a kernel, alone", 1);
        run_gets("GET of 64 B by a kernel, one of 16", BATCH);
    }
    if wanted("check") {
        run_checks("checked object of 64 B by a kernel, alone", 1);
    }
    if wanted("checks") {
        run_checks("checked object of 64 B by a kernel, one of 16", BATCH);
    }
    if wanted("verify") {
        run_verified("READ of 64 B, checked, alone", 1);
    }
    if wanted("verifies") {
        run_verified("READ of 64 B, checked, one of 16", BATCH);
    }
    for (word, fate) in [("stream", Fate::Written), ("tap", Fate::Counted), ("give", Fate::Shuffled)] {
        if wanted(word) {
            run_stream(word, fate);
        }
    }
    if wanted("account") {
        account();
    }
}
