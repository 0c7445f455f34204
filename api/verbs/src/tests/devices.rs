//! All commands of the control path, executed on the four devices. A device in this process, one at a daemon,
//! one in a simulated network and one without a port reply alike.

use remora_fabric::rma::Start;
use remora_fabric::{Config as WorldConfig, World};
use remora_memory::{Access, Key, MemoryCommand, Pd, Range, Table};
use remora_nic::chain::LoopbackInit;
use remora_nic::kernel::{Invocation, KernelFacts, KernelInit, Shipped};
use remora_nic::prism::FreeListInit;
use remora_nic::rma::{Init, PortalFacts, PortalInit, RegionKey, Regions};
use remora_nic::{
    AddressVector, AsyncEvent, Bare, BellOwner, Command, CommandKind, CqFlags, Device, DeviceError, Fetching,
    HandedPart, Modify, Notify, PartNumber, QueuePairInit, Receives, Reply, Service, SrqInit, XrcSrq,
};
use remora_transport::state::State;
use remora_wire::frame::{Address, Endpoint, Peer, Route};
use remora_wire::rma::Nonce;
use remora_wire::{Psn, Qpn};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use strum::IntoEnumIterator;

use crate::engine_handle::EngineHandle;
use crate::nicd;
use crate::rma::{RmaOptions, Settings};

/// The commands that a daemon does not execute for programs.
const RESERVED: [CommandKind; 6] = [
    CommandKind::CreateGsiQp,
    CommandKind::SetTenant,
    CommandKind::Fail,
    CommandKind::AttachMulticast,
    CommandKind::DetachMulticast,
    CommandKind::QueryRma,
];

const LANES: u32 = 2;
/// Keys and regions of 1RMA, as in the default options.
const KEYS: usize = 1024;
const GROUP: Address = Address([0xff; 16]);

/// A device, and what differs between devices beside the control path.
struct Subject<'d> {
    device: &'d dyn Device,
    /// Hands the code of a kernel to the NIC.
    hand_code: &'d dyn Fn() -> PartNumber,
    /// A peer of the port.
    peer: Peer,
    endpoint: Endpoint,
    log: RefCell<Vec<(CommandKind, String)>>,
}

/// Returns a reply without the numbers that devices choose.
fn described(outcome: &Result<Reply, DeviceError>) -> String {
    match outcome {
        Err(_) => "refused".to_owned(),
        Ok(Reply::Number(_)) => "a number".to_owned(),
        Ok(Reply::Portal(_)) => "a portal".to_owned(),
        Ok(Reply::QueuePair(facts)) => {
            let Modify { state, access, path_mtu, retry_cnt, qkey, .. } = facts.attributes;
            format!("{state:?} {access:?} {path_mtu:?} {retry_cnt:?} {qkey:?} backlog {}", facts.backlog)
        }
        Ok(Reply::Kernels(kernels)) => {
            let facts = |KernelFacts { opcode, lanes, answers, requests, .. }: &KernelFacts| {
                format!("{opcode:?} {lanes} {answers} {requests}")
            };
            kernels.iter().map(facts).collect::<Vec<_>>().join(", ")
        }
        Ok(reply) => format!("{reply:?}"),
    }
}

impl<'d> Subject<'d> {
    fn new(
        device: &'d dyn Device,
        hand_code: &'d dyn Fn() -> PartNumber,
        peer: Peer,
        endpoint: Endpoint,
    ) -> Self {
        Subject { device, hand_code, peer, endpoint, log: RefCell::default() }
    }

    fn execute(&self, command: Command) -> Option<Reply> {
        let kind = command.kind();
        let outcome = self.device.execute(command);
        self.log.borrow_mut().push((kind, described(&outcome)));
        outcome.ok()
    }

    /// Executes a command that creates an object, and returns the number of the object, 0 if it was refused.
    fn create(&self, command: Command) -> u32 {
        match self.execute(command) {
            Some(Reply::Number(number)) => number as u32,
            Some(Reply::Portal(PortalFacts { number, .. })) => number,
            _ => 0,
        }
    }

    fn ring(&self, slots: u32) -> PartNumber {
        self.device.queue(slots).unwrap().1
    }

    fn address(&self) -> AddressVector {
        AddressVector::new(self.peer, Route::new(self.endpoint, self.endpoint))
    }

    fn queue_pair(&self, service: Service, pd: Pd, cq: u32) -> QueuePairInit {
        QueuePairInit {
            service,
            pd,
            send_ring: self.ring(16),
            receives: Receives::Own { ring: self.ring(16), max_sge: 1 },
            send_cq: cq,
            receive_cq: cq,
            signal_all: false,
            fetching: Fetching::Posted,
        }
    }

    /// Takes a queue pair that is connected to itself to RTS.
    fn bring_up(&self, qp: Qpn, service: Service) {
        let connected = service == Service::Rc;
        let init = Modify {
            state: Some(State::Init),
            access: connected.then_some(Access::REMOTE_WRITE),
            qkey: (!connected).then_some(7),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        let rtr = Modify {
            state: Some(State::Rtr),
            address: connected.then(|| self.address()),
            path_mtu: connected.then_some(1024),
            dest_qp: connected.then_some(qp),
            rq_psn: connected.then_some(Psn::new(3)),
            max_dest_rd_atomic: connected.then_some(1),
            min_rnr_timer: connected.then_some(1),
            ..Modify::default()
        };
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(Psn::new(3)),
            timeout: connected.then_some(14),
            retry_cnt: connected.then_some(7),
            rnr_retry: connected.then_some(7),
            max_rd_atomic: connected.then_some(1),
            ..Modify::default()
        };
        for change in [init, rtr, rts] {
            self.execute(Command::ModifyQp { qp, change: Box::new(change) });
        }
        self.execute(Command::QueryQp(qp));
    }

    /// Executes each kind of command, and commands that are refused.
    fn run(&self) {
        let domain = self.device.memory(MemoryCommand::AllocDomain).unwrap().domain().unwrap();
        let bytes = self.device.allocate(4096).unwrap();
        let range = [Range::at(&bytes, 1 << 30)];
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let register = MemoryCommand::Register { pd: domain, ranges: &range, access };
        let key = self.device.memory(register).unwrap().key().unwrap();
        let cq = self.run_completion_queue();
        self.run_shared_queues(domain, cq);
        self.run_queue_pairs(domain, cq);
        self.run_kernels(domain, key);
        self.run_offloads(domain, cq);
        self.execute(Command::DestroyCq { cq });
        self.execute(Command::DestroyCq { cq });
        self.execute(Command::Fail);
        self.device.memory(MemoryCommand::Deregister(key)).unwrap();
        self.device.memory(MemoryCommand::FreeDomain(domain)).unwrap();
    }

    fn run_completion_queue(&self) -> u32 {
        let cq = self.create(Command::CreateCq { ring: self.ring(16), flags: CqFlags::default() });
        self.execute(Command::ResizeCq { cq, ring: self.ring(64) });
        self.execute(Command::ResizeCq { cq, ring: PartNumber(12_345) });
        self.execute(Command::NotifyCq { cq, notify: Notify::Any });
        self.execute(Command::CountCompletions { cq });
        cq
    }

    fn run_shared_queues(&self, pd: Pd, cq: u32) {
        let domain = self.create(Command::AllocXrcDomain);
        for xrc in [None, Some(XrcSrq { domain, cq })] {
            let init = SrqInit { pd, ring: self.ring(16), max_sge: 1, xrc };
            let srq = Qpn::new(self.create(Command::CreateSrq(init)));
            self.execute(Command::ArmSrq { srq, limit: 4 });
            self.execute(Command::ArmSrq { srq, limit: 400 });
            self.execute(Command::QuerySrq(srq));
            self.execute(Command::ResizeSrq { srq, ring: self.ring(32) });
            if let Some(XrcSrq { domain, .. }) = xrc {
                self.execute(Command::FreeXrcDomain { domain });
                let target = Qpn::new(self.create(Command::CreateXrcTarget { domain }));
                self.execute(Command::DestroyQp(target));
            }
            self.execute(Command::DestroySrq(srq));
        }
        let free = self.create(Command::AllocXrcDomain);
        self.execute(Command::FreeXrcDomain { domain: free });
    }

    fn run_queue_pairs(&self, pd: Pd, cq: u32) {
        let init = self.queue_pair(Service::Rc, pd, cq);
        let qp = Qpn::new(self.create(Command::CreateQp(init)));
        self.device.ring(self.device.assign_bell(BellOwner::QueuePair(qp)).unwrap()).unwrap();
        self.bring_up(qp, Service::Rc);
        self.execute(Command::Enable { qp, count: 1 });
        self.execute(Command::SetTenant { qp, tenant: 0 });
        self.execute(Command::AttachKernel { qp, kernel: None });
        self.execute(Command::CheckReads { qp, kernel: None });
        let bytes = vec![0; 16];
        let invocation = Invocation { opcode: 1, tag: 1, params: true, left: 0, first: true, bytes };
        self.execute(Command::InvokeKernel { qp, invocation });
        self.execute(Command::DestroyCq { cq });
        self.execute(Command::DestroyQp(qp));
        self.execute(Command::DestroyQp(qp));
        self.execute(Command::QueryQp(qp));
        let init = self.queue_pair(Service::Ud, pd, cq);
        let qp = Qpn::new(self.create(Command::CreateQp(init)));
        self.bring_up(qp, Service::Ud);
        self.execute(Command::AttachMulticast { qp, group: GROUP });
        self.execute(Command::DetachMulticast { qp, group: GROUP });
        let handle = self.create(Command::CreateAddressHandle { pd, address: self.address() });
        self.execute(Command::DestroyAddressHandle { handle });
        self.execute(Command::DestroyQp(qp));
        let init = LoopbackInit {
            pd,
            send_ring: self.ring(16),
            receive_ring: self.ring(16),
            receive_max_sge: 1,
            send_cq: cq,
            receive_cq: cq,
            fetching: Fetching::Enabled,
        };
        let qp = Qpn::new(self.create(Command::CreateLoopback(init)));
        self.execute(Command::Enable { qp, count: 1 });
        self.execute(Command::QueryQp(qp));
        self.execute(Command::DestroyQp(qp));
        if let Some(Reply::Number(gsi)) =
            self.execute(Command::CreateGsiQp(self.queue_pair(Service::Ud, pd, cq)))
        {
            self.device.execute(Command::DestroyQp(Qpn::new(gsi as u32))).unwrap();
        }
    }

    fn run_kernels(&self, pd: Pd, key: Key) {
        let code = (self.hand_code)();
        let init =
            KernelInit { pd, opcode: Some(5), code, grants: vec![key], answers: 4, longest: 64, limit: 100 };
        let kernel = self.create(Command::DeployKernel(init));
        self.execute(Command::QueryKernels);
        self.execute(Command::ReplaceKernel { kernel, code: (self.hand_code)() });
        self.execute(Command::RemoveKernel { kernel });
        self.execute(Command::QueryKernels);
        self.execute(Command::RemoveKernel { kernel });
    }

    fn run_offloads(&self, pd: Pd, cq: u32) {
        let ring = self.ring(4);
        let init = FreeListInit { pd, ring, base: 1 << 30, size: 64, count: 4 };
        let list = match self.execute(Command::CreateFreeList(init)) {
            Some(Reply::Number(list)) => list,
            _ => 0,
        };
        self.execute(Command::QueryFreeList { list });
        self.execute(Command::FindBuffers { list, first: 0, words: 1 });
        self.execute(Command::DestroyFreeList { list });
        self.execute(Command::DestroyFreeList { list });
        for (slots, bulk_only) in [(4, false), (4, true), (8, false)] {
            let ring = self.ring(4);
            let init = PortalInit { ring, slots, pd, cq, pid: 1, incarnation: 2, bulk_only };
            let portal = self.create(Command::CreatePortal(init));
            self.execute(Command::QueryRma);
            self.execute(Command::DestroyPortal { portal });
        }
    }
}

/// The log of an engine of this process or of a daemon.
fn log_of(engine: &EngineHandle) -> Vec<(CommandKind, String)> {
    let code = || engine.hand_shipped(Shipped::Get, LANES).unwrap();
    let peer = engine.uplink().loop_back().unwrap();
    let subject = Subject::new(engine, &code, peer, engine.facts().endpoint);
    subject.run();
    engine.uplink().release_peer(peer);
    subject.log.into_inner()
}

fn lanes() -> HandedPart {
    Shipped::Get.lanes(LANES as usize).into()
}

fn log_of_local() -> Vec<(CommandKind, String)> {
    let context = crate::Device::shm().open().unwrap();
    let _rma = context.open_rma(&RmaOptions::default()).unwrap();
    log_of(&context.engine_handle(0).unwrap())
}

fn log_of_attached() -> Vec<(CommandKind, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.sock");
    let _daemon = nicd::Daemon::open(&crate::Device::shm(), &path, &nicd::Options::default()).unwrap();
    let context = crate::Device::nicd(&path).open().unwrap();
    log_of(&context.engine_handle(0).unwrap())
}

fn log_of_simulated() -> Vec<(CommandKind, String)> {
    let mut world = World::new(&WorldConfig::default());
    let start = Start { sender: 1, first_nonce: 1, regions: KEYS as u32 };
    world.enable_rma(0, &Settings::software(), start, remora_host::rma_cipher(KEYS));
    let (peer, endpoint) = (world.peer(0), world.endpoint(0));
    let device = world.device(0);
    let code = || device.hand(lanes()).unwrap();
    let subject = Subject::new(&device, &code, peer, endpoint);
    subject.run();
    subject.log.into_inner()
}

fn log_of_bare() -> Vec<(CommandKind, String)> {
    let table = Arc::new(Table::new(remora_memory::Config::default()).unwrap());
    let device = Bare::new(&table, remora_nic::Config::default());
    device.enter().enable_rma(Init {
        settings: Settings::software(),
        user: Weak::new(),
        regions: Arc::new(Regions::new(KEYS as u32)),
        cipher: remora_host::rma_cipher(KEYS),
        sender: 1,
        first_nonce: 1,
        failure_nonce: Nonce { sender: 1, counter: 1 },
        decoy: RegionKey::new([7; 16]).unwrap(),
        clock: None,
    });
    let code = || Device::hand(&device, lanes()).unwrap();
    let endpoint = Endpoint { address: Address([7; 16]), udp_port: 4791 };
    let subject = Subject::new(&device, &code, Peer(0), endpoint);
    subject.run();
    subject.log.into_inner()
}

fn assert_same(found: &[&(CommandKind, String)], expected: &[&(CommandKind, String)], device: &str) {
    let difference = found.iter().zip(expected).find(|(found, expected)| found != expected);
    assert_eq!(difference, None, "{device}");
    assert_eq!(found.len(), expected.len(), "{device}");
}

#[test]
fn every_command_has_the_same_reply_on_each_of_the_four_devices() {
    let local = log_of_local();
    let executed: BTreeSet<String> = local.iter().map(|(kind, _)| kind.to_string()).collect();
    let all: BTreeSet<String> = CommandKind::iter().map(|kind| kind.to_string()).collect();
    assert_eq!(executed, all);
    // No kernel runs on a queue pair without StRoM.
    for (kind, outcome) in local.iter().filter(|(kind, _)| *kind != CommandKind::InvokeKernel) {
        assert!(local.iter().any(|(other, done)| other == kind && done != "refused"), "{kind}: {outcome}");
    }
    for (device, log) in [("simulated", log_of_simulated()), ("bare", log_of_bare())] {
        assert_same(&log.iter().collect::<Vec<_>>(), &local.iter().collect::<Vec<_>>(), device);
    }
    let attached = log_of_attached();
    let is_free = |(kind, _): &&(CommandKind, String)| !RESERVED.contains(kind);
    let [ours, theirs] = [&local, &attached].map(|log| log.iter().filter(is_free).collect::<Vec<_>>());
    assert_same(&theirs, &ours, "attached");
    for (kind, outcome) in attached.iter().filter(|entry| !is_free(entry)) {
        assert_eq!(outcome, "refused", "{kind}");
    }
}

#[test]
fn events_of_a_program_come_to_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.sock");
    let _daemon = nicd::Daemon::open(&crate::Device::shm(), &path, &nicd::Options::default()).unwrap();
    let [first, second] = [(); 2].map(|()| crate::Device::nicd(&path).open().unwrap());
    let domain = first.alloc_pd().unwrap();
    let srq = domain.create_srq(&crate::SrqOptions { max_wr: 4, ..crate::SrqOptions::default() }).unwrap();
    srq.arm(2).unwrap();
    let begun = std::time::Instant::now();
    let event = loop {
        if let Some(event) = first.poll_event() {
            break event.event;
        }
        assert!(begun.elapsed() < super::LONG, "no event comes");
        std::thread::yield_now();
    };
    assert_eq!(event, AsyncEvent::SrqLimit(Qpn::new(srq.number())));
    assert_eq!(second.poll_event(), None);
}
