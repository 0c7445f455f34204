//! Two nodes and a connection between them: its set-up, honest work requests, and the checks of their
//! results.

use arbitrary::Arbitrary;
use remora_fabric::{CompletionQueue, Config, QueuePair, Settings, SharedQueue, World};
use remora_memory::{Access, Binding, Key, Owner, WindowType};
use remora_nic::{
    Command, CompletionKind, Destination, Fetching, Flags, Modify, Operation, Payload, ReceiveRequest,
    Remote, Service, Sge, Status, Target, Word, WorkRequest, XrcSrq, prism,
};
use remora_transport::Counters;
use remora_transport::congestion::Algorithm;
use remora_transport::state::State;
use remora_wire::{Qpn, Start};

use crate::node_memory::{self, FRAME, Name, NodeMemory, SLOT, SOURCE};

/// The minimum size of a receive: the 40 bytes before a datagram, and a small message.
const LEAST: usize = 64;
/// The number of steps after which a network that is not idle counts as endless.
const RESTLESS: usize = 200_000;

/// The service between the two nodes.
#[derive(Arbitrary, Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reliable connection with go-back-N.
    Rc,
    /// A reliable connection with IRN.
    Irn,
    /// A reliable connection with a shared receive queue.
    RcShared,
    /// An unreliable connection with its own receive queue.
    Uc,
    /// An unreliable connection with a shared receive queue.
    UcShared,
    /// Datagrams with their own receive queue.
    Ud,
    /// Datagrams with a shared receive queue.
    UdShared,
    /// An extended reliable connection.
    Xrc,
}

impl Kind {
    /// Returns the service of the left and of the right side.
    fn services(self) -> [Service; 2] {
        match self {
            Kind::Rc | Kind::Irn | Kind::RcShared => [Service::Rc; 2],
            Kind::Uc | Kind::UcShared => [Service::Uc; 2],
            Kind::Ud | Kind::UdShared => [Service::Ud; 2],
            Kind::Xrc => [Service::XrcInitiator, Service::XrcTarget],
        }
    }

    fn shared(self) -> bool {
        matches!(self, Kind::RcShared | Kind::UcShared | Kind::UdShared | Kind::Xrc)
    }

    /// Returns the upper three bits of the service's opcodes.
    pub fn opcodes(self) -> u8 {
        match self {
            Kind::Rc | Kind::Irn | Kind::RcShared => 0,
            Kind::Uc | Kind::UcShared => 0x20,
            Kind::Ud | Kind::UdShared => 0x60,
            Kind::Xrc => 0xa0,
        }
    }
}

/// The parameters of the simulated network.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Setup {
    shape: u8,
    mtu: u8,
    psn: [u8; 2],
    rights: u8,
    depth: u8,
}

/// Returns the configuration of a network that is as small as possible, because each input has its own.
pub fn small() -> Config {
    let nic = remora_nic::Config {
        max_qps: 14,
        max_cqs: 8,
        max_srqs: 4,
        max_xrc_domains: 2,
        max_address_handles: 4,
        max_events: 64,
        ..remora_nic::Config::default()
    };
    let memory = remora_memory::Config {
        max_regions: 15,
        max_pds: 4,
        max_windows: 4,
        max_ranges: 32,
        on_nic_bytes: 1024,
        key_seed: 0,
    };
    Config { nic, memory, ..Config::default() }
}

impl Setup {
    fn config(&self) -> Config {
        let start = [Start::Ip, Start::Bth, Start::Ethernet][usize::from(self.shape) % 3];
        Config { start, ipv6: self.shape & 0x40 != 0, ..small() }
    }

    /// Returns the rights that peers have.
    pub fn rights(&self) -> Access {
        // Most inputs have all rights, so that their requests are executed.
        if self.rights < 0x80 { remora_fabric::REMOTE } else { node_memory::rights(self.rights & 7) }
    }

    fn congestion(&self) -> Algorithm {
        match self.depth >> 5 {
            6 => Algorithm::Dcqcn,
            7 => Algorithm::Timely,
            _ => Algorithm::None,
        }
    }

    fn settings(&self, kind: Kind) -> Settings {
        let psn = self.psn.map(|psn| if psn < 0x80 { u32::from(psn) } else { 0x00ff_ff00 | u32::from(psn) });
        let depth = 1 + (self.depth & 7);
        Settings {
            send_slots: 64,
            receives: 16,
            access: self.rights(),
            mtu: [256, 512, 1024, 4096][usize::from(self.mtu) % 4],
            psn,
            timeout: 1,
            retry_cnt: 1,
            rnr_retry: 1,
            max_rd_atomic: depth,
            max_dest_rd_atomic: depth,
            fetching: Fetching::Posted,
            irn: (kind == Kind::Irn).then_some(128),
            ..Settings::default()
        }
    }
}

/// A node's end of the connection, and the record of its program's work requests.
pub struct Side {
    /// The queue pair of this side.
    pub qp: QueuePair,
    cq: CompletionQueue,
    /// The shared receive queue, if the queue pair uses one.
    pub srq: Option<SharedQueue>,
    handle: u32,
    /// True while the program is honest, so that each work request must complete once.
    orderly: bool,
    /// The posted sends; true for those that have completed.
    sends: Vec<bool>,
    /// The posted receives: their length, and true if completed.
    receives: Vec<(usize, bool)>,
}

impl Side {
    /// Returns the address handle for the peer.
    pub fn handle(&self) -> u32 {
        self.handle
    }
}

/// The network, its memory, and the connection.
pub struct Testbed {
    /// The simulated network.
    pub world: World,
    /// The memory of each node.
    pub memories: [NodeMemory; 2],
    /// The left and the right end of the connection.
    pub sides: [Side; 2],
    /// The key of each node's window.
    pub windows: [Key; 2],
    /// The service of the connection.
    pub kind: Kind,
    /// The settings of both queue pairs.
    pub settings: Settings,
    congestion: Algorithm,
    /// The counters of both NICs before the attack.
    before: [Counters; 2],
}

impl Testbed {
    /// Creates a connection in RTS with nothing posted. `prism` selects the extension. The `guarded` regions
    /// of each node are filled with secret bytes.
    pub fn new(kind: Kind, prism: bool, setup: &Setup, managed: bool, guarded: [&[Name]; 2]) -> Testbed {
        let mut world = World::new(&setup.config());
        let fetching = if managed { Fetching::Enabled } else { Fetching::Posted };
        let settings = Settings { fetching, prism, ..setup.settings(kind) };
        // The peer's queue is never managed, because no work request would enable it.
        let sides = [settings, Settings { fetching: Fetching::Posted, ..settings }];
        let sides = [0, 1].map(|node| side(&mut world, node, kind, &sides[node]));
        let mut memories = [0, 1].map(|node| NodeMemory::new(&world, node, guarded[node]));
        let type1 = setup.shape & 0x80 != 0;
        let windows = [0, 1].map(|node| window(&mut world, &memories[node], &sides[node], type1));
        memories.iter_mut().for_each(|memory| memory.allow_peers(setup.rights()));
        let congestion = setup.congestion();
        let mut testbed = Testbed {
            world,
            memories,
            sides,
            windows,
            kind,
            settings,
            congestion,
            before: Default::default(),
        };
        testbed.connect();
        testbed.world.tap();
        testbed
    }

    /// Takes both queue pairs from RESET to RTS.
    fn connect(&mut self) {
        let [left, right] = [self.sides[0].qp, self.sides[1].qp];
        if left.service == Service::Ud {
            self.world.bring_up(left, self.settings.psn[0], &self.settings);
            self.world.bring_up(right, self.settings.psn[1], &self.settings);
        } else {
            self.world.connect(left, right, &self.settings);
            let change = Modify { congestion: Some(self.congestion), ..Modify::default() };
            [left, right].iter().for_each(|qp| _ = self.world.modify(*qp, &change));
        }
    }

    /// Returns the target for a work request of `node`.
    fn target(&self, node: usize) -> Target {
        let own = &self.sides[node];
        let peer = &self.sides[1 - node];
        match own.qp.service {
            Service::Ud => {
                let to = Destination { qp: peer.qp.number, qkey: self.settings.qkey };
                Target::Datagram { handle: own.handle, to }
            }
            Service::XrcInitiator => Target::Srq(peer.srq.map_or(Qpn::new(0), |srq| srq.number)),
            _ => Target::Peer,
        }
    }

    /// Posts an honest work request with one element. Returns false if the queue did not take it.
    pub fn post(&mut self, node: usize, operation: Operation, sge: Sge) -> bool {
        let qp = self.sides[node].qp;
        let target = self.target(node);
        if qp.service == Service::XrcTarget {
            return false;
        }
        let id = self.sides[node].sends.len() as u64;
        let flags = Flags { signaled: true, ..Flags::default() };
        let list = [sge];
        let request = WorkRequest { id, operation, payload: Payload::Sges(&list), flags };
        let posted = self.world.post_to(qp, &request, &target).is_ok();
        if posted {
            self.sides[node].sends.push(false);
        }
        posted
    }

    /// Posts an honest PRISM operation to the right side. Returns false if the queue did not take it.
    pub fn post_prism(&mut self, operation: prism::Operation<'_>, redirect: Option<u64>) -> bool {
        let id = self.sides[0].sends.len() as u64;
        let flags = Flags { signaled: true, ..Flags::default() };
        let request = prism::WorkRequest { id, operation, conditional: true, redirect, result: None, flags };
        let qp = self.sides[0].qp;
        let posted = self.world.post_prism(qp, &request).is_ok();
        if posted {
            self.sides[0].sends.push(false);
            self.world.ring(qp);
        }
        posted
    }

    /// Posts an honest SEND of the first `len` bytes of the program's own region.
    pub fn send(&mut self, node: usize, len: usize) -> bool {
        let sge = self.memories[node].own(SOURCE, len);
        self.post(node, Operation::Send, sge)
    }

    /// Posts an honest READ of at most the bytes of a slot. Returns false without a free slot.
    pub fn read(&mut self, node: usize, remote: Remote, len: usize) -> bool {
        let sink = self.memories[node].sink(len.min(SLOT));
        sink.is_some_and(|sge| self.post(node, Operation::Read(remote), sge))
    }

    /// Posts a receive of `len` bytes, or of [`LEAST`] if that is more.
    pub fn receive(&mut self, node: usize, len: usize) {
        let len = len.clamp(LEAST, SLOT);
        let Some(sge) = self.memories[node].receive(len) else { return };
        let side = &mut self.sides[node];
        let list = [sge];
        let request = ReceiveRequest { id: side.receives.len() as u64, sges: &list };
        let posted = match side.srq {
            Some(srq) => self.world.post_shared(srq, &request),
            None if matches!(side.qp.service, Service::XrcInitiator) => return,
            None => self.world.post_receive(side.qp, &request),
        };
        if posted.is_ok() {
            side.receives.push((len, false));
        }
    }

    /// Makes the program of `node` hostile from now on.
    pub fn make_hostile(&mut self, node: usize) {
        self.sides[node].orderly = false;
        self.memories[node].allow_program();
    }

    /// Posts one more receive at the right side, for which there is always memory.
    fn spare_receive(&mut self) {
        let side = &self.sides[1];
        let list = [self.memories[1].spare()];
        let request = ReceiveRequest { id: 0, sges: &list };
        match side.srq {
            Some(srq) => self.world.post_shared(srq, &request),
            None => self.world.post_receive(side.qp, &request),
        }
        .expect("space for one more");
    }

    /// Takes the completions of a node and checks them against the posted work requests.
    pub fn drain(&mut self, node: usize) {
        let side = &mut self.sides[node];
        for done in self.world.drain(side.cq) {
            if !side.orderly {
                continue;
            }
            let id = done.id as usize;
            if (done.kind as u8) < 128 {
                let ended = std::mem::replace(&mut side.sends[id], true);
                assert!(!ended, "send {id} of node {node} ended twice");
            } else {
                let (len, ended) = &mut side.receives[id];
                assert!(!std::mem::replace(ended, true), "receive {id} of node {node} ended twice");
                // A WRITE may have more bytes than the receive work request that it completes.
                let fits = done.kind != CompletionKind::Receive || done.byte_len as usize <= *len;
                assert!(fits || done.status != Status::Success, "{done:?} of {len}");
            }
        }
    }

    /// Lets the network settle, and then checks memory, frames, states and completions.
    pub fn rest(&mut self) {
        assert!(self.world.settle(RESTLESS), "the simulated network does not settle");
        self.check();
        self.check_rights();
        for node in [0, 1] {
            self.drain(node);
            let side = &self.sides[node];
            let state = self.world.state(side.qp);
            let sane = matches!(state, Some(State::Rts | State::Err | State::Sqe));
            assert!(sane, "{state:?} of node {node}");
            if side.orderly {
                let left = side.sends.iter().position(|ended| !ended);
                assert_eq!(left, None, "send of node {node} that never ended, in {state:?}");
                let flushed = state != Some(State::Err) || side.srq.is_some();
                let left = side.receives.iter().position(|(_, ended)| !ended);
                assert!(flushed || left.is_none(), "receive {left:?} of node {node} was not flushed");
            }
            self.world.with_nic(node, |nic, _| while nic.event().is_some() {});
        }
    }

    /// Records the counters. Requests executed later need the rights of the connection.
    pub fn begin_attack(&mut self) {
        self.before = [0, 1].map(|node| self.world.counters(node));
    }

    /// Checks that no request was executed for which the connection lacks the right.
    fn check_rights(&self) {
        let access = self.settings.access;
        for node in [0, 1] {
            let now = self.world.counters(node);
            let before = &self.before[node];
            for (right, executed) in [
                (Access::REMOTE_WRITE, now.rx_write_requests - before.rx_write_requests),
                (Access::REMOTE_READ, now.rx_read_requests - before.rx_read_requests),
                (Access::REMOTE_ATOMIC, now.rx_atomic_requests - before.rx_atomic_requests),
            ] {
                assert!(
                    access.contains(right) || executed == 0,
                    "node {node} did {executed} without {right:?}"
                );
            }
        }
    }

    /// Checks memory and frames.
    pub fn check(&mut self) {
        self.memories.iter().for_each(NodeMemory::check);
        for sent in self.world.sent() {
            assert!(!node_memory::leaks(&sent.bytes), "node {} sent secret bytes", sent.from);
        }
    }

    /// Takes the queue pairs through RESET to RTS; after any fault they must work as new ones. Returns false
    /// if a completion queue has overflowed, which cannot be repaired.
    pub fn works_after_reset(&mut self) -> bool {
        if (0..2).any(|node| self.world.counters(node).cq_overrun > 0) {
            return false;
        }
        for node in [0, 1] {
            let qp = self.sides[node].qp;
            // The indices in a hostile program's queues must equal the posted counts.
            let posted = self.world.posted(qp);
            let receives = self.world.receives_posted(qp);
            self.world.send_ring(qp).set_word(Word::Produced, posted);
            if let Some(ring) = self.world.receive_ring(qp) {
                ring.set_word(Word::Produced, receives);
            }
            self.world.bring(qp, State::Reset);
            self.drain(node);
            let side = &mut self.sides[node];
            // Work requests that the reset has dropped have no completion.
            side.sends.clear();
            if side.srq.is_none() {
                side.receives.clear();
            }
        }
        self.connect();
        self.spare_receive();
        let _ = self.world.ask::<()>(0, Command::Enable { qp: self.sides[0].qp.number, count: u64::MAX });
        self.send(0, LEAST / 4);
        assert!(self.world.settle(RESTLESS), "the simulated network does not settle");
        let done = self.world.drain(self.sides[0].cq);
        assert!(done.len() == 1 && done[0].status == Status::Success, "{done:?} after RESET");
        let done = self.world.drain(self.sides[1].cq);
        assert!(done.len() == 1 && done[0].status == Status::Success, "{done:?} after RESET");
        true
    }

    /// Checks that a new pair in the same network can write and read.
    pub fn fresh_pair(&mut self) {
        let settings =
            Settings { access: remora_fabric::REMOTE, fetching: Fetching::Posted, ..self.settings };
        let [(left, cq), _] = self.world.pair(0, 1, &settings);
        let text: Vec<u8> = (0..600u32).map(|at| (at % 191) as u8).collect();
        self.memories[0].store(Name::Own, SOURCE, &text);
        self.memories[0].allow(Name::Own, 2048..2048 + text.len());
        self.memories[1].allow(Name::Open, 0..text.len());
        let remote = self.memories[1].open(0);
        let verbs = [(Operation::Write(remote), SOURCE), (Operation::Read(remote), 2048)];
        for (id, (operation, at)) in verbs.into_iter().enumerate() {
            let list = [self.memories[0].own(at, text.len())];
            let flags = Flags { signaled: true, ..Flags::default() };
            let request = WorkRequest { id: id as u64, operation, payload: Payload::Sges(&list), flags };
            self.world.post(left, &request).expect("an empty queue");
        }
        assert!(self.world.settle(RESTLESS), "the simulated network does not settle");
        let done = self.world.drain(cq);
        let good = done.len() == 2 && done.iter().all(|done| done.status == Status::Success);
        assert!(good, "{done:?} on a fresh pair");
        assert_eq!(self.memories[0].load(Name::Own, 2048, text.len()), text);
        self.check();
    }
}

fn side(world: &mut World, node: usize, kind: Kind, settings: &Settings) -> Side {
    let service = kind.services()[node];
    let cq = world.create_cq(node, 128);
    let xrc = (kind == Kind::Xrc && node == 1).then(|| {
        let domain = world.ask::<u32>(node, Command::AllocXrcDomain).expect("a domain");
        XrcSrq { domain, cq: cq.number }
    });
    let shared = kind.shared() && node == 1;
    let srq = shared.then(|| world.create_srq(node, 16, 2, xrc).expect("a shared receive queue"));
    let qp = match xrc {
        Some(xrc) => world.create_xrc_target(node, xrc.domain),
        None => world.create_qp_of(service, cq, cq, srq, settings),
    };
    let handle = match service {
        Service::Ud => world.create_address_handle(node, 1 - node).expect("an address handle"),
        _ => 0,
    };
    let qp = qp.expect("a queue pair");
    Side { qp, cq, srq, handle, orderly: true, sends: Vec::new(), receives: Vec::new() }
}

/// Creates a window on a part of the framed region: of type 1, or of type 2, which a peer may invalidate.
fn window(world: &mut World, memory: &NodeMemory, side: &Side, type1: bool) -> Key {
    let (node, pd) = (side.qp.node, world.pd(side.qp.node));
    let kind = if type1 { WindowType::Type1 } else { WindowType::Type2B };
    let window = world.table(node).alloc_window(pd, kind).expect("a window");
    let framed = memory.guarded(Name::Framed);
    let binding = Binding {
        window,
        key: window.next(),
        region: framed.key,
        va: framed.address + FRAME.start as u64,
        len: FRAME.len() as u64,
        access: remora_fabric::REMOTE,
    };
    let owner = Owner::new(0, side.qp.number.get());
    world.with_nic(node, |_, mem| mem.bind(pd, owner, &binding)).expect("a binding that is allowed");
    binding.key
}
