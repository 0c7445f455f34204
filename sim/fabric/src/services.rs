//! The program's side of the transport services other than RC: their queue pairs, shared receive queues,
//! address handles and XRC domains.

use remora_nic::wqe::Bounds;
use remora_nic::{
    AddressVector, Command, NicError, PostError, QueuePairInit, ReceiveRequest, Receives, SendQueue, Service,
    SrqInit, Target, WorkRequest, XrcSrq,
};

use crate::program::{CompletionQueue, Endpoint, QueuePair, Settings, SharedQueue, receive_queue, ring};
use crate::world::World;

impl World {
    /// Creates a queue pair of any service in RESET. Receives come from `srq` if given, otherwise from a
    /// receive queue of its own.
    ///
    /// # Errors
    /// Fails if the NIC rejects the queue pair.
    pub fn create_qp_of(
        &mut self,
        service: Service,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue,
        srq: Option<SharedQueue>,
        settings: &Settings,
    ) -> Result<QueuePair, NicError> {
        let node = send_cq.node;
        let send = settings.send_queue();
        let own = settings.receive_queue();
        let receives = match srq {
            Some(srq) => Receives::Shared(srq.number),
            None if service == Service::XrcInitiator => Receives::None,
            None => Receives::Own { ring: self.hand(node, own.ring().clone()), max_sge: own.max_sge() },
        };
        let receive = matches!(receives, Receives::Own { .. }).then_some(own);
        let init = QueuePairInit {
            service,
            pd: self.nodes[node].pd,
            send_ring: self.hand(node, send.ring().clone()),
            receives,
            send_cq: send_cq.number,
            receive_cq: receive_cq.number,
            signal_all: settings.signal_all,
            fetching: settings.fetching,
        };
        let number = self.ask(node, Command::CreateQp(init))?;
        let ends = &mut self.nodes[node].program.queue_pairs;
        ends.push(Endpoint { send, receive });
        Ok(QueuePair { node, index: ends.len() - 1, number, service })
    }

    /// Creates a shared receive queue for at least `max_wr` work requests.
    ///
    /// # Errors
    /// Fails if the NIC rejects the queue.
    pub fn create_srq(
        &mut self,
        node: usize,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<XrcSrq>,
    ) -> Result<SharedQueue, NicError> {
        let queue = receive_queue(max_wr, max_sge);
        let ring = self.hand(node, queue.ring().clone());
        let init = SrqInit { pd: self.nodes[node].pd, ring, max_sge, xrc };
        let number = self.ask(node, Command::CreateSrq(init))?;
        let queues = &mut self.nodes[node].program.shared_queues;
        queues.push(queue);
        Ok(SharedQueue { node, index: queues.len() - 1, number })
    }

    /// Posts a receive work request to a shared receive queue.
    ///
    /// # Errors
    /// Fails like `ibv_post_srq_recv`.
    pub fn post_shared(&mut self, srq: SharedQueue, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.nodes[srq.node].program.shared_queues[srq.index].post(request)
    }

    /// Resizes a shared receive queue to `max_wr` work requests.
    ///
    /// # Errors
    /// Fails with [`NicError::TooSmall`] if the posted requests, or the limit of the queue, would not fit.
    pub fn resize_srq(&mut self, srq: SharedQueue, max_wr: u32) -> Result<(), NicError> {
        let max_sge = self.nodes[srq.node].program.shared_queues[srq.index].max_sge();
        let ring = receive_queue(max_wr, max_sge).ring().clone();
        let handed = self.hand(srq.node, ring.clone());
        self.ask::<()>(srq.node, Command::ResizeSrq { srq: srq.number, ring: handed })?;
        self.nodes[srq.node].program.shared_queues[srq.index].moved(ring);
        Ok(())
    }

    /// Creates an XRC target queue pair in RESET.
    ///
    /// # Errors
    /// Fails if the NIC rejects the queue pair.
    pub fn create_xrc_target(&mut self, node: usize, domain: u32) -> Result<QueuePair, NicError> {
        let number = self.ask(node, Command::CreateXrcTarget { domain })?;
        let ends = &mut self.nodes[node].program.queue_pairs;
        let send = SendQueue::new(ring(1), Bounds { max_sge: 0, max_inline: 0 }).closed();
        ends.push(Endpoint { send, receive: None });
        Ok(QueuePair { node, index: ends.len() - 1, number, service: Service::XrcTarget })
    }

    /// Posts a work request to a target other than the connected peer, and rings the doorbell.
    ///
    /// # Errors
    /// Fails like `ibv_post_send`.
    pub fn post_to(
        &mut self,
        qp: QueuePair,
        request: &WorkRequest<'_>,
        target: &Target,
    ) -> Result<(), PostError> {
        self.put(qp, request, target)?;
        self.ring(qp);
        Ok(())
    }

    /// Creates an address handle on node `sender` for node `receiver`.
    ///
    /// # Errors
    /// Fails if the NIC rejects the address handle.
    pub fn create_address_handle(&mut self, sender: usize, receiver: usize) -> Result<u32, NicError> {
        let address = AddressVector::new(self.peer(receiver), self.route(sender, receiver));
        let pd = self.pd(sender);
        self.ask::<u32>(sender, Command::CreateAddressHandle { pd, address })
    }

    /// Takes a queue pair that needs no peer from RESET to RTS.
    ///
    /// # Panics
    /// Panics if the NIC rejects a modification.
    pub fn bring_up(&mut self, qp: QueuePair, psn: u32, settings: &Settings) {
        for change in self.way_to_rts(qp, qp, [psn, 0], settings) {
            self.modify(qp, &change).expect("the state table allows this change");
        }
    }
}
