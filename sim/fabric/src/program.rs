//! The program's side of a simulated node. It fills work queues, rings doorbells and polls completions, as a
//! user of the verbs would.

use remora_memory::{Access, Bytes, Key, Range};
use remora_nic::chain::LoopbackInit;
use remora_nic::prism::{self, FreeListFacts, FreeListInit};
use remora_nic::wqe::{Bounds, SLOT};
use remora_nic::{
    AddressVector, Fetching, Modify, ModifyFault, NicError, Poller, PostError, ReceiveRequest, Ring, Service,
    Target, Word, WorkCompletion, WorkRequest, cqe::Cqe, stride, wqe, write_receive,
};
use remora_transport::state::State;
use remora_wire::{Psn, Qpn};

use crate::world::World;

/// A program's queues, by number.
#[derive(Default)]
pub(crate) struct Program {
    pub queue_pairs: Vec<Endpoint>,
    pub shared_queues: Vec<ReceiveQueue>,
    completion_queues: Vec<(u32, Poller)>,
    /// Address that the next region gets: regions have addresses of their own, the same in every run.
    next_address: u64,
}

/// One end of a queue pair, as the program sees it.
pub(crate) struct Endpoint {
    pub send: Ring,
    /// None: it takes from a shared receive queue, or receives nothing.
    pub receive: Option<ReceiveQueue>,
    pub sent: u64,
    pub bounds: Bounds,
}

/// A free list of PRISM, as its server sees it.
pub struct FreeList {
    /// Number of the node.
    pub node: usize,
    /// Its number, which ALLOCATE names.
    pub number: u64,
    posts: ReceiveQueue,
}

/// A queue of receive work requests, as the program sees it.
pub(crate) struct ReceiveQueue {
    pub ring: Ring,
    posted: u64,
    pub max_sge: u32,
}

impl ReceiveQueue {
    pub fn new(max_wr: u32, max_sge: u32) -> ReceiveQueue {
        ReceiveQueue { ring: ring(u64::from(max_wr) * stride(max_sge)), posted: 0, max_sge }
    }

    pub fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let stride = stride(self.max_sge);
        if request.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.posted + stride - self.ring.word(Word::Consumed) > self.ring.slots() {
            return Err(PostError::QueueFull);
        }
        let (ring, posted) = (&self.ring, self.posted);
        write_receive(request.id, request.sges, |at, slot| ring.store(posted + at as u64, slot));
        self.posted += stride;
        self.ring.set_word(Word::Produced, self.posted);
        Ok(())
    }
}

/// A queue pair of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// Node that owns it.
    pub node: usize,
    pub(crate) index: usize,
    /// Queue pair number.
    pub number: Qpn,
    /// Its transport service.
    pub service: Service,
}

/// A shared receive queue of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SharedQueue {
    /// Node that owns it.
    pub node: usize,
    pub(crate) index: usize,
    /// Number of the shared receive queue.
    pub number: Qpn,
}

/// A completion queue of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CompletionQueue {
    /// Node that owns it.
    pub node: usize,
    index: usize,
    /// Its number in the NIC.
    pub number: u32,
}

/// A registered region of a node.
#[derive(Clone, Debug)]
pub struct Region {
    /// Node that owns it.
    pub node: usize,
    /// Its local and remote key.
    pub key: Key,
    /// Address of its first byte.
    pub address: u64,
    /// Memory of the region.
    pub bytes: Bytes,
}

impl Region {
    /// The bytes `offset..offset + len`.
    pub fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes.read(offset, &mut bytes).expect("within the region");
        bytes
    }

    /// Changes the bytes from `offset` on.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        self.bytes.write(offset, bytes).expect("within the region");
    }

    /// An element of a list: `len` bytes from `offset` on.
    pub fn sge(&self, offset: usize, len: usize) -> remora_nic::Sge {
        remora_nic::Sge { addr: self.address + offset as u64, len: len as u32, lkey: self.key }
    }

    /// The address of `offset` for a peer.
    pub fn remote(&self, offset: usize) -> remora_nic::Remote {
        remora_nic::Remote { addr: self.address + offset as u64, rkey: self.key }
    }
}

/// How a queue pair is made and connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Slots of the send queue: a power of two.
    pub send_slots: u32,
    /// Receive work requests.
    pub receives: u32,
    /// Elements of a send work request.
    pub max_sge: u32,
    /// Elements of a receive work request.
    pub receive_max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// How far the send queue is fetched.
    pub fetching: Fetching,
    /// What the peer may do.
    pub access: Access,
    /// Path MTU, in bytes.
    pub mtu: u32,
    /// First PSN of the first side, and of the second.
    pub psn: [u32; 2],
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after RNR; 7 stands for no limit.
    pub rnr_retry: u8,
    /// READs and atomics outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics held as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// Q_Key of datagram queue pairs.
    pub qkey: u32,
    /// Both sides use IRN, with peers that remember so many packets ahead of the order. Without it the queue
    /// pairs go back N.
    pub irn: Option<u32>,
    /// PRISM is agreed on.
    pub prism: bool,
    /// StRoM is agreed on.
    pub strom: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            send_slots: 128,
            receives: 32,
            max_sge: 16,
            receive_max_sge: 4,
            max_inline: 256,
            signal_all: false,
            fetching: Fetching::Posted,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            mtu: 1024,
            psn: [0, 0],
            timeout: 6,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 8,
            max_dest_rd_atomic: 8,
            min_rnr_timer: 1,
            qkey: 0x1111_1111,
            irn: None,
            prism: false,
            strom: false,
        }
    }
}

/// Everything that a peer may be allowed.
pub const REMOTE: Access = Access::from_bits(0xe).expect("three rights");
/// Everything that a region may be allowed.
pub const ALL: Access = Access::from_bits(0xf).expect("four rights");

/// The three changes that bring a queue pair of this service from RESET to RTS.
pub fn changes(
    service: Service,
    address: AddressVector,
    to: Qpn,
    psn: [u32; 2],
    settings: &Settings,
) -> [Modify; 3] {
    let datagrams = service == Service::Ud;
    let responds = matches!(service, Service::Rc | Service::XrcTarget);
    let requests = matches!(service, Service::Rc | Service::XrcInitiator);
    let nothing = Modify::default();
    let init = Modify { state: Some(State::Init), pkey_index: Some(0), port: Some(1), ..nothing };
    let rtr = Modify { state: Some(State::Rtr), ..nothing };
    let rts = Modify { state: Some(State::Rts), sq_psn: Some(Psn::new(psn[0])), ..nothing };
    if datagrams {
        return [Modify { qkey: Some(settings.qkey), ..init }, rtr, rts];
    }
    let rtr = Modify {
        address: Some(address),
        path_mtu: Some(settings.mtu),
        dest_qp: Some(to),
        rq_psn: Some(Psn::new(psn[1])),
        max_dest_rd_atomic: responds.then_some(settings.max_dest_rd_atomic),
        min_rnr_timer: responds.then_some(settings.min_rnr_timer),
        irn: settings.irn,
        prism: Some(settings.prism),
        strom: Some(settings.strom),
        ..rtr
    };
    let rts = Modify {
        timeout: (requests || responds).then_some(settings.timeout),
        retry_cnt: requests.then_some(settings.retry_cnt),
        rnr_retry: requests.then_some(settings.rnr_retry),
        max_rd_atomic: requests.then_some(settings.max_rd_atomic),
        ..rts
    };
    [Modify { access: Some(settings.access), ..init }, rtr, rts]
}

pub(crate) fn ring(slots: u64) -> Ring {
    let slots = slots.next_power_of_two() as u32;
    Ring::new(Bytes::heap(Ring::size(slots)).expect("memory for a queue")).expect("a ring")
}

impl World {
    /// Registers `len` bytes of zeros on a node.
    ///
    /// # Panics
    /// If the node's table refuses; tests of that use [`World::table`].
    pub fn register(&mut self, node: usize, len: usize, access: Access) -> Region {
        self.register_bytes(node, Bytes::heap(len).expect("memory for a region"), access)
    }

    fn register_bytes(&mut self, node: usize, bytes: Bytes, access: Access) -> Region {
        let place = &mut self.nodes[node];
        place.program.next_address += 0x10_0000_0000;
        let address = place.program.next_address;
        let range = Range::at(&bytes, address);
        let key = place.table.register(place.pd, &[range], access).expect("space for a region");
        Region { node, key, address, bytes }
    }

    /// Ends a region.
    pub fn deregister(&mut self, region: &Region) {
        self.nodes[region.node].table.deregister(region.key).expect("a live region");
    }

    /// Makes a completion queue of `slots` entries.
    pub fn create_cq(&mut self, node: usize, slots: u32) -> CompletionQueue {
        let ring = ring(u64::from(slots));
        let number = self.with_nic(node, |nic, _| nic.create_cq(ring.clone())).expect("space for a queue");
        let queues = &mut self.nodes[node].program.completion_queues;
        queues.push((number, Poller::new(ring)));
        CompletionQueue { node, index: queues.len() - 1, number }
    }

    /// Makes a completion queue of `slots` entries that is counted and need not be polled.
    pub fn create_counted_cq(&mut self, node: usize, slots: u32) -> CompletionQueue {
        let ring = ring(u64::from(slots));
        let number = self
            .with_nic(node, |nic, _| nic.create_cq_ignoring_overrun(ring.clone()))
            .expect("space for a queue");
        let queues = &mut self.nodes[node].program.completion_queues;
        queues.push((number, Poller::new(ring)));
        CompletionQueue { node, index: queues.len() - 1, number }
    }

    /// Makes a loopback queue pair, ready to send.
    ///
    /// # Errors
    /// Those of [`remora_nic::Nic`].
    pub fn create_loopback(
        &mut self,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue,
        settings: &Settings,
    ) -> Result<QueuePair, NicError> {
        let node = send_cq.node;
        let send = ring(u64::from(settings.send_slots));
        let receive = ReceiveQueue::new(settings.receives, settings.receive_max_sge);
        let init = LoopbackInit {
            pd: self.nodes[node].pd,
            send_ring: send.clone(),
            receives: (receive.ring.clone(), receive.max_sge),
            send_cq: send_cq.number,
            receive_cq: receive_cq.number,
            fetching: settings.fetching,
        };
        let number = self.with_nic(node, |nic, _| nic.create_loopback(init))?;
        let bounds = Bounds { max_sge: settings.max_sge, max_inline: settings.max_inline };
        let ends = &mut self.nodes[node].program.queue_pairs;
        ends.push(Endpoint { send, receive: Some(receive), sent: 0, bounds });
        Ok(QueuePair { node, index: ends.len() - 1, number, service: Service::Rc })
    }

    /// Registers the memory of a send queue: a *code region*, whose work requests may be rewritten. Slot `n`
    /// is at `64 + 64 n`.
    ///
    /// # Panics
    /// If the node's table refuses.
    pub fn register_code(&mut self, qp: QueuePair, access: Access) -> Region {
        let bytes = self.end(qp).send.bytes().clone();
        self.register_bytes(qp.node, bytes, access)
    }

    /// Moves a completion queue to `slots` entries.
    ///
    /// # Errors
    /// [`NicError::TooSmall`] if what waits in it would not fit.
    pub fn resize_cq(&mut self, cq: CompletionQueue, slots: u32) -> Result<(), NicError> {
        let ring = ring(u64::from(slots));
        self.with_nic(cq.node, |nic, _| nic.resize_cq(cq.number, ring.clone()))?;
        self.nodes[cq.node].program.completion_queues[cq.index].1.moved(ring);
        Ok(())
    }

    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn create_qp(
        &mut self,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue,
        settings: &Settings,
    ) -> Result<QueuePair, NicError> {
        self.create_qp_of(Service::Rc, send_cq, receive_cq, None, settings)
    }

    /// Two connected queue pairs, each with one completion queue for both its work queues.
    pub fn pair(
        &mut self,
        left: usize,
        right: usize,
        settings: &Settings,
    ) -> [(QueuePair, CompletionQueue); 2] {
        let mut side = |node| {
            // Slots are free as soon as the NIC is done with them, so there may be more completions than
            // slots.
            let cq = self.create_cq(node, 2 * (settings.send_slots + settings.receives));
            (self.create_qp(cq, cq, settings).expect("space for a queue pair"), cq)
        };
        let ends = [side(left), side(right)];
        self.connect(ends[0].0, ends[1].0, settings);
        ends
    }

    /// Changes a queue pair.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn modify(&mut self, qp: QueuePair, change: &Modify) -> Result<(), ModifyFault> {
        self.with_nic(qp.node, |nic, _| nic.modify_qp(qp.number, change))
    }

    /// Brings two queue pairs from RESET to RTS, each other's peers.
    ///
    /// # Panics
    /// If the NIC refuses.
    pub fn connect(&mut self, left: QueuePair, right: QueuePair, settings: &Settings) {
        for (from, to, psn) in
            [(left, right, settings.psn), (right, left, [settings.psn[1], settings.psn[0]])]
        {
            for change in self.way_to_rts(from, to, psn, settings) {
                self.modify(from, &change).expect("a change that the table allows");
            }
        }
    }

    /// The three changes that bring `from` to RTS as the peer of `to`; `psn` is its own and its peer's first.
    pub fn way_to_rts(
        &self,
        from: QueuePair,
        to: QueuePair,
        psn: [u32; 2],
        settings: &Settings,
    ) -> [Modify; 3] {
        let address = AddressVector { peer: self.peer(to.node), route: self.route(from.node, to.node) };
        changes(from.service, address, to.number, psn, settings)
    }

    /// The state of a queue pair.
    pub fn state(&mut self, qp: QueuePair) -> Option<State> {
        self.with_nic(qp.node, |nic, _| nic.qp_state(qp.number))
    }

    /// Brings a queue pair to a state that takes no attributes: ERR, SQD or RESET.
    pub fn bring(&mut self, qp: QueuePair, state: State) {
        self.modify(qp, &Modify { state: Some(state), ..Modify::default() })
            .expect("a state that takes nothing");
    }

    pub(crate) fn end(&mut self, qp: QueuePair) -> &mut Endpoint {
        &mut self.nodes[qp.node].program.queue_pairs[qp.index]
    }

    /// Posts a work request and rings the doorbell.
    ///
    /// # Errors
    /// Those of `ibv_post_send`.
    pub fn post(&mut self, qp: QueuePair, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.post_quietly(qp, request)?;
        self.ring(qp);
        Ok(())
    }

    /// Posts a work request without ringing the doorbell.
    ///
    /// # Errors
    /// Those of `ibv_post_send`.
    pub fn post_quietly(&mut self, qp: QueuePair, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.put(qp, request, &Target::Peer)
    }

    /// Posts a work request of PRISM without ringing the doorbell.
    ///
    /// # Errors
    /// Those of `ibv_post_send`.
    pub fn post_prism(&mut self, qp: QueuePair, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let end = self.end(qp);
        let free = end.send.slots() - (end.sent - end.send.word(Word::Consumed));
        let (ring, sent) = (&end.send, end.sent);
        let store = |at: usize, slot: &[u8; SLOT]| ring.store(sent + at as u64, slot);
        end.sent += prism::write(request, &end.bounds, free as usize, store)? as u64;
        end.send.set_word(Word::Produced, end.sent);
        Ok(())
    }

    /// Makes a free list of `count` buffers of `size` bytes over a region, from `offset` on. Nothing is
    /// posted.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn create_free_list(
        &mut self,
        region: &Region,
        offset: usize,
        size: u32,
        count: u32,
    ) -> Result<FreeList, NicError> {
        let (node, pd) = (region.node, self.pd(region.node));
        let posts = ReceiveQueue::new(count, 1);
        let base = region.remote(offset).addr;
        let init = FreeListInit { pd, ring: posts.ring.clone(), base, size, count };
        let number = self.with_nic(node, |nic, _| nic.create_free_list(init))?;
        Ok(FreeList { node, number, posts })
    }

    /// Posts the buffer at an address to a free list.
    ///
    /// # Errors
    /// `QueueFull`.
    pub fn post_buffer(&mut self, list: &mut FreeList, addr: u64) -> Result<(), PostError> {
        let sge = remora_nic::Sge { addr, len: 0, lkey: Key::new(0) };
        list.posts.push(&ReceiveRequest { id: 0, sges: &[sge] })
    }

    /// The state of a free list's buffers.
    ///
    /// # Panics
    /// If the list does not exist.
    pub fn free_list_facts(&mut self, list: &FreeList) -> FreeListFacts {
        self.with_nic(list.node, |nic, _| nic.free_list_facts(list.number)).expect("a list that is there")
    }

    /// Which buffers of a free list are neither free nor resting, as [`remora_nic::Nic::free_list_out`]
    /// returns them.
    ///
    /// # Panics
    /// If the list does not exist.
    pub fn free_list_out(&mut self, list: &FreeList, first: u32, bits: &mut [u64]) {
        let asked = self.with_nic(list.node, |nic, _| nic.free_list_out(list.number, first, bits));
        asked.expect("a list that is there");
    }

    pub(crate) fn put(
        &mut self,
        qp: QueuePair,
        request: &WorkRequest<'_>,
        target: &Target,
    ) -> Result<(), PostError> {
        let end = self.end(qp);
        let free = end.send.slots() - (end.sent - end.send.word(Word::Consumed));
        let (ring, sent) = (&end.send, end.sent);
        let store = |at: usize, slot: &[u8; SLOT]| ring.store(sent + at as u64, slot);
        end.sent += wqe::write_to(request, target, &end.bounds, free as usize, store)? as u64;
        end.send.set_word(Word::Produced, end.sent);
        Ok(())
    }

    /// Puts a slot of any bytes into the send queue without ringing the doorbell.
    pub fn post_slot(&mut self, qp: QueuePair, slot: &[u8; SLOT]) {
        let end = self.end(qp);
        end.send.store(end.sent, slot);
        end.sent += 1;
        end.send.set_word(Word::Produced, end.sent);
    }

    /// Slots ever posted to a send queue.
    pub fn posted(&mut self, qp: QueuePair) -> u64 {
        self.end(qp).sent
    }

    /// The memory of a send queue: `RedN` changes the slots in it.
    pub fn send_ring(&mut self, qp: QueuePair) -> Ring {
        self.end(qp).send.clone()
    }

    /// The memory of the queue pair's own receive queue, if it has one.
    pub fn receive_ring(&mut self, qp: QueuePair) -> Option<Ring> {
        self.end(qp).receive.as_ref().map(|end| end.ring.clone())
    }

    /// Slots posted to the queue pair's own receive queue: 0 if it has none.
    pub fn receives_posted(&mut self, qp: QueuePair) -> u64 {
        self.end(qp).receive.as_ref().map_or(0, |end| end.posted)
    }

    /// Rings a queue pair's doorbell.
    pub fn ring(&mut self, qp: QueuePair) {
        self.with_nic(qp.node, |nic, _| nic.doorbell(qp.number));
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// Those of `ibv_post_recv`.
    ///
    /// # Panics
    /// If the queue pair has no receive queue of its own.
    pub fn post_receive(&mut self, qp: QueuePair, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let end = self.end(qp).receive.as_mut().expect("a receive queue of its own");
        end.push(request)?;
        if end.ring.word(Word::Error) != 0 {
            self.ring(qp);
        }
        Ok(())
    }

    /// The next entry of a completion queue; it is given back to the NIC at once.
    pub fn poll_entry(&mut self, cq: CompletionQueue) -> Option<Cqe> {
        let entry = self.poll_and_keep(cq)?;
        self.nodes[cq.node].program.completion_queues[cq.index].1.free();
        Some(entry)
    }

    /// The next entry of a completion queue, which the NIC may not reuse yet.
    pub fn poll_and_keep(&mut self, cq: CompletionQueue) -> Option<Cqe> {
        self.nodes[cq.node].program.completion_queues[cq.index].1.poll()
    }

    /// The next completion.
    pub fn poll(&mut self, cq: CompletionQueue) -> Option<WorkCompletion> {
        self.poll_entry(cq).map(|entry| entry.completion)
    }

    /// All completions that are there.
    pub fn drain(&mut self, cq: CompletionQueue) -> Vec<WorkCompletion> {
        std::iter::from_fn(|| self.poll(cq)).collect()
    }
}
