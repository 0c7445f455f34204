//! After the set-up no verb allocates memory, neither in the program's thread nor in the NIC's threads.
#![allow(unsafe_code, reason = "an allocator that counts, and namespaces")]

mod veth;

use remora_verbs::kernel::{self, Get, HyperLogLog, Kernel, Lookup, Slot};
use remora_verbs::rma::{RegionKey, Rights, RmaOptions, Settings, Timers};
use remora_verbs::{
    Access, CompletionQueue, Context, DatagramQueuePair, Device, EMPTY, KernelOptions, MemoryRegion,
    MemoryWindow, Mode, ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, RemoteQueue, Srq, SrqOptions,
    Status, WindowType, XrcInitiator, XrcTarget, work,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use veth::Veth;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator performs each call.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Spans of time in which allocations are counted, and the rounds of each span.
const SPANS: usize = 4;
const ROUNDS: u64 = 240;

fn rounds([near, far]: [Context; 2]) {
    let near_domain = near.alloc_pd().unwrap();
    let far_domain = far.alloc_pd().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = near_domain.allocate(1 << 16, access).unwrap();
    let table = far_domain.allocate(1 << 16, access).unwrap();
    let mut cq = near.create_cq(64).unwrap();
    let mut far_cq = far.create_cq(64).unwrap();
    let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
    let (mut one, mut two) = QueuePair::connect_pair(one, two).unwrap();
    let mut round = || {
        let local = [memory.sge(0, 30_000)];
        let word = [memory.sge(0, 8)];
        two.post_recv(&ReceiveRequest { id: 1, sges: &[table.sge(0, 64)] }).unwrap();
        two.post_recv(&ReceiveRequest { id: 2, sges: &[] }).unwrap();
        let requests = [
            work::write(1, &local, table.remote(0)),
            work::read(2, &local, table.remote(0)),
            work::compare_swap(3, &word, table.remote(0), 0, 1),
            work::fetch_add(4, &word, table.remote(0), 1),
            work::send_inline(5, &[1; 64]),
            work::write_imm(6, &word, table.remote(64), 7),
            work::nop(7),
        ];
        for request in &requests {
            one.post_send(request).unwrap();
        }
        let mut done = [EMPTY; 8];
        let mut left = [requests.len(), 2];
        while left != [0, 0] {
            for (cq, left) in [&mut cq, &mut far_cq].into_iter().zip(&mut left) {
                let count = cq.poll(&mut done).unwrap();
                assert!(done[..count].iter().all(|done| done.status == Status::Success));
                *left -= count;
            }
        }
    };
    allocates_nothing(&mut round, ROUNDS);
}

fn allocates_nothing(round: &mut dyn FnMut(), count: u64) {
    (0..60).for_each(|_| round());
    let mut allocated = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (40..count).for_each(|_| round());
        std::thread::sleep(Duration::from_millis(20));
        (0..40).for_each(|_| round());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    // On a busy machine a thread of the NIC may start late, and allocate once in any of the spans.
    let spans: Vec<u64> = (0..SPANS).map(|_| allocated()).collect();
    assert!(spans.contains(&0), "{spans:?}");
    assert!(spans.iter().sum::<u64>() < count, "{spans:?}: more allocations than one for each thread");
}

/// The services other than RC: an unreliable connection, datagrams, an extended connection to a shared
/// receive queue, and a window.
struct Services {
    memory: MemoryRegion,
    table: MemoryRegion,
    cqs: [CompletionQueue; 2],
    unreliable: [QueuePair; 2],
    datagrams: [DatagramQueuePair; 2],
    remote_queue: RemoteQueue,
    initiator: XrcInitiator,
    _target: XrcTarget,
    srq: Srq,
    connected: [QueuePair; 2],
    window: MemoryWindow,
}

fn services(device: &Device) -> Services {
    let near = device.open().unwrap();
    let far = device.open().unwrap();
    let domains = [near.alloc_pd().unwrap(), far.alloc_pd().unwrap()];
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let [memory, table] = domains.each_ref().map(|domain| domain.allocate(1 << 16, access).unwrap());
    let cqs = [near.create_cq(64).unwrap(), far.create_cq(64).unwrap()];
    let options = QpOptions::default();
    let uc = |side: usize| domains[side].create_unreliable_qp(&cqs[side], &cqs[side], &options).unwrap();
    let (one, two) = QueuePair::connect_pair(uc(0), uc(1)).unwrap();
    let rc = |side: usize| domains[side].create_qp(&cqs[side], &cqs[side], &options).unwrap();
    let connected = QueuePair::connect_pair(rc(0), rc(1)).unwrap();
    let ud = |side: usize| domains[side].create_datagram_qp(&cqs[side], &cqs[side], &options).unwrap();
    let datagrams = [ud(0), ud(1)];
    let (remote_queue, _) = DatagramQueuePair::resolve_pair(&datagrams[0], &datagrams[1]).unwrap();
    let xrc = far.open_xrc_domain(0).unwrap();
    let srq = domains[1].create_xrc_srq(&xrc, &cqs[1], &SrqOptions::default()).unwrap();
    let initiator = domains[0].create_xrc_initiator(&cqs[0], &options).unwrap();
    let target = xrc.create_target(&options).unwrap();
    let (initiator, _target) = XrcInitiator::connect_pair(initiator, target).unwrap();
    let window = domains[1].allocate_window(WindowType::Type2B).unwrap();
    let unreliable = [one, two];
    let connected = [connected.0, connected.1];
    Services {
        memory,
        table,
        cqs,
        unreliable,
        datagrams,
        remote_queue,
        initiator,
        _target,
        srq,
        connected,
        window,
    }
}

impl Services {
    /// Waits until the given number of requests has completed at each side.
    fn wait(&mut self, mut left: [usize; 2]) {
        let mut done = [EMPTY; 8];
        while left != [0, 0] {
            for (cq, left) in self.cqs.iter_mut().zip(&mut left) {
                let count = cq.poll(&mut done).unwrap();
                assert!(done[..count].iter().all(|done| done.status == Status::Success), "{done:?}");
                *left -= count;
            }
        }
    }

    fn round(&mut self) {
        let local = [self.memory.sge(0, 3000)];
        let there = self.table.remote(0);
        let list = [self.table.sge(8192, 4096)];
        let receive = ReceiveRequest { id: 1, sges: &list };
        self.unreliable[1].post_recv(&receive).unwrap();
        self.unreliable[1].post_recv(&receive).unwrap();
        self.datagrams[1].post_recv(&receive).unwrap();
        self.srq.post_recv(&receive).unwrap();
        self.connected[1].post_recv(&receive).unwrap();
        self.unreliable[0].post_send(&work::send(1, &local)).unwrap();
        self.unreliable[0].post_send(&work::write_imm(2, &local, there, 3)).unwrap();
        self.datagrams[0].post_send_to(&work::send(3, &local), &self.remote_queue).unwrap();
        self.initiator.post_send(&work::send(4, &local), self.srq.number()).unwrap();
        self.wait([4, 4]);
        let bind = self.window.bind(5, &self.table, 0, 4096, Access::REMOTE_WRITE);
        self.connected[1].post_send(&bind).unwrap();
        self.wait([0, 1]);
        let through = self.window.remote(0);
        self.connected[0].post_send(&work::write(6, &local, through)).unwrap();
        self.connected[0].post_send(&work::send_inv(7, &[], self.window.rkey())).unwrap();
        self.wait([2, 1]);
    }
}

fn rounds_of_services(device: &Device) {
    let mut services = services(device);
    allocates_nothing(&mut || services.round(), ROUNDS / 3);
}

/// Performs requests to kernels, one with an answer of several packets, and WRITEs that pass a kernel.
fn rounds_of_kernels(device: &Device) {
    let near = device.open().unwrap();
    let far = device.open().unwrap();
    let near_domain = near.alloc_pd().unwrap();
    let far_domain = far.alloc_pd().unwrap();
    let [memory, table] = [&near_domain, &far_domain]
        .map(|domain| domain.allocate(1 << 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap());
    let mut cq = near.create_cq(64).unwrap();
    let far_cq = far.create_cq(64).unwrap();
    let strom = QpOptions { strom: true, path_mtu: 1024, ..QpOptions::default() };
    let one = near_domain.create_qp(&cq, &cq, &strom).unwrap();
    let two = far_domain.create_qp(&far_cq, &far_cq, &strom).unwrap();
    let (mut one, two) = QueuePair::connect_pair(one, two).unwrap();
    let slot = Slot { keys: [1, 2, 3], values: [table.remote(64).addr; 3], lens: [3000; 3] };
    table.write(0, &slot.emit()).unwrap();
    let deploy = |opcode, kernel: Box<dyn Kernel>| {
        let grants = [&table];
        let options = KernelOptions { opcode: Some(opcode), grants: &grants, ..KernelOptions::default() };
        far_domain.deploy_kernel(vec![kernel], &options).unwrap()
    };
    let _get = deploy(1, Box::<Get>::default());
    let count = deploy(2, Box::<HyperLogLog>::default());
    two.attach(Some(&count)).unwrap();
    let mut answers = near_domain.create_answers(4, 4096).unwrap();
    let lookup = Lookup { slot: table.remote(0).addr, key: 2 }.emit();
    let mut round = || {
        let local = [memory.sge(0, 5000)];
        one.post_send(&work::write(1, &local, table.remote(8192))).unwrap();
        let tags = [answers.ask(&mut one, 1, &lookup), answers.give(&mut one, 2, &local)];
        for tag in tags {
            let answer = answers.wait(&mut cq, tag.unwrap(), Duration::from_secs(60)).unwrap();
            assert_eq!(answer.status, kernel::Status::DONE);
        }
    };
    allocates_nothing(&mut round, ROUNDS / 3);
}

/// Performs encrypted reads, writes and rekeys of several commands each, alternately under two keys.
fn rounds_of_rma(device: &Device) {
    let near = device.open().unwrap();
    let far = device.open().unwrap();
    let pair = |context: &Context| {
        let cq = context.create_cq(4).unwrap();
        context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
    };
    // Over `shm` both sides need a link.
    let _link = QueuePair::connect_pair(pair(&near), pair(&far)).unwrap();
    // Timeouts so long that a thread that waits for a core is not taken for a dead peer.
    let second = 1_000_000_000;
    let settings = Settings {
        timers: Timers::Fixed,
        dispatch_timeout: 30 * second,
        timeout: 60 * second,
        max_server_timeout: 60 * second,
        ..Settings::software()
    };
    let options = RmaOptions { settings, ..RmaOptions::default() };
    let serving = far.open_rma(&options).unwrap();
    let rma = near.open_rma(&options).unwrap();
    let memory = |domain: &ProtectionDomain| domain.allocate(1 << 16, Access::LOCAL_WRITE).unwrap();
    let keys = [1, 2].map(|byte| RegionKey::new([byte; 16]).unwrap());
    let served = serving.expose(memory(&far.alloc_pd().unwrap()), Rights(7), Some(keys[0].clone())).unwrap();
    let domain = near.alloc_pd().unwrap();
    let local = rma.expose(memory(&domain), Rights::NONE, None).unwrap();
    let mut portal = rma.create_portal(&domain, 16).unwrap();
    let grants = keys.each_ref().map(|key| served.grant_under(&portal.identity(), key));
    let mut present = 0;
    let long = Duration::from_secs(60);
    let mut round = || {
        portal.write(&local, 0, &grants[present], 64, 9_000, long).unwrap();
        portal.read(&local, 0, &grants[present], 1, 30_000, long).unwrap();
        portal.settle(&local, 0, &grants[present], long).unwrap();
        local.memory().write(0, keys[1 - present].bytes()).unwrap();
        portal.rekey(&local, 0, &grants[present]).unwrap();
        portal.read(&local, 0, &grants[present], 0, 1, long).unwrap_err();
        present = 1 - present;
    };
    allocates_nothing(&mut round, ROUNDS / 3);
}

/// There is one test in this binary, so that nothing else runs in its process.
#[test]
fn a_verb_in_steady_state_allocates_nothing() {
    let udp = Device::udp("127.0.0.1:0").unwrap();
    for device in
        [Device::shm(), udp.clone(), Device::shm().mode(Mode::Dedicated), udp.clone().mode(Mode::Dedicated)]
    {
        rounds([device.open().unwrap(), device.open().unwrap()]);
    }
    // The services differ in the NIC, which is the same in every driving mode.
    for device in [Device::shm(), udp] {
        rounds_of_services(&device);
        rounds_of_kernels(&device);
        rounds_of_rma(&device);
    }
    let veth = remora_netns::require!(Veth::new());
    rounds([0, 1].map(|end| veth.open(end, &Device::xdp(veth.interface(end), None))));
}
