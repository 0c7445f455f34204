//! Two NICs back to back whose frames the test moves by hand, over a port with a buffer for each class.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use remora_memory::{Access, Bytes, Config as TableConfig, Key, Pd, Range, Table};
use remora_nic::cqe::Cqe;
use remora_nic::{
    AddressVector, Bare, Command, CompletionPoller, Config, CqFlags, Fetching, Flags, Modify, Operation,
    Payload, QueuePairInit, Receives, Remote, Ring, SendQueue, Service, Sge, WorkRequest, wqe,
};
use remora_transport::state::State;
use remora_transport::{Counters, Instant};
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, Lease, Peer, Route, Start};
use remora_wire::{Opcode, Psn, Qpn, ROCE_PORT, ipv4, udp};

/// The path MTU.
pub(crate) const MTU: usize = 1024;
const MEMORY: usize = 1 << 20;
const SLOTS: u32 = 64;

/// A frame that has left a NIC.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub class: Class,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn opcode(&self) -> Opcode {
        Opcode(self.bytes[ipv4::LEN + udp::LEN])
    }

    /// The queue pair that it is for.
    pub(crate) fn dest_qp(&self) -> u32 {
        let offset = ipv4::LEN + udp::LEN + 4;
        u32::from_be_bytes(self.bytes[offset..offset + 4].try_into().unwrap()) & 0x00ff_ffff
    }

    /// True if the packet requests an acknowledgement.
    pub(crate) fn ack_req(&self) -> bool {
        self.bytes[ipv4::LEN + udp::LEN + 8] & 0x80 != 0
    }

    /// Sequence number of the packet.
    pub(crate) fn psn(&self) -> u32 {
        let offset = ipv4::LEN + udp::LEN + 8;
        u32::from_be_bytes(self.bytes[offset..offset + 4].try_into().unwrap()) & 0x00ff_ffff
    }

    pub(crate) fn ecn(&self) -> u8 {
        ipv4::View::new(&self.bytes).unwrap().ecn()
    }

    /// A switch marks it (RFC 3168).
    pub(crate) fn mark(&mut self) {
        let header = ipv4::Repr { ecn: 3, ..ipv4::Repr::parse(&ipv4::View::new(&self.bytes).unwrap()) };
        header.emit(&mut self.bytes);
    }
}

/// A port whose transmit queues are the classes.
pub(crate) struct Port {
    pub frames: VecDeque<Frame>,
    /// Frames that each class still takes.
    pub space: [usize; Class::COUNT],
    lent: Option<Frame>,
}

impl Egress for Port {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    fn seals(&self, _: Peer) -> bool {
        false
    }

    fn lend(&mut self, _: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        if self.space[usize::from(class.number())] == 0 {
            return None;
        }
        let frame = self.lent.insert(Frame { class, bytes: vec![0; len] });
        Some(Lease { bytes: &mut frame.bytes, ip_id: 0 })
    }

    fn has_space_per_queue(&self) -> bool {
        true
    }

    fn queue(&self, _: Peer, class: Class) -> u8 {
        class.number()
    }

    fn stopped(&self) -> u64 {
        (0..Class::COUNT).filter(|class| self.space[*class] == 0).map(|class| 1 << class).sum()
    }

    fn commit(&mut self) {
        let frame = self.lent.take().unwrap();
        self.space[usize::from(frame.class.number())] -= 1;
        self.frames.push_back(frame);
    }

    fn flush(&mut self) {}
}

/// A queue pair's send queue.
struct End {
    number: Qpn,
    send: SendQueue,
}

/// A NIC, its port and its memory.
pub(crate) struct Host {
    pub engine: Bare,
    pub port: Port,
    pd: Pd,
    memory: Bytes,
    key: Key,
    cq: u32,
    poller: CompletionPoller,
    ends: Vec<End>,
}

fn ring(slots: u32) -> Ring {
    Ring::heap(slots).unwrap()
}

fn endpoint(host: usize) -> Endpoint {
    Endpoint { address: Ipv4Addr::new(10, 0, 0, host as u8 + 1).into(), udp_port: ROCE_PORT }
}

fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl Host {
    fn new(number: usize, config: &Config) -> Host {
        let table =
            Arc::new(Table::new(TableConfig { key_seed: number as u64, ..TableConfig::default() }).unwrap());
        let pd = table.alloc_pd().unwrap();
        let memory = Bytes::heap(MEMORY).unwrap();
        let key = table.register(pd, &[Range::whole(&memory)], rights()).unwrap();
        let endpoint = endpoint(number);
        let config = Config { checks_icrc: false, max_qps: 64, max_cqs: 4, endpoint, ..*config };
        let engine = Bare::new(&table, config);
        let completions = ring(64 * SLOTS);
        let cq = engine
            .ask(Command::CreateCq { ring: engine.hand(completions.clone()), flags: CqFlags::default() })
            .unwrap();
        let port = Port { frames: VecDeque::new(), space: [usize::MAX; Class::COUNT], lent: None };
        let poller = CompletionPoller::new(completions);
        Host { engine, port, pd, memory, key, cq, poller, ends: Vec::new() }
    }

    fn create(&mut self) -> Qpn {
        let send = ring(SLOTS);
        let init = QueuePairInit {
            service: Service::Rc,
            pd: self.pd,
            send_ring: self.engine.hand(send.clone()),
            receives: Receives::Own { ring: self.engine.hand(ring(1)), max_sge: 1 },
            send_cq: self.cq,
            receive_cq: self.cq,
            signal_all: true,
            fetching: Fetching::Posted,
        };
        let number = self.engine.ask(Command::CreateQp(init)).unwrap();
        let send = SendQueue::new(send, wqe::Bounds { max_sge: 1, max_inline: 0 });
        self.ends.push(End { number, send });
        number
    }

    /// The remote half of its memory.
    fn remote(&self) -> Remote {
        Remote { addr: self.memory.address() + (MEMORY / 2) as u64, rkey: self.key }
    }
}

/// Settings of a connection, beyond the attributes that every connection needs.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Link {
    pub class: Class,
    /// Attributes on the way to RTR and to RTS.
    pub rtr: Modify,
    pub rts: Modify,
}

/// Both hosts, and the time.
pub(crate) struct Bed {
    pub hosts: [Host; 2],
    pub now: u64,
}

impl Bed {
    pub(crate) fn new(config: &Config) -> Bed {
        Bed { hosts: [Host::new(0, config), Host::new(1, config)], now: 1 }
    }

    /// Connects a queue pair of each host. Returns their place among those of each.
    pub(crate) fn connect(&mut self, link: &Link) -> usize {
        let numbers = [0, 1].map(|host| self.hosts[host].create());
        for host in [0, 1] {
            let changes = changes(host, numbers[1 - host], link);
            let engine = &self.hosts[host].engine;
            for change in changes {
                let command = Command::ModifyQp { qp: numbers[host], change: Box::new(change) };
                engine.ask::<()>(command).unwrap();
            }
        }
        self.hosts[0].ends.len() - 1
    }

    /// The number of a host's queue pair.
    pub(crate) fn number(&self, host: usize, place: usize) -> Qpn {
        self.hosts[host].ends[place].number
    }

    pub(crate) fn modify(&mut self, host: usize, place: usize, change: &Modify) {
        let number = self.number(host, place);
        let command = Command::ModifyQp { qp: number, change: Box::new(*change) };
        self.hosts[host].engine.ask::<()>(command).unwrap();
    }

    pub(crate) fn write(&mut self, host: usize, place: usize, len: usize) {
        let remote = self.hosts[1 - host].remote();
        self.post(host, place, Operation::Write(remote), len);
    }

    pub(crate) fn read(&mut self, host: usize, place: usize, len: usize) {
        let remote = self.hosts[1 - host].remote();
        self.post(host, place, Operation::Read(remote), len);
    }

    fn post(&mut self, host: usize, place: usize, operation: Operation, len: usize) {
        let Host { engine, memory, key, ends, .. } = &mut self.hosts[host];
        let End { number, send } = &mut ends[place];
        let list = [Sge { addr: memory.address(), len: len as u32, lkey: *key }];
        let request =
            WorkRequest { id: 0, operation, payload: Payload::Sges(&list), flags: Flags::default() };
        send.push(&request).unwrap();
        send.publish();
        engine.enter().parts().0.doorbell(*number);
    }

    /// Lets a host send up to `budget` frames or a few more. Returns how many left.
    pub(crate) fn transmit(&mut self, host: usize, budget: usize) -> usize {
        let Host { engine, port, .. } = &mut self.hosts[host];
        let mut guard = engine.enter();
        let (nic, mem) = guard.parts();
        nic.transmit(Instant(self.now), mem, port, budget)
    }

    /// The frames that a host has sent and that nobody has taken.
    pub(crate) fn sent(&mut self, host: usize) -> Vec<Frame> {
        self.hosts[host].port.frames.drain(..).collect()
    }

    /// A frame arrives at a host.
    pub(crate) fn arrive(&mut self, host: usize, frame: &Frame) {
        let mut guard = self.hosts[host].engine.enter();
        let (nic, mem) = guard.parts();
        let bytes = &frame.bytes[..];
        let source = endpoint(1 - host);
        let frame =
            Ingress { bytes, start: Start::Ip, sealed: false, source, destination: None, origin: None };
        nic.receive(Instant(self.now), mem, &frame);
    }

    /// All frames of a host arrive at the other.
    pub(crate) fn deliver(&mut self, sender: usize) {
        for frame in self.sent(sender) {
            self.arrive(1 - sender, &frame);
        }
    }

    /// Both hosts send and receive until nothing is on the way.
    pub(crate) fn settle(&mut self) {
        while self.transmit(0, 64) + self.transmit(1, 64) > 0 {
            self.deliver(0);
            self.deliver(1);
        }
    }

    /// Returns the time of a host's next timer.
    pub(crate) fn deadline(&mut self, host: usize) -> Instant {
        self.hosts[host].engine.enter().parts().0.next_deadline()
    }

    /// The time is `now`: a host's timers run.
    pub(crate) fn expire(&mut self, host: usize, now: u64) {
        self.now = now;
        let time = Instant(now);
        self.hosts[host].engine.enter().parts().0.expire(time, time, 64);
    }

    /// Completions of a host.
    pub(crate) fn poll(&mut self, host: usize) -> Vec<Cqe> {
        let poller = &mut self.hosts[host].poller;
        let completions = std::iter::from_fn(|| poller.poll()).collect();
        poller.free();
        completions
    }

    pub(crate) fn counters(&self, host: usize) -> Counters {
        *self.hosts[host].engine.enter().parts().0.counters()
    }
}

fn changes(host: usize, dest_qp: Qpn, link: &Link) -> [Modify; 3] {
    let route = Route::new(endpoint(host), endpoint(1 - host));
    let change = |state| Modify { state: Some(state), ..Modify::default() };
    let init = Modify { access: Some(rights()), pkey_index: Some(0), port: Some(1), ..change(State::Init) };
    let rtr = Modify {
        state: Some(State::Rtr),
        address: Some(AddressVector { class: link.class, ..AddressVector::new(Peer(0), route) }),
        path_mtu: link.rtr.path_mtu.or(Some(MTU as u32)),
        dest_qp: Some(dest_qp),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: Some(12),
        ..link.rtr
    };
    let rts = Modify {
        state: Some(State::Rts),
        sq_psn: Some(Psn::new(0)),
        timeout: link.rts.timeout.or(Some(14)),
        retry_cnt: link.rts.retry_cnt.or(Some(7)),
        rnr_retry: Some(7),
        max_rd_atomic: Some(16),
        ..link.rts
    };
    [init, rtr, rts]
}
