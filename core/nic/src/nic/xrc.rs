//! Creation of XRC targets.

use remora_memory::Pd;
use remora_transport::state::Service;
use remora_wire::Qpn;

use super::Nic;
use crate::config::{NicError, QueuePairInit, Receives};
use crate::part_number::PartNumber;
use crate::queue_pair::Queues;
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::Fetching;
use crate::wqe::MAX_SLOTS;

/// The completion queue number of an XRC target, which has no work requests of its own.
const NO_CQ: u32 = u32::MAX;

impl Nic {
    /// Creates the target side of an extended reliable connection (XRC), in RESET, and returns its number.
    pub(crate) fn create_xrc_target(&mut self, domain: u32) -> Result<Qpn, NicError> {
        let buffer = ReceiveQueue::buffer(MAX_SLOTS as u64)?;
        let send_ring = ReceiveQueue::buffer(1)?.into_ring();
        self.shared.objects_mut().xrc_domains.join(domain)?;
        let init = QueuePairInit {
            service: Service::XrcTarget,
            pd: Pd::NONE,
            send_ring: PartNumber::NONE,
            receives: Receives::None,
            send_cq: NO_CQ,
            receive_cq: NO_CQ,
            signal_all: false,
            fetching: Fetching::Posted,
        };
        let queues = Queues { send: send_ring, receive: buffer, srq: None };
        self.place_qp(&init, queues, domain)
            .inspect_err(|_| self.shared.objects_mut().xrc_domains.leave(domain))
    }
}
