//! XRC domains and the targets of extended reliable connections, as the program makes them.

use remora_memory::Pd;
use remora_transport::state::Service;
use remora_wire::Qpn;

use super::Nic;
use crate::config::{NicError, QueuePairInit, Receives};
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::Fetching;
use crate::wqe::MAX_SLOTS;

/// No completion queue: nothing of a target's own ever completes.
const NO_CQ: u32 = u32::MAX;

impl Nic {
    /// A new XRC domain.
    ///
    /// # Errors
    /// `Full`.
    pub fn alloc_xrc_domain(&mut self) -> Result<u32, NicError> {
        self.shared.xrc_domains.alloc()
    }

    /// Ends an XRC domain.
    ///
    /// # Errors
    /// `Unknown`; `Busy` while a queue pair or shared receive queue is in it.
    pub fn free_xrc_domain(&mut self, domain: u32) -> Result<(), NicError> {
        self.shared.xrc_domains.free(domain)
    }

    /// Makes the target of extended reliable connections in RESET; its number. It has no queues of its own.
    ///
    /// # Errors
    /// `Full`, also if there is no memory; `Unknown` domain.
    pub fn create_xrc_target(&mut self, domain: u32) -> Result<Qpn, NicError> {
        let buffer = ReceiveQueue::buffer(MAX_SLOTS as u64)?;
        let send_ring = ReceiveQueue::buffer(1)?.into_ring();
        self.shared.xrc_domains.join(domain)?;
        let init = QueuePairInit {
            service: Service::XrcTarget,
            pd: Pd::NONE,
            send_ring,
            receives: Receives::None,
            send_cq: NO_CQ,
            receive_cq: NO_CQ,
            signal_all: false,
            fetching: Fetching::Posted,
        };
        self.place_qp(init, buffer, None, domain).inspect_err(|_| self.shared.xrc_domains.leave(domain))
    }
}
