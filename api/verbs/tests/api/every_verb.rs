//! Every verb between two contexts of one process: the bytes that arrive, the completions, and the refusals.

use crate::veth::{self, Veth};
use remora_verbs::{
    Access, CompletionKind, CompletionQueue, Context, Device, EMPTY, Flags, MemoryRegion, Mode, Payload,
    PostError, ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, Status, WorkCompletion, WorkRequest,
    work,
};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

/// A side of a connection.
struct Side {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
    _context: Context,
}

impl Side {
    fn wait(&mut self) -> WorkCompletion {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        done[0]
    }

    fn run(&mut self, request: &WorkRequest<'_>) -> WorkCompletion {
        self.pair.post_send(request).unwrap();
        self.wait()
    }
}

fn twice(device: Device) -> impl Fn() -> [Context; 2] {
    move || [device.open().unwrap(), device.open().unwrap()]
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// A function that opens two contexts that can reach each other.
type Open<'a> = &'a dyn Fn() -> [Context; 2];

fn ends(open: Open<'_>) -> (Side, Side) {
    let make = |context: Context| {
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let memory = domain.allocate(1 << 16, all()).unwrap();
        let pair =
            domain.create_qp(&cq, &cq, &QpOptions { max_recv_sge: 4, ..QpOptions::default() }).unwrap();
        (context, domain, cq, memory, pair)
    };
    let [a, b] = open().map(make);
    let (pair_a, pair_b) = QueuePair::connect_pair(a.4, b.4).unwrap();
    let end = |context, domain, cq, memory, pair| Side { domain, cq, pair, memory, _context: context };
    (end(a.0, a.1, a.2, a.3, pair_a), end(b.0, b.1, b.2, b.3, pair_b))
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn content(region: &MemoryRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    region.read(offset, &mut out).unwrap();
    out
}

fn every_verb(open: Open<'_>) {
    let (mut a, mut b) = ends(open);
    writes_and_reads(&mut a, &mut b);
    messages(&mut a, &mut b);
    atomics(&mut a, &mut b);
    local_ones(&mut a);
    let counters = b._context.counters();
    assert_eq!(
        (counters.rx_write_requests, counters.rx_read_requests, counters.rx_atomic_requests),
        (4, 2, 3)
    );
    assert_eq!(counters.malformed_pkts + counters.unknown_qp + counters.rx_icrc_encapsulated, 0);
}

fn writes_and_reads(a: &mut Side, b: &mut Side) {
    let data = bytes(20_000, 1);
    a.memory.write(0, &data).unwrap();
    let done = a.run(&work::write(1, &[a.memory.sge(0, 20_000)], b.memory.remote(1000)));
    assert_eq!((done.id, done.status, done.kind), (1, Status::Success, CompletionKind::Write));
    assert_eq!(content(&b.memory, 1000, 20_000), data);

    // The data is gathered from three elements, of which the middle one is empty.
    let list = [a.memory.sge(5, 10), a.memory.sge(0, 0), a.memory.sge(100, 90)];
    assert_eq!(a.run(&work::write(2, &list, b.memory.remote(0))).status, Status::Success);
    assert_eq!(content(&b.memory, 0, 100), [&data[5..15], &data[100..190]].concat());

    let done = a.run(&work::write_inline(3, b"inline", b.memory.remote(40_000)));
    assert_eq!(done.status, Status::Success);
    assert_eq!(content(&b.memory, 40_000, 6), b"inline");

    let done = a.run(&work::read(
        4,
        &[a.memory.sge(30_000, 5_000), a.memory.sge(50_000, 5_000)],
        b.memory.remote(1000),
    ));
    assert_eq!((done.kind, done.byte_len, done.status), (CompletionKind::Read, 10_000, Status::Success));
    assert_eq!(content(&a.memory, 30_000, 5_000), data[..5_000]);
    assert_eq!(content(&a.memory, 50_000, 5_000), data[5_000..10_000]);
    let done = a.run(&work::read(5, &[], b.memory.remote(0)));
    assert_eq!((done.byte_len, done.status), (0, Status::Success));
}

fn messages(a: &mut Side, b: &mut Side) {
    let list = [b.memory.sge(60_000, 3), b.memory.sge(61_000, 4_000)];
    for id in 10..14 {
        b.pair.post_recv(&ReceiveRequest { id, sges: &list }).unwrap();
    }
    assert_eq!(a.run(&work::send(20, &[a.memory.sge(0, 1003)])).kind, CompletionKind::Send);
    let got = b.wait();
    assert_eq!((got.id, got.kind, got.byte_len, got.imm), (10, CompletionKind::Receive, 1003, None));
    assert_eq!(content(&b.memory, 60_000, 3), bytes(3, 1));
    assert_eq!(content(&b.memory, 61_000, 1000), bytes(1003, 1)[3..]);

    assert_eq!(a.run(&work::send_imm(21, &[], 0xfeed_beef)).status, Status::Success);
    let got = b.wait();
    assert_eq!((got.id, got.byte_len, got.imm), (11, 0, Some(0xfeed_beef)));

    let done = a.run(&work::write_imm(22, &[a.memory.sge(0, 8)], b.memory.remote(7), 77));
    assert_eq!((done.status, done.kind), (Status::Success, CompletionKind::Write));
    let got = b.wait();
    assert_eq!((got.id, got.kind, got.byte_len, got.imm), (12, CompletionKind::ReceiveWriteImm, 8, Some(77)));
    assert_eq!(content(&b.memory, 7, 8), bytes(8, 1));

    let window =
        b.domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::INVALIDATE).unwrap();
    assert_eq!(a.run(&work::send_inv(23, &[], window.rkey())).status, Status::Success);
    let got = b.wait();
    assert_eq!((got.id, got.invalidated), (13, Some(window.rkey())));
}

fn atomics(a: &mut Side, b: &mut Side) {
    let word = b.memory.word(512).unwrap();
    word.store(40, Ordering::Relaxed);
    let old = [a.memory.sge(0, 8)];
    let done = a.run(&work::fetch_add(30, &old, b.memory.remote(512), 2));
    assert_eq!((done.kind, done.status, done.byte_len), (CompletionKind::FetchAdd, Status::Success, 8));
    assert_eq!((a.memory.get::<u64>(0), word.load(Ordering::Relaxed)), (Ok(40), 42));
    let done = a.run(&work::compare_swap(31, &old, b.memory.remote(512), 42, 7));
    assert_eq!((done.kind, done.status), (CompletionKind::CompareSwap, Status::Success));
    assert_eq!((a.memory.get::<u64>(0), word.load(Ordering::Relaxed)), (Ok(42), 7));
    assert_eq!(a.run(&work::compare_swap(32, &old, b.memory.remote(512), 42, 9)).status, Status::Success);
    assert_eq!((a.memory.get::<u64>(0), word.load(Ordering::Relaxed)), (Ok(7), 7));
}

fn local_ones(a: &mut Side) {
    assert_eq!(a.run(&work::nop(40)).kind, CompletionKind::Nop);
    let region = a.domain.allocate(64, Access::LOCAL_WRITE | Access::INVALIDATE).unwrap();
    let done = a.run(&work::local_inv(41, region.lkey()));
    assert_eq!((done.kind, done.status), (CompletionKind::LocalInv, Status::Success));
    assert_eq!(a.run(&work::local_inv(42, region.lkey())).status, Status::MwBind);
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

fn udp6() -> Device {
    Device::udp("[::1]:0").unwrap()
}

/// Checks SEND, WRITE, their forms with immediate data, SEND with invalidation, READ, compare-and-swap,
/// fetch-and-add, LOCAL_INV and NOP.
#[test]
fn every_verb_over_shm() {
    every_verb(&twice(Device::shm()));
}

#[test]
fn every_verb_over_udp() {
    every_verb(&twice(udp()));
}

#[test]
fn every_verb_over_udp_over_ipv6() {
    every_verb(&twice(udp6()));
}

#[test]
fn every_verb_between_dedicated_engines() {
    every_verb(&twice(Device::shm().mode(Mode::Dedicated)));
    every_verb(&twice(udp().mode(Mode::Dedicated)));
}

#[test]
fn within_one_engine() {
    within_one(&Device::shm());
    within_one(&udp());
    within_one(&udp6());
}

#[test]
fn every_verb_over_xdp() {
    let veth = remora_netns::require!(Veth::new());
    for hosts in [veth::V4, veth::V6] {
        let open = |end: usize| veth.open(end, &xdp(&veth, end, hosts[end]));
        every_verb(&|| [open(0), open(1)]);
        mistakes(&|| [open(0), open(1)]);
        within_one_context(open(0));
    }
}

fn xdp(veth: &Veth, end: usize, host: &str) -> Device {
    Device::xdp(veth.interface(end), Some(host.parse().unwrap()))
}

fn within_one(device: &Device) {
    within_one_context(device.open().unwrap());
}

fn within_one_context(context: Context) {
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let memory = domain.allocate(8192, all()).unwrap();
    let options = QpOptions::default();
    let pair = || domain.create_qp(&cq, &cq, &options).unwrap();
    let (mut one, mut two) = QueuePair::connect_pair(pair(), pair()).unwrap();
    memory.write(0, b"to and fro").unwrap();
    let mut done = [EMPTY; 1];
    one.post_send(&work::write(1, &[memory.sge(0, 10)], memory.remote(4096))).unwrap();
    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
    two.post_send(&work::read(2, &[memory.sge(100, 10)], memory.remote(4096))).unwrap();
    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
    assert_eq!((done[0].status, content(&memory, 100, 10)), (Status::Success, b"to and fro".to_vec()));
}

/// Checks that each mistake of a program gets the status that hardware gives, each on a fresh connection.
fn mistakes(open: Open<'_>) {
    let status = |request: &dyn Fn(&Side, &Side) -> (remora_verbs::Operation, remora_verbs::Sge)| {
        let (mut a, b) = ends(open);
        let (operation, sge) = request(&a, &b);
        let done = a.run(&WorkRequest {
            id: 1,
            operation,
            payload: Payload::Sges(&[sge]),
            flags: Flags { signaled: true, ..Flags::default() },
        });
        assert_eq!(a.pair.state(), transport_state_err());
        done.status
    };
    use remora_verbs::{Operation, Remote, Sge};
    let beyond = |a: &Side, b: &Side| (Operation::Write(b.memory.remote((1 << 16) - 7)), a.memory.sge(0, 8));
    assert_eq!(status(&beyond), Status::RemoteAccess);
    let no_key = |a: &Side, b: &Side| {
        let rkey = remora_verbs::Key::new(b.memory.rkey().get() ^ 1);
        (Operation::Read(Remote { addr: b.memory.address(), rkey }), a.memory.sge(0, 8))
    };
    assert_eq!(status(&no_key), Status::RemoteAccess);
    let no_local_key = |a: &Side, b: &Side| {
        let sge = Sge { lkey: remora_verbs::Key::new(a.memory.lkey().get() ^ 1), ..a.memory.sge(0, 8) };
        (Operation::Write(b.memory.remote(0)), sge)
    };
    assert_eq!(status(&no_local_key), Status::LocalProtection);
    let crooked =
        |a: &Side, b: &Side| (Operation::FetchAdd { remote: b.memory.remote(4), add: 1 }, a.memory.sge(0, 8));
    assert_eq!(status(&crooked), Status::RemoteInvalidRequest);
}

fn transport_state_err() -> remora_verbs::State {
    remora_verbs::State::Err
}

#[test]
fn mistakes_have_the_status_of_hardware() {
    mistakes(&twice(Device::shm()));
    mistakes(&twice(udp()));
}

/// A `wr_id` belongs to the program. It is often a pointer, sometimes with tag bits above the address.
#[test]
fn ids_of_64_bits_come_back_whole() {
    for open in [&twice(Device::shm()) as Open<'_>, &twice(udp())] {
        let (mut a, mut b) = ends(open);
        let mut id = 0xfedc_ba98_7654_3210_u64;
        let remote = b.memory.remote(0);
        let local = [a.memory.sge(0, 8)];
        let wide = [a.memory.sge(0, 8), a.memory.sge(8, 8), a.memory.sge(16, 8)];
        for request in [
            work::write(0, &local, remote),
            work::write(0, &wide, remote),
            work::write_inline(0, &[7; 100], remote),
            work::read(0, &wide, remote),
            work::fetch_add(0, &local, remote, 1),
            work::nop(0),
        ] {
            id = id.rotate_left(7);
            assert_eq!(a.run(&WorkRequest { id, ..request }).id, id, "{request:?}");
        }
        for size in [8, 5000] {
            id = id.rotate_left(7);
            b.pair.post_recv(&ReceiveRequest { id: !id, sges: &[b.memory.sge(0, 8192)] }).unwrap();
            assert_eq!(a.run(&work::send(id, &[a.memory.sge(0, size)])).id, id);
            assert_eq!(b.wait().id, !id);
        }
        // Requests that are flushed on both sides.
        b.pair.post_recv(&ReceiveRequest { id: u64::MAX, sges: &[] }).unwrap();
        let beyond = work::write(u64::MAX - 1, &local, b.memory.remote((1 << 16) - 7));
        a.pair.post_send(&beyond).unwrap();
        a.pair.post_send(&work::nop(1 << 63)).unwrap();
        let ends = [a.wait(), a.wait()].map(|wc| (wc.id, wc.status));
        assert_eq!(ends, [(u64::MAX - 1, Status::RemoteAccess), (1 << 63, Status::WrFlushed)]);
        assert_eq!(b.wait().id, u64::MAX);
    }
}

#[test]
fn what_the_queue_does_not_take_is_refused_and_leaves_it_as_it_was() {
    let (mut a, b) = ends(&twice(Device::shm()));
    let refused = |pair: &mut QueuePair, request: &WorkRequest<'_>| match pair.post_send(request) {
        Err(PostError::Queue(why)) => why,
        other => panic!("{other:?}"),
    };
    use remora_verbs::QueueError;
    let remote = b.memory.remote(0);
    assert_eq!(
        refused(&mut a.pair, &work::write(1, &[a.memory.sge(0, 1); 17], remote)),
        QueueError::TooManySges
    );
    assert_eq!(refused(&mut a.pair, &work::write_inline(1, &[0; 257], remote)), QueueError::TooMuchInline);
    assert_eq!(
        refused(&mut a.pair, &work::fetch_add(1, &[a.memory.sge(0, 4)], remote, 1)),
        QueueError::BadPayload
    );
    let mut batch = a.pair.batch().unwrap();
    let mut posted = 0;
    while batch.post_send(&WorkRequest { flags: Flags::default(), ..work::nop(1) }).is_ok() {
        posted += 1;
    }
    assert_eq!(posted, 128, "the queue takes as many requests as were asked for");
    batch.ring();
    assert_eq!(a.run(&work::nop(9)).id, 9, "all requests are retired");
}
