//! Connected queue pairs, and the work requests that flows post to them.

use std::collections::VecDeque;

use remora_memory::{Access, Key};
use remora_nic::wqe::Bounds;
use remora_nic::{
    AddressVector, Command, Fetching, Flags, Modify, Operation, Payload, QueuePairInit, ReceiveRequest,
    Receives, Remote, SendQueue, Service, Sge, WorkRequest,
};
use remora_transport::congestion::Algorithm;
use remora_wire::frame::{Class, Peer, Route};

use super::far_end::FarEnd;
use super::peer::PeerHost;
use super::queue_pairs::End;
use super::queue_pairs::{QueuePairs, SLOTS_OF_REQUEST};
use super::spec::{FlowSpec, Senders, Verb};
use super::{Simulation, host};
use crate::network::{Balancing, flow_hash};
use crate::program::{Settings, changes, receive_queue, ring};

/// Slots of a queue pair: as many as its flow needs, within this range. A kept queue pair has the maximum, so
/// that 32 work requests are posted at the same time; no network has more in flight.
const SLOTS: std::ops::RangeInclusive<u64> = 4..=64;

impl Simulation {
    /// Returns the index of the queue pairs for a flow that starts: kept ones, or new ones. Returns `None` if
    /// one of the hosts has no free queue pair.
    pub(super) fn queue_pairs_of(&mut self, flow: u32) -> Option<u32> {
        let spec = self.flows.specs[flow as usize].clone();
        let hosts = match spec.verb {
            Verb::Write | Verb::Send => [spec.source, spec.destination],
            Verb::Read => [spec.destination, spec.source],
        };
        let sharing = (spec.source, spec.destination, spec.verb == Verb::Read, spec.class, spec.path);
        let sharing = self.config.connection.kept.then_some(sharing);
        if let Some(kept) = sharing.and_then(|sharing| self.flows.kept.get(&sharing)) {
            return Some(*kept);
        }
        let slots = match sharing {
            Some(_) => *SLOTS.end(),
            None => spec.bytes.div_ceil(self.config.message.into()) * SLOTS_OF_REQUEST,
        };
        let slots = slots.clamp(*SLOTS.start(), *SLOTS.end()).next_power_of_two() as u32;
        let ends = self.make_ends(hosts, slots)?;
        self.connect(flow, &spec, &ends);
        let made = QueuePairs { ends, sharing, flows: VecDeque::new(), posted: 0, outstanding: 0 };
        let pair = self.flows.free.pop().unwrap_or_else(|| {
            self.flows.pairs.push(None);
            self.flows.pairs.len() as u32 - 1
        });
        self.flows.pairs[pair as usize] = Some(Box::new(made));
        self.flows.kept.extend(sharing.map(|sharing| (sharing, pair)));
        Some(pair)
    }

    /// Creates a queue pair at each of two hosts. Returns `None` if one of them has no free queue pair.
    fn make_ends(&mut self, hosts: [u32; 2], slots: u32) -> Option<[End; 2]> {
        let own = self.make_end(hosts[0], slots)?;
        let Some(peer) = self.make_end(hosts[1], slots) else {
            self.destroy_end(&own);
            return None;
        };
        Some([own, peer])
    }

    /// Destroys a connection.
    pub(super) fn destroy(&mut self, pair: u32) {
        let Some(pairs) = self.flows.pairs[pair as usize].take() else { return };
        pairs.ends.iter().for_each(|end| self.destroy_end(end));
        if let Some(sharing) = pairs.sharing {
            self.flows.kept.remove(&sharing);
        }
        self.flows.free.push(pair);
    }

    fn destroy_end(&mut self, end: &End) {
        let now = self.network.now().instant();
        let mut guard = self.hosts[end.host as usize].engine.enter();
        let (nic, mem) = guard.parts();
        // Nothing else refers to the queue pair, so this cannot fail.
        let _ = nic.execute(now, mem, Command::DestroyQp(end.number));
    }

    fn make_end(&mut self, host: u32, slots: u32) -> Option<End> {
        let send = SendQueue::new(ring(slots), Bounds { max_sge: 1, max_inline: 0 });
        let receive = receive_queue(slots, 1);
        let now = self.network.now().instant();
        let place = &mut self.hosts[host as usize];
        let mut guard = place.engine.enter();
        let (nic, mem) = guard.parts();
        let init = QueuePairInit {
            service: Service::Rc,
            pd: place.pd,
            send_ring: nic.hand(send.ring().clone()),
            receives: Receives::Own { ring: nic.hand(receive.ring().clone()), max_sge: receive.max_sge() },
            send_cq: place.cq,
            receive_cq: place.cq,
            signal_all: true,
            fetching: Fetching::Posted,
        };
        let number = nic.ask(now, mem, Command::CreateQp(init)).ok()?;
        drop(guard);
        Some(End { host, number, send, receive })
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
            let own = &ends[own];
            let peer = &ends[peer];
            let mut route = Route::new(host::endpoint(own.host), host::endpoint(peer.host));
            route.source.udp_port = port;
            let class = Class::new(spec.class.unwrap_or(self.config.data_class));
            let far = self.set_far_end(spec, own, peer, port);
            let peer_number = self.peer_of(own.host, peer.host, &far);
            let address = AddressVector { class, ..AddressVector::new(peer_number, route) };
            let now = self.network.now().instant();
            let mut guard = self.hosts[own.host as usize].engine.enter();
            let (nic, mem) = guard.parts();
            let mut modify = |change: Modify| {
                let command = Command::ModifyQp { qp: own.number, change: Box::new(change) };
                nic.execute(now, mem, command).expect("the state table allows this change");
            };
            for change in changes(Service::Rc, address, peer.number, [0, 0], &settings) {
                modify(Modify { window: spec.window, ..change });
            }
            if connection.congestion != Algorithm::None {
                modify(Modify { congestion: Some(connection.congestion), ..Modify::default() });
            }
        }
    }

    /// Sets the attributes of the packets from one end of a connection to the other.
    fn set_far_end(&mut self, spec: &FlowSpec, own: &End, peer: &End, port: u16) -> FarEnd {
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
        far
    }

    /// Returns the peer number for a queue pair of host `own`. If the flow has a given path and the host has
    /// several links, the first link on the path is used, because a path does not name one.
    fn peer_of(&self, own: u32, host: u32, far: &FarEnd) -> Peer {
        let is_chosen = self.network.uplinks(own).len() > 1 && !far.is_path;
        let hash = if is_chosen { self.network.hash_at_host(own, far.hash) } else { 0 };
        PeerHost { host, hash }.peer()
    }

    /// Returns for each host the queue pairs by which it sends data. Flows that share a queue pair count
    /// separately.
    pub fn senders(&self) -> Vec<Senders> {
        let mut senders = vec![Senders::default(); self.hosts.len()];
        for number in &self.flows.open {
            let spec = &self.flows.specs[*number as usize];
            let Some(running) = &self.flows.running[*number as usize] else { continue };
            let Some(pairs) = &self.flows.pairs[running.pair as usize] else { continue };
            let own = &pairs.ends[0];
            // The responder of a READ gets the next request only after the previous response has arrived.
            let is_asked = spec.verb == Verb::Read;
            let backlog = self.hosts[own.host as usize].engine.enter().backlog(own.number).unwrap_or(0);
            let of_host = &mut senders[spec.source as usize];
            of_host.all += 1;
            of_host.unsent += u64::from(is_asked || running.posted < spec.bytes || backlog > 0);
        }
        senders
    }

    /// Posts work requests of the flows while the send queue has space.
    pub(super) fn post(&mut self, pair: u32) {
        let message = u64::from(self.config.message);
        let Some(pairs) = &mut self.flows.pairs[pair as usize] else { return };
        while let Some(number) = pairs.flows.get(pairs.posted).copied()
            && pairs.takes_another()
        {
            let spec = &self.flows.specs[number as usize];
            let running = self.flows.running[number as usize].as_mut().expect("the flow has not ended");
            let len = message.min(spec.bytes - running.posted);
            let keys = [0, 1].map(|end: usize| self.hosts[pairs.ends[end].host as usize].key);
            running.posted += len;
            let tells = spec.tells_received && running.posted == spec.bytes;
            let posted = Posted { flow: number, verb: spec.verb, len: len as u32, tells };
            running.receives += put(&mut pairs.ends, keys, &posted);
            pairs.outstanding += 1;
            pairs.posted += usize::from(running.posted == spec.bytes);
        }
        let own = &mut pairs.ends[0];
        if own.send.publish() {
            self.hosts[own.host as usize].engine.enter().parts().0.doorbell(own.number);
        }
    }
}

/// A work request of a flow.
struct Posted {
    flow: u32,
    verb: Verb,
    len: u32,
    /// True if the destination must learn of the end of the work request, even of a WRITE.
    tells: bool,
}

/// Writes a work request into the send queue. `keys` are the keys of both hosts' regions. Returns the number
/// of receives that it consumes at the destination.
fn put([own, peer]: &mut [End; 2], keys: [Key; 2], posted: &Posted) -> u64 {
    let &Posted { flow, verb, len, tells } = posted;
    let list = [Sge { addr: host::ADDRESS, len, lkey: keys[0] }];
    let remote = Remote { addr: host::ADDRESS, rkey: keys[1] };
    let mut receive = |sges: &[Sge]| {
        let request = ReceiveRequest { id: u64::from(flow), sges };
        peer.receive.post(&request).expect("the receive queue has as many slots as the send queue");
    };
    let operation = match verb {
        Verb::Write if tells => {
            receive(&[]);
            Operation::WriteImm(remote, flow)
        }
        Verb::Write => Operation::Write(remote),
        Verb::Read => Operation::Read(remote),
        Verb::Send => {
            receive(&[Sge { lkey: keys[1], ..list[0] }]);
            Operation::Send
        }
    };
    let request = WorkRequest {
        id: u64::from(flow),
        operation,
        payload: Payload::Sges(&list),
        flags: Flags { signaled: true, ..Flags::default() },
    };
    own.send.push(&request).expect("the send queue has space for the posted requests");
    u64::from(verb == Verb::Send || tells && verb == Verb::Write)
}
