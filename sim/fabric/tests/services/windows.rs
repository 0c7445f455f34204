//! Memory windows by work requests: BIND_MW, and invalidation of type 2 windows by SEND_INV and LOCAL_INV.

use super::{ends, pattern, receive, request};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_memory::{Access, Binding, Key, WindowType};
use remora_nic::{CompletionKind, Flags, Operation, Remote, Service, Status, WorkRequest};
use remora_transport::state::State;

const GOOD: Status = Status::Success;
const REMOTE: Access = remora_fabric::REMOTE;

/// Node 1 owns memory and binds windows to it; node 0 uses them over two connections.
struct Bench {
    world: World,
    users: [QueuePair; 2],
    owners: [QueuePair; 2],
    cqs: [CompletionQueue; 2],
    here: Region,
    there: Region,
}

fn bench() -> Bench {
    let mut world = World::new(&Config::default());
    let settings = Settings::default();
    let cqs = [world.create_cq(0, 256), world.create_cq(1, 256)];
    let mut pair = || {
        let ends = cqs.map(|cq| world.create_qp(cq, cq, &settings).unwrap());
        world.connect(ends[0], ends[1], &settings);
        ends
    };
    let [first, second] = [pair(), pair()];
    let here = world.register(0, 1 << 16, ALL);
    let there = world.register(1, 1 << 16, ALL | Access::MW_BIND);
    here.store(0, &pattern(1 << 12));
    Bench { world, users: [first[0], second[0]], owners: [first[1], second[1]], cqs, here, there }
}

impl Bench {
    fn window(&self, kind: WindowType) -> Key {
        self.world.table(1).alloc_window(self.world.pd(1), kind).unwrap()
    }

    fn binding(&self, window: Key, offset: u64, len: u64) -> Binding {
        let va = self.there.address + offset;
        Binding { window, key: window.next(), region: self.there.key, va, len, access: REMOTE }
    }

    /// Binds a window as the owner of the pair, and returns the status.
    fn bind(&mut self, pair: usize, binding: Binding) -> Status {
        self.world.post(self.owners[pair], &request(1, Operation::BindWindow(binding), &[])).unwrap();
        assert!(self.world.settle(1_000_000));
        let done = self.world.drain(self.cqs[1]);
        assert_eq!(done[0].kind, CompletionKind::BindWindow);
        done[0].status
    }

    /// Posts a WRITE of 8 bytes with a key, as the user of the pair.
    fn write(&mut self, pair: usize, rkey: Key, offset: u64) -> Status {
        let list = [self.here.sge(0, 8)];
        let remote = Remote { addr: self.there.address + offset, rkey };
        self.world.post(self.users[pair], &request(2, Operation::Write(remote), &list)).unwrap();
        assert!(self.world.settle(1_000_000));
        self.world.drain(self.cqs[0])[0].status
    }

    /// Posts a SEND_INV of a key as the user of the pair. Returns the status of both sides.
    fn send_inv(&mut self, pair: usize, key: Key) -> (Status, Status, Option<Key>) {
        receive(&mut self.world, self.owners[pair], 3, &[]);
        self.world.post(self.users[pair], &request(4, Operation::SendInv(key), &[])).unwrap();
        assert!(self.world.settle(1_000_000));
        let sent = self.world.drain(self.cqs[0]);
        let received = self.world.drain(self.cqs[1]);
        (sent[0].status, received[0].status, received[0].invalidated)
    }
}

#[test]
fn a_window_is_bound_used_and_bound_elsewhere() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let mut bench = bench();
        let first = bench.binding(bench.window(kind), 100, 50);
        assert_eq!(bench.bind(0, first), GOOD);
        assert_eq!(bench.write(0, first.key, 142), GOOD);
        assert_eq!(bench.there.load(142, 8), bench.here.load(0, 8));
        if kind == WindowType::Type2B {
            assert_eq!(bench.send_inv(0, first.key), (GOOD, GOOD, Some(first.key)));
        }
        let second = bench.binding(first.key, 1000, 8);
        assert_eq!(bench.bind(0, second), GOOD);
        assert_eq!(bench.write(0, second.key, 1000), GOOD);
        assert_eq!(bench.write(0, first.key, 142), Status::RemoteAccess, "the old key opens nothing");
    }
}

#[test]
fn beyond_a_window_there_is_nothing() {
    for offset in [0, 99, 143, 150, 60_000] {
        let mut bench = bench();
        let binding = bench.binding(bench.window(WindowType::Type1), 100, 50);
        assert_eq!(bench.bind(0, binding), GOOD);
        assert_eq!(bench.write(0, binding.key, offset), Status::RemoteAccess, "8 bytes at {offset}");
        assert_eq!(bench.there.load(0, 1 << 16), vec![0; 1 << 16]);
    }
    let mut bench = bench();
    let window = bench.window(WindowType::Type1);
    let readable = Binding { access: Access::REMOTE_READ, ..bench.binding(window, 0, 64) };
    assert_eq!(bench.bind(0, readable), GOOD);
    assert_eq!(bench.write(0, readable.key, 0), Status::RemoteAccess);
}

#[test]
fn type_1_serves_every_queue_pair_of_the_domain_and_type_2_the_one_that_bound_it() {
    for (kind, expected) in [(WindowType::Type1, GOOD), (WindowType::Type2B, Status::RemoteAccess)] {
        let mut bench = bench();
        let binding = bench.binding(bench.window(kind), 0, 64);
        assert_eq!(bench.bind(0, binding), GOOD);
        assert_eq!(bench.write(0, binding.key, 8), GOOD);
        assert_eq!(bench.write(1, binding.key, 16), expected, "{kind:?}");
    }
}

#[test]
fn reads_and_atomics_go_through_windows_with_their_rights() {
    let mut bench = bench();
    let binding = Binding {
        access: Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        ..bench.binding(bench.window(WindowType::Type2B), 0, 4096)
    };
    assert_eq!(bench.bind(0, binding), GOOD);
    bench.there.store(8, &7u64.to_ne_bytes());
    let remote = Remote { addr: bench.there.address + 8, rkey: binding.key };
    let list = [bench.here.sge(8192, 8)];
    bench.world.post(bench.users[0], &request(1, Operation::FetchAdd { remote, add: 3 }, &list)).unwrap();
    let long = [bench.here.sge(16384, 4000)];
    bench.world.post(bench.users[0], &request(2, Operation::Read(remote), &long)).unwrap();
    assert!(bench.world.settle(1_000_000));
    assert_eq!(ends(&bench.world.drain(bench.cqs[0])), [(1, GOOD), (2, GOOD)]);
    assert_eq!(bench.here.load(8192, 8), 7u64.to_ne_bytes());
    assert_eq!(bench.here.load(16384, 8), 10u64.to_ne_bytes());
}

/// Regression: a SEND with invalidation of a wrong key was answered by a NAK although it may already be
/// acknowledged (IBTA vol. 1 §9.9.6.3, class J).
#[test]
fn an_invalidation_closes_a_window_at_once_and_only_the_right_one_can() {
    // By the peer.
    let mut bench = bench();
    let binding = bench.binding(bench.window(WindowType::Type2B), 0, 64);
    assert_eq!(bench.bind(0, binding), GOOD);
    assert_eq!(bench.send_inv(0, binding.key), (GOOD, GOOD, Some(binding.key)));
    assert_eq!(bench.write(0, binding.key, 0), Status::RemoteAccess);
    // By its owner.
    let mut bench = self::bench();
    let binding = bench.binding(bench.window(WindowType::Type2B), 0, 64);
    assert_eq!(bench.bind(0, binding), GOOD);
    bench.world.post(bench.owners[0], &request(5, Operation::LocalInv(binding.key), &[])).unwrap();
    assert!(bench.world.settle(1_000_000));
    assert_eq!(ends(&bench.world.drain(bench.cqs[1])), [(5, GOOD)]);
    assert_eq!(bench.write(0, binding.key, 0), Status::RemoteAccess);
    // By the peer of another connection; and type 1, by nobody.
    for (kind, pair) in [(WindowType::Type2B, 1), (WindowType::Type1, 0)] {
        let mut bench = self::bench();
        let binding = bench.binding(bench.window(kind), 0, 64);
        assert_eq!(bench.bind(0, binding), GOOD);
        // Class J of IBTA vol. 1 §9.9.6.3: no NAK, so the sender gets no further answer.
        let ended = bench.send_inv(pair, binding.key);
        assert_eq!(ended, (Status::RetryExceeded, Status::MwBind, None), "{kind:?}");
        assert_eq!(bench.world.state(bench.owners[pair]), Some(State::Err));
    }
}

#[test]
fn a_binding_that_is_not_allowed_is_a_window_bind_error() {
    let cases: [fn(&Bench, Binding) -> Binding; 5] = [
        |_, binding| Binding { window: Key::new(binding.window.get() ^ 0x100), ..binding },
        |bench, binding| Binding { va: bench.there.address + (1 << 16), ..binding },
        |bench, binding| Binding { region: bench.there.key.next(), ..binding },
        |_, binding| Binding { access: ALL, ..binding },
        |_, binding| Binding { key: binding.window, len: 0, ..binding },
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut bench = bench();
        let binding = bench.binding(bench.window(WindowType::Type2B), 0, 64);
        let wrong = change(&bench, binding);
        assert_eq!(bench.bind(0, wrong), Status::MwBind, "case {number}");
        assert_eq!(bench.world.state(bench.owners[0]), Some(State::Err));
    }
}

#[test]
fn a_fenced_binding_waits_for_earlier_reads() {
    let mut bench = bench();
    let binding = bench.binding(bench.window(WindowType::Type1), 0, 64);
    // The owner READs from the user; the window opens only after the READ.
    let list = [bench.there.sge(1024, 8)];
    let remote = bench.here.remote(0);
    let owner = bench.owners[0];
    bench.world.post_quietly(owner, &request(1, Operation::Read(remote), &list)).unwrap();
    let fenced = Flags { fence: true, signaled: true, solicited: false };
    let bind = WorkRequest { flags: fenced, ..request(2, Operation::BindWindow(binding), &[]) };
    bench.world.post(owner, &bind).unwrap();
    let probe = |bench: &mut Bench| {
        let pd = bench.world.pd(1);
        let va = bench.there.address;
        bench.world.with_nic(1, |_, mem| mem.probe(pd, binding.key, va, 1, Access::REMOTE_READ).is_ok())
    };
    bench.world.step();
    assert!(!probe(&mut bench));
    assert!(bench.world.settle(1_000_000));
    assert_eq!(ends(&bench.world.drain(bench.cqs[1])), [(1, GOOD), (2, GOOD)]);
    assert!(probe(&mut bench));
}

#[test]
fn a_region_is_busy_while_a_window_is_bound_to_it() {
    let mut bench = bench();
    let binding = bench.binding(bench.window(WindowType::Type1), 0, 64);
    assert_eq!(bench.bind(0, binding), GOOD);
    let table = bench.world.table(1).clone();
    assert_eq!(table.deregister(bench.there.key), Err(remora_memory::Error::Busy));
    assert_eq!(bench.write(0, binding.key, 0), GOOD);
    let nothing = Binding { len: 0, ..bench.binding(binding.key, 0, 0) };
    assert_eq!(bench.bind(0, nothing), GOOD);
    table.deregister(bench.there.key).unwrap();
}

#[test]
fn windows_are_bound_by_unreliable_and_extended_queue_pairs_too() {
    let mut world = World::new(&Config::default());
    let settings = Settings::default();
    let cqs = [0, 1].map(|node| world.create_cq(node, 64));
    let uc = cqs.map(|cq| world.create_qp_of(Service::Uc, cq, cq, None, &settings).unwrap());
    world.connect(uc[0], uc[1], &settings);
    let here = world.register(0, 64, ALL);
    let there = world.register(1, 64, ALL | Access::MW_BIND);
    here.store(0, &[9; 8]);
    let window = world.table(1).alloc_window(world.pd(1), WindowType::Type2B).unwrap();
    let va = there.address;
    let len = 64;
    let binding = Binding { window, key: window.next(), region: there.key, va, len, access: REMOTE };
    world.post(uc[1], &request(1, Operation::BindWindow(binding), &[])).unwrap();
    assert!(world.settle(1000));
    assert_eq!(ends(&world.drain(cqs[1])), [(1, GOOD)]);
    let list = [here.sge(0, 8)];
    let remote = Remote { addr: there.address, rkey: binding.key };
    world.post(uc[0], &request(2, Operation::Write(remote), &list)).unwrap();
    assert!(world.settle(1000));
    assert_eq!(there.load(0, 8), [9; 8]);
    world.post(uc[1], &request(3, Operation::LocalInv(binding.key), &[])).unwrap();
    world.post(uc[1], &request(4, Operation::LocalInv(binding.key), &[])).unwrap();
    assert!(world.settle(1000));
    assert_eq!(ends(&world.drain(cqs[1])), [(3, GOOD), (4, Status::MwBind)]);
    assert_eq!(world.state(uc[1]), Some(State::Sqe));
}
