//! Creation of loopback queue pairs, and processing of executed WAITs and ENABLEs.

use remora_transport::state::Service;
use remora_wire::Qpn;

use super::LoopbackInit;
use crate::config::{NicError, QueuePairInit, Receives};
use crate::nic::Nic;
use crate::queue_pair::QueuePair;

impl Nic {
    /// Creates a queue pair that is connected to itself and ready to send (RTS), and returns its number.
    pub(crate) fn create_loopback(&mut self, init: &LoopbackInit) -> Result<Qpn, NicError> {
        let LoopbackInit { pd, send_ring, receive_ring, receive_max_sge, send_cq, receive_cq, fetching } =
            *init;
        let number = self.create_qp(&QueuePairInit {
            service: Service::Rc,
            pd,
            send_ring,
            receives: Receives::Own { ring: receive_ring, max_sge: receive_max_sge },
            send_cq,
            receive_cq,
            signal_all: false,
            fetching,
        })?;
        if let Some(qp) = self.index(number).and_then(|index| self.qps[index as usize].as_mut()) {
            qp.loop_back();
        }
        Ok(number)
    }

    /// Applies executed ENABLEs to their queues and schedules the queue pairs of released WAITs.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass_on(&mut self) {
        while let Some((number, count)) = self.shared.control_mut().enables.pop_front() {
            // A queue pair that was destroyed in the meantime is skipped.
            let _ = self.enable(number, count);
        }
        while let Some(index) = self.shared.control_mut().released.pop_front() {
            if let Some(qp) = &mut self.qps[index as usize] {
                qp.set_waiting(false);
                self.attend(index);
            }
        }
    }

    /// Removes a queue pair that is being destroyed from the list of waiting queue pairs.
    pub(crate) fn forget_waiting(&mut self, qp: &QueuePair, index: u32) {
        self.shared.control_mut().set_enabled(index, None);
        if qp.is_waiting() {
            self.shared.release_all_waiting();
            self.pass_on();
        }
    }
}
