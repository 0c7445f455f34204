//! The verbs of a node's program: creates and connects queues, posts work requests and polls completions.

use remora_memory::{Access, Bytes, Range};
use remora_nic::chain::LoopbackInit;
use remora_nic::prism::{self, FreeListFacts, FreeListInit};
use remora_nic::wqe::SLOT;
use remora_nic::{
    AddressVector, Command, CommandError, CommandFault, CompletionPoller, CqFlags, Modify, ModifyFault,
    NicError, PostError, ReceiveRequest, Ring, Service, Target, WorkCompletion, WorkRequest, cqe::Cqe,
};
use remora_transport::state::State;

use crate::program::{
    CompletionQueue, Endpoint, FreeList, QueuePair, Region, Settings, changes, receive_queue, ring,
};
use crate::world::World;

impl World {
    /// Registers `len` bytes of zeros on a node.
    ///
    /// # Panics
    /// Panics if the node's table rejects the region. Tests of such errors use [`World::table`].
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

    /// Deregisters a region.
    pub fn deregister(&mut self, region: &Region) {
        self.nodes[region.node].table.deregister(region.key).expect("a live region");
    }

    /// Creates a completion queue of `slots` entries.
    pub fn create_cq(&mut self, node: usize, slots: u32) -> CompletionQueue {
        self.create_cq_with(node, slots, CqFlags::default())
    }

    /// Creates a completion queue of `slots` entries that may overrun: WAIT counts its completions, so it
    /// need not be polled.
    pub fn create_counted_cq(&mut self, node: usize, slots: u32) -> CompletionQueue {
        self.create_cq_with(node, slots, CqFlags { ignores_overrun: true, ..CqFlags::default() })
    }

    fn create_cq_with(&mut self, node: usize, slots: u32, flags: CqFlags) -> CompletionQueue {
        let ring = ring(slots);
        let handed = self.hand(node, ring.clone());
        let number = self.ask(node, Command::CreateCq { ring: handed, flags }).expect("space for a queue");
        let queues = &mut self.nodes[node].program.completion_queues;
        queues.push((number, CompletionPoller::new(ring)));
        CompletionQueue { node, index: queues.len() - 1, number }
    }

    /// Creates a loopback queue pair in RTS.
    ///
    /// # Errors
    /// Fails if the NIC rejects the queue pair.
    pub fn create_loopback(
        &mut self,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue,
        settings: &Settings,
    ) -> Result<QueuePair, NicError> {
        let node = send_cq.node;
        let send = settings.send_queue();
        let receive = settings.receive_queue();
        let init = LoopbackInit {
            pd: self.nodes[node].pd,
            send_ring: self.hand(node, send.ring().clone()),
            receive_ring: self.hand(node, receive.ring().clone()),
            receive_max_sge: receive.max_sge(),
            send_cq: send_cq.number,
            receive_cq: receive_cq.number,
            fetching: settings.fetching,
        };
        let number = self.ask(node, Command::CreateLoopback(init))?;
        let ends = &mut self.nodes[node].program.queue_pairs;
        ends.push(Endpoint { send, receive: Some(receive) });
        Ok(QueuePair { node, index: ends.len() - 1, number, service: Service::Rc })
    }

    /// Registers the memory of a send queue as a *code region*, in which work requests may be rewritten. Slot
    /// `n` is at offset `64 + 64 n`.
    ///
    /// # Panics
    /// Panics if the node's table rejects the region.
    pub fn register_code(&mut self, qp: QueuePair, access: Access) -> Region {
        let bytes = self.end(qp).send.ring().bytes().clone();
        self.register_bytes(qp.node, bytes, access)
    }

    /// Resizes a completion queue to `slots` entries.
    ///
    /// # Errors
    /// Fails with [`NicError::TooSmall`] if the entries in it would not fit.
    pub fn resize_cq(&mut self, cq: CompletionQueue, slots: u32) -> Result<(), NicError> {
        let ring = ring(slots);
        let handed = self.hand(cq.node, ring.clone());
        self.ask::<()>(cq.node, Command::ResizeCq { cq: cq.number, ring: handed })?;
        self.nodes[cq.node].program.completion_queues[cq.index].1.moved(ring);
        Ok(())
    }

    /// Creates an RC queue pair in RESET.
    ///
    /// # Errors
    /// Fails if the NIC rejects the queue pair.
    pub fn create_qp(
        &mut self,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue,
        settings: &Settings,
    ) -> Result<QueuePair, NicError> {
        self.create_qp_of(Service::Rc, send_cq, receive_cq, None, settings)
    }

    /// Creates two connected queue pairs, each with a completion queue for both of its work queues.
    pub fn pair(
        &mut self,
        left: usize,
        right: usize,
        settings: &Settings,
    ) -> [(QueuePair, CompletionQueue); 2] {
        let mut side = |node| {
            // Slots are reused as soon as the NIC has processed them, so there may be more completions than
            // slots.
            let cq = self.create_cq(node, 2 * (settings.send_slots + settings.receives));
            (self.create_qp(cq, cq, settings).expect("space for a queue pair"), cq)
        };
        let ends = [side(left), side(right)];
        self.connect(ends[0].0, ends[1].0, settings);
        ends
    }

    /// Modifies a queue pair.
    ///
    /// # Errors
    /// Fails if the NIC rejects the modification.
    pub fn modify(&mut self, qp: QueuePair, change: &Modify) -> Result<(), ModifyFault> {
        let command = Command::ModifyQp { qp: qp.number, change: Box::new(*change) };
        match self.execute(qp.node, command) {
            Ok(_) => Ok(()),
            Err(CommandError { fault: CommandFault::Modify(fault), .. }) => Err(fault),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects two queue pairs to each other and takes them from RESET to RTS.
    ///
    /// # Panics
    /// Panics if the NIC rejects a modification.
    pub fn connect(&mut self, left: QueuePair, right: QueuePair, settings: &Settings) {
        for (pair, peer, psn) in
            [(left, right, settings.psn), (right, left, [settings.psn[1], settings.psn[0]])]
        {
            for change in self.way_to_rts(pair, peer, psn, settings) {
                self.modify(pair, &change).expect("the state table allows this change");
            }
        }
    }

    /// Returns the three modifications that take `pair` to RTS, connected to `peer`. `psn` is the initial PSN
    /// of `pair`, then of `peer`.
    pub fn way_to_rts(
        &self,
        pair: QueuePair,
        peer: QueuePair,
        psn: [u32; 2],
        settings: &Settings,
    ) -> [Modify; 3] {
        let address = AddressVector::new(self.peer(peer.node), self.route(pair.node, peer.node));
        changes(pair.service, address, peer.number, psn, settings)
    }

    /// Returns the state of a queue pair, or `None` if it does not exist.
    pub fn state(&mut self, qp: QueuePair) -> Option<State> {
        self.with_nic(qp.node, |nic, _| nic.qp_state(qp.number))
    }

    /// Takes a queue pair to a state without attributes: ERR, SQD or RESET.
    pub fn bring(&mut self, qp: QueuePair, state: State) {
        self.modify(qp, &Modify { state: Some(state), ..Modify::default() })
            .expect("the state needs no attributes");
    }

    pub(crate) fn end(&mut self, qp: QueuePair) -> &mut Endpoint {
        &mut self.nodes[qp.node].program.queue_pairs[qp.index]
    }

    /// Posts a send work request and rings the doorbell.
    ///
    /// # Errors
    /// Fails like `ibv_post_send`.
    pub fn post(&mut self, qp: QueuePair, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.post_quietly(qp, request)?;
        self.ring(qp);
        Ok(())
    }

    /// Posts a send work request without ringing the doorbell.
    ///
    /// # Errors
    /// Fails like `ibv_post_send`.
    pub fn post_quietly(&mut self, qp: QueuePair, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.put(qp, request, &Target::Peer)
    }

    /// Posts a PRISM work request without ringing the doorbell.
    ///
    /// # Errors
    /// Fails like `ibv_post_send`.
    pub fn post_prism(&mut self, qp: QueuePair, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let send = &mut self.end(qp).send;
        send.push_prism(request)?;
        send.publish();
        Ok(())
    }

    /// Creates a free list of `count` buffers of `size` bytes in a region, from `offset` on. No buffer is
    /// posted yet.
    ///
    /// # Errors
    /// Fails if the NIC rejects the free list.
    pub fn create_free_list(
        &mut self,
        region: &Region,
        offset: usize,
        size: u32,
        count: u32,
    ) -> Result<FreeList, NicError> {
        let node = region.node;
        let pd = self.pd(region.node);
        let posts = receive_queue(count, 1);
        let base = region.remote(offset).addr;
        let ring = self.hand(node, posts.ring().clone());
        let init = FreeListInit { pd, ring, base, size, count };
        let number = self.ask(node, Command::CreateFreeList(init))?;
        Ok(FreeList { node, number, posts })
    }

    /// Posts the buffer at an address to a free list.
    ///
    /// # Errors
    /// Fails with `QueueFull` if all buffers are posted.
    pub fn post_buffer(&mut self, list: &mut FreeList, addr: u64) -> Result<(), PostError> {
        list.posts.post_buffer(addr)
    }

    /// Returns the state of a free list.
    ///
    /// # Panics
    /// Panics if the list does not exist.
    pub fn free_list_facts(&mut self, list: &FreeList) -> FreeListFacts {
        self.ask::<FreeListFacts>(list.node, Command::QueryFreeList { list: list.number })
            .expect("the free list exists")
    }

    pub(crate) fn put(
        &mut self,
        qp: QueuePair,
        request: &WorkRequest<'_>,
        target: &Target,
    ) -> Result<(), PostError> {
        let send = &mut self.end(qp).send;
        send.push_to(request, target)?;
        send.publish();
        Ok(())
    }

    /// Writes arbitrary bytes into the next slot of the send queue without ringing the doorbell.
    pub fn post_slot(&mut self, qp: QueuePair, slot: &[u8; SLOT]) {
        let send = &mut self.end(qp).send;
        send.overwrite(slot);
        send.publish();
    }

    /// Returns the number of slots that were ever posted to a send queue.
    pub fn posted(&mut self, qp: QueuePair) -> u64 {
        self.end(qp).send.produced()
    }

    /// Returns the ring of a send queue, in which RedN's programs change slots.
    pub fn send_ring(&mut self, qp: QueuePair) -> Ring {
        self.end(qp).send.ring().clone()
    }

    /// Returns the ring of the queue pair's own receive queue, or `None` if it has none.
    pub fn receive_ring(&mut self, qp: QueuePair) -> Option<Ring> {
        self.end(qp).receive.as_ref().map(|queue| queue.ring().clone())
    }

    /// Returns the number of slots that were ever posted to the queue pair's own receive queue; 0 if it has
    /// none.
    pub fn receives_posted(&mut self, qp: QueuePair) -> u64 {
        self.end(qp).receive.as_ref().map_or(0, |queue| queue.produced())
    }

    /// Rings a queue pair's doorbell.
    pub fn ring(&mut self, qp: QueuePair) {
        self.with_nic(qp.node, |nic, _| nic.doorbell(qp.number));
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// Fails like `ibv_post_recv`.
    ///
    /// # Panics
    /// Panics if the queue pair has no receive queue of its own.
    pub fn post_receive(&mut self, qp: QueuePair, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let queue = self.end(qp).receive.as_mut().expect("a receive queue of its own");
        queue.post(request)?;
        if queue.must_ring() {
            self.ring(qp);
        }
        Ok(())
    }

    /// Returns the next entry of a completion queue, and frees its place at once.
    pub fn poll_entry(&mut self, cq: CompletionQueue) -> Option<Cqe> {
        let entry = self.poll_and_keep(cq)?;
        self.nodes[cq.node].program.completion_queues[cq.index].1.free();
        Some(entry)
    }

    /// Returns the next entry of a completion queue, without freeing its place.
    pub fn poll_and_keep(&mut self, cq: CompletionQueue) -> Option<Cqe> {
        self.nodes[cq.node].program.completion_queues[cq.index].1.poll()
    }

    /// Returns the next completion.
    pub fn poll(&mut self, cq: CompletionQueue) -> Option<WorkCompletion> {
        self.poll_entry(cq).map(|entry| entry.completion)
    }

    /// Returns all available completions.
    pub fn drain(&mut self, cq: CompletionQueue) -> Vec<WorkCompletion> {
        std::iter::from_fn(|| self.poll(cq)).collect()
    }
}
