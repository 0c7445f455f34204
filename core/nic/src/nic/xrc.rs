//! Creation and destruction of XRC domains, and creation of XRC targets.

use remora_memory::Pd;
use remora_transport::state::Service;
use remora_wire::Qpn;

use super::Nic;
use crate::config::{NicError, QueuePairInit, Receives};
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::Fetching;
use crate::wqe::MAX_SLOTS;

/// The completion queue number of an XRC target, which has no work requests of its own.
const NO_CQ: u32 = u32::MAX;

impl Nic {
    /// Allocates an XRC domain and returns its number.
    ///
    /// # Errors
    /// `Full`: the configured maximum number of XRC domains exists.
    pub fn alloc_xrc_domain(&mut self) -> Result<u32, NicError> {
        self.shared.xrc_domains.alloc()
    }

    /// Frees an XRC domain.
    ///
    /// # Errors
    /// `Unknown`: there is no such XRC domain. `Busy`: a queue pair or shared receive queue belongs to the
    /// domain.
    pub fn free_xrc_domain(&mut self, domain: u32) -> Result<(), NicError> {
        self.shared.xrc_domains.free(domain)
    }

    /// Creates the target side of an extended reliable connection (XRC), in RESET, and returns its number. An
    /// XRC target has no queues of its own.
    ///
    /// # Errors
    /// `Full`: too many queue pairs exist, or memory is exhausted. `Unknown`: there is no such XRC domain.
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
