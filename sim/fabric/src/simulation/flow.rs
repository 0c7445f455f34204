//! Flows: who sends how many bytes to whom, over queue pairs that are made for them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use remora_memory::Access;
use remora_nic::wqe::{self, Bounds, SLOT};
use remora_nic::{
    AddressVector, Fetching, Flags, Modify, Operation, Payload, QueuePairInit, ReceiveRequest, Receives,
    Remote, Ring, Service, Sge, Status, Target, Word, WorkRequest,
};
use remora_transport::congestion::Algorithm;
use remora_wire::Qpn;
use remora_wire::frame::{Class, Peer, Route};

use super::{Simulation, host};
use crate::engine::Picos;
use crate::network::{Balancing, FlowKey, flow_hash};
use crate::program::{ReceiveQueue, Settings, changes, ring};

/// How data moves.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE by the source.
    #[default]
    Write,
    /// RDMA READ by the destination.
    Read,
    /// SEND by the source.
    Send,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Host that has the data.
    pub source: u32,
    /// Host that gets it.
    pub destination: u32,
    /// Bytes; 0 counts as 1.
    pub bytes: u64,
    /// When it starts.
    pub start: Picos,
    /// How the data moves.
    pub verb: Verb,
    /// Class of its data; that of the configuration, if not given.
    pub class: Option<u8>,
    /// UDP source port of its data; chosen by its number, if not given.
    pub source_port: Option<u16>,
    /// What switches hash of its data and of its acknowledgements, where they hash as another program does;
    /// chosen by hosts and ports, if not given.
    pub keys: Option<[FlowKey; 2]>,
    /// Whoever runs the simulation hears of it when the destination has all bytes, too. The last bytes of a
    /// WRITE then bring immediate data, as programs do it. A READ's destination hears of its end anyway.
    pub tells_received: bool,
    /// Packets in flight at most; as the NIC is configured, if not given.
    pub window: Option<u32>,
    /// The path of its data, as [`crate::network::path`] packs it; chosen by hashes, if not given.
    pub path: Option<u32>,
}

/// Where a flow has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndAt {
    /// Its destination has all bytes: [`FlowSpec::tells_received`].
    Destination,
    /// The last acknowledgement is there, or the last data of a READ. Nothing of the flow follows.
    Poster,
}

/// A flow has ended at one of its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its number.
    pub flow: u32,
    /// Where.
    pub end: EndAt,
    /// When.
    pub at: Picos,
    /// How: all but success means that its queue pair failed.
    pub status: Status,
}

/// How queue pairs are made and connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// IRN, with peers that remember so many packets ahead of the order; without it the queue pairs go back
    /// N.
    pub irn: Option<u32>,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection { mtu: 1024, irn: None, congestion: Algorithm::None, timeout: 10, retry_cnt: 7 }
    }
}

/// Slots of a queue pair.
const SLOTS: u32 = 4;
/// Work requests of a flow that are posted at once.
const POSTED: u64 = 2;

/// How packets get to the far end of a queue pair.
#[derive(Copy, Clone, Debug, Default)]
pub struct FarEnd {
    /// By which switches choose among equal paths, or the path itself.
    pub hash: u32,
    /// `hash` is a path.
    pub is_path: bool,
    /// `hash` is the number of a key.
    pub is_key: bool,
    /// All bytes of its frames are kept.
    pub whole: bool,
}

/// By host and queue pair: how packets get there.
pub struct FarEnds {
    hosts: Vec<Vec<FarEnd>>,
    mask: u32,
}

impl FarEnds {
    /// For hosts with so many queue pairs each.
    pub fn new(hosts: usize, max_qps: u32) -> FarEnds {
        FarEnds { hosts: vec![Vec::new(); hosts], mask: max_qps.next_power_of_two() - 1 }
    }

    #[inline]
    pub fn get(&self, host: u32, number: Qpn) -> FarEnd {
        let index = (number.get() & self.mask) as usize;
        self.hosts[host as usize].get(index).copied().unwrap_or_default()
    }

    fn set(&mut self, host: u32, number: Qpn, far: FarEnd) {
        let index = (number.get() & self.mask) as usize;
        let own = &mut self.hosts[host as usize];
        if own.len() <= index {
            own.resize(index + 1, FarEnd::default());
        }
        own[index] = far;
    }
}

/// One end of a flow's queue pairs.
struct End {
    host: u32,
    number: Qpn,
    send: Ring,
    receive: ReceiveQueue,
    sent: u64,
}

/// A flow that runs.
struct Running {
    /// Who posts, and its peer.
    ends: [End; 2],
    posted: u64,
    done: u64,
    /// Receives that the destination is to complete.
    receives: u64,
}

/// All flows.
#[derive(Default)]
pub struct Flows {
    specs: Vec<FlowSpec>,
    running: Vec<Option<Box<Running>>>,
    /// By host: flows that have not started.
    waiting: Vec<BinaryHeap<Reverse<(Picos, u32)>>>,
    /// Those that run.
    open: BTreeSet<u32>,
    ended: VecDeque<FlowEnd>,
    unfinished: usize,
}

/// The queue pairs by which a host sends data of flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// Those of flows that have started and not ended.
    pub all: u64,
    /// Of these, those with data that was never sent.
    pub unsent: u64,
}

impl Flows {
    pub fn add(&mut self, spec: FlowSpec) -> u32 {
        let number = self.specs.len() as u32;
        let source = spec.source as usize;
        if self.waiting.len() <= source {
            self.waiting.resize_with(source + 1, BinaryHeap::new);
        }
        self.waiting[source].push(Reverse((spec.start, number)));
        self.specs.push(FlowSpec { bytes: spec.bytes.max(1), ..spec });
        self.running.push(None);
        self.unfinished += 1;
        number
    }

    pub fn running(&self) -> usize {
        self.unfinished
    }

    pub fn waits_for_start(&self) -> bool {
        self.waiting.iter().map(BinaryHeap::len).sum::<usize>() == self.unfinished
    }

    pub fn next_end(&mut self) -> Option<FlowEnd> {
        self.ended.pop_front()
    }

    pub fn progress(&self, number: u32) -> (&FlowSpec, u64) {
        let done = self.running[number as usize].as_ref().map_or(0, |running| running.done);
        (&self.specs[number as usize], done)
    }
}

impl Simulation {
    /// Starts the flows of a host whose time has come.
    pub(super) fn start_flows(&mut self, host: u32) {
        let now = self.network.now();
        while let Some(waiting) = self.flows.waiting.get_mut(host as usize) {
            let Some(Reverse((start, number))) = waiting.peek().copied() else { return };
            if start > now {
                return;
            }
            waiting.pop();
            self.start_flow(number);
        }
    }

    fn start_flow(&mut self, number: u32) {
        let spec = self.flows.specs[number as usize].clone();
        let (posts, peer) = match spec.verb {
            Verb::Write | Verb::Send => (spec.source, spec.destination),
            Verb::Read => (spec.destination, spec.source),
        };
        let Some(ends) = self.make_ends([posts, peer]) else {
            self.flows.unfinished -= 1;
            let at = self.network.now();
            let status = Status::LocalQpOperation;
            return self.flows.ended.push_back(FlowEnd { flow: number, end: EndAt::Poster, at, status });
        };
        self.connect(number, &spec, &ends);
        self.flows.running[number as usize] =
            Some(Box::new(Running { ends, posted: 0, done: 0, receives: 0 }));
        self.flows.open.insert(number);
        self.post(number);
        if posts != spec.source {
            self.pump(posts);
        }
    }

    /// The queue pairs by which each host sends data.
    pub fn senders(&self) -> Vec<Senders> {
        let mut senders = vec![Senders::default(); self.hosts.len()];
        for number in &self.flows.open {
            let spec = &self.flows.specs[*number as usize];
            let Some(running) = &self.flows.running[*number as usize] else { continue };
            let [own, _] = &running.ends;
            // Who answers READs is asked for the next piece only when the one before it has come.
            let is_asked = spec.verb == Verb::Read;
            let backlog = self.hosts[own.host as usize].engine.enter().backlog(own.number).unwrap_or(0);
            let of_host = &mut senders[spec.source as usize];
            of_host.all += 1;
            of_host.unsent += u64::from(is_asked || running.posted < spec.bytes || backlog > 0);
        }
        senders
    }

    /// A queue pair at each of two hosts. None: one of them has as many as there may be.
    fn make_ends(&mut self, hosts: [u32; 2]) -> Option<[End; 2]> {
        let own = self.make_end(hosts[0])?;
        let Some(peer) = self.make_end(hosts[1]) else {
            self.destroy(&own);
            return None;
        };
        Some([own, peer])
    }

    fn destroy(&mut self, end: &End) {
        let mut guard = self.hosts[end.host as usize].engine.enter();
        // It was made for one flow, and nobody else knows it.
        let _ = guard.parts().0.destroy_qp(end.number);
    }

    fn make_end(&mut self, host: u32) -> Option<End> {
        let send = ring(u64::from(SLOTS));
        let receive = ReceiveQueue::new(SLOTS, 1);
        let place = &mut self.hosts[host as usize];
        let init = QueuePairInit {
            service: Service::Rc,
            pd: place.pd,
            send_ring: send.clone(),
            receives: Receives::Own { ring: receive.ring.clone(), max_sge: receive.max_sge },
            send_cq: place.cq,
            receive_cq: place.cq,
            signal_all: true,
            fetching: Fetching::Posted,
        };
        let number = place.engine.enter().parts().0.create_qp(init).ok()?;
        Some(End { host, number, send, receive, sent: 0 })
    }

    fn connect(&mut self, number: u32, spec: &FlowSpec, ends: &[End; 2]) {
        let port = spec.source_port.unwrap_or(0xc000 | (number as u16 & 0x3fff));
        let connection = self.config.connection;
        let settings = Settings {
            mtu: connection.mtu,
            irn: connection.irn,
            timeout: connection.timeout,
            retry_cnt: connection.retry_cnt,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            ..Settings::default()
        };
        for [own, peer] in [[0, 1], [1, 0]] {
            let (own, peer) = (&ends[own], &ends[peer]);
            let mut route = Route::new(host::endpoint(own.host), host::endpoint(peer.host));
            route.source.udp_port = port;
            let class = Class::new(spec.class.unwrap_or(self.config.data_class));
            let address = AddressVector { peer: Peer(peer.host), route, class };
            self.set_far_end(spec, own, peer, port);
            let mut guard = self.hosts[own.host as usize].engine.enter();
            let nic = guard.parts().0;
            for change in changes(Service::Rc, address, peer.number, [0, 0], &settings) {
                let change = Modify { window: spec.window, ..change };
                nic.modify_qp(own.number, &change).expect("a change that the table allows");
            }
            if connection.congestion != Algorithm::None {
                let change = Modify { congestion: Some(connection.congestion), ..Modify::default() };
                nic.modify_qp(own.number, &change).expect("a control for a queue pair that is connected");
            }
        }
    }

    /// How the packets of one end of a flow get to the other one.
    fn set_far_end(&mut self, spec: &FlowSpec, own: &End, peer: &End, port: u16) {
        let is_data = own.host == spec.source;
        let mut far = FarEnd { whole: self.config.whole, ..FarEnd::default() };
        let ports = [port, remora_wire::ROCE_PORT];
        if let Some(path) = spec.path.filter(|_| is_data) {
            (far.hash, far.is_path) = (path, true);
        } else if matches!(self.config.network.balancing, Balancing::Keyed(_)) {
            let before = self.far_ends.get(peer.host, peer.number);
            let ports = u32::from(ports[0]) | u32::from(ports[1]) << 16;
            let [data, answers] = spec.keys.unwrap_or([[own.host, peer.host, ports]; 2]);
            let key = if is_data { data } else { answers };
            far.hash = self.network.set_key(before.is_key.then_some(before.hash), key);
            far.is_key = true;
        } else {
            far.hash = flow_hash(own.host, peer.host, ports[0], ports[1]);
        }
        self.far_ends.set(peer.host, peer.number, far);
    }

    /// Keeps work requests of a flow posted.
    fn post(&mut self, number: u32) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        let message = u64::from(self.config.message);
        let [own, peer] = &mut running.ends;
        let before = own.sent;
        while running.posted < spec.bytes && running.posted - running.done < POSTED * message {
            let len = message.min(spec.bytes - running.posted);
            let list =
                [Sge { addr: host::ADDRESS, len: len as u32, lkey: self.hosts[own.host as usize].key }];
            let remote = Remote { addr: host::ADDRESS, rkey: self.hosts[peer.host as usize].key };
            let is_last = running.posted + len == spec.bytes;
            let operation = match spec.verb {
                Verb::Write if is_last && spec.tells_received => {
                    let request = ReceiveRequest { id: u64::from(number), sges: &[] };
                    peer.receive.push(&request).expect("the first receive");
                    running.receives = 1;
                    Operation::WriteImm(remote, number)
                }
                Verb::Write => Operation::Write(remote),
                Verb::Read => Operation::Read(remote),
                Verb::Send => {
                    let sges = [Sge { lkey: remote.rkey, ..list[0] }];
                    let request = ReceiveRequest { id: u64::from(number), sges: &sges };
                    peer.receive.push(&request).expect("as many receives as sends");
                    running.receives += 1;
                    Operation::Send
                }
            };
            let request = WorkRequest {
                id: u64::from(number),
                operation,
                payload: Payload::Sges(&list),
                flags: Flags { signaled: true, ..Flags::default() },
            };
            put(own, &request);
            running.posted += len;
        }
        if own.sent > before {
            self.hosts[own.host as usize].engine.enter().parts().0.doorbell(own.number);
        }
    }

    /// The NIC of a flow's destination has completed a receive.
    pub(super) fn flow_received(&mut self, number: u32) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        running.receives -= 1;
        if spec.tells_received && running.receives == 0 && running.posted == spec.bytes {
            let (end, at, status) = (EndAt::Destination, self.network.now(), Status::Success);
            self.flows.ended.push_back(FlowEnd { flow: number, end, at, status });
        }
    }

    /// The NIC has completed a work request of a flow.
    pub(super) fn flow_completed(&mut self, number: u32, status: Status) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        let message = u64::from(self.config.message);
        running.done = spec.bytes.min(running.done + message);
        if status == Status::Success && running.done < spec.bytes {
            return self.post(number);
        }
        let running = self.flows.running[number as usize].take().expect("it was there");
        running.ends.iter().for_each(|end| self.destroy(end));
        self.flows.open.remove(&number);
        self.flows.unfinished -= 1;
        let (end, at) = (EndAt::Poster, self.network.now());
        self.flows.ended.push_back(FlowEnd { flow: number, end, at, status });
    }
}

fn put(end: &mut End, request: &WorkRequest<'_>) {
    let free = end.send.slots() - (end.sent - end.send.word(Word::Consumed));
    let (ring, sent) = (&end.send, end.sent);
    let store = |at: usize, slot: &[u8; SLOT]| ring.store(sent + at as u64, slot);
    let bounds = Bounds { max_sge: 1, max_inline: 0 };
    let slots = wqe::write_to(request, &Target::Peer, &bounds, free as usize, store);
    end.sent += slots.expect("space for as many as are kept posted") as u64;
    end.send.set_word(Word::Produced, end.sent);
}
