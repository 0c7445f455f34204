//! Chains: work requests that wait for, enable and rewrite each other (RedN, §3).
//!
//! WAIT and ENABLE stand in any send queue. WAIT holds its queue until a completion queue has been written so many times; ENABLE lets
//! a queue of the same protection domain be fetched so far. What a chain changes in fetched work requests is not seen: a barrier
//! is an ENABLE behind a WAIT.
//!
//! A *loopback queue pair* is connected to itself: it works on the memory of its own protection domain, with all checks and
//! without packets. It alone has the calculations.

mod bytes;
mod calculate;
mod control;
mod execute;
mod look;

pub use calculate::Calculation;
pub(crate) use control::{Control, Start};
pub(crate) use execute::TURN;
pub use look::SendQueueFacts;

use remora_memory::Pd;
use remora_transport::Parameters;
use remora_transport::state::{Service, State};
use remora_wire::Qpn;

use crate::nic::{Nic, NicError, QueuePairInit, Receives};
use crate::ring::Ring;
use crate::send_queue::Fetching;

/// What a loopback queue pair is made of.
pub struct LoopbackInit {
    /// Its protection domain.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: Ring,
    /// Memory of the receive queue, and the elements of its work requests.
    pub receives: (Ring, u32),
    /// Completion queue of the send queue.
    pub send_cq: u32,
    /// Completion queue of the receive queue.
    pub receive_cq: u32,
    /// How far the send queue is fetched.
    pub fetching: Fetching,
}

impl Nic {
    /// Makes a queue pair that is connected to itself, ready to send; its number.
    ///
    /// # Errors
    /// `Full`, `Unknown`: as those of [`create_qp`](Nic::create_qp).
    pub fn create_loopback(&mut self, init: LoopbackInit) -> Result<Qpn, NicError> {
        let LoopbackInit { pd, send_ring, receives: (ring, max_sge), send_cq, receive_cq, fetching } = init;
        let number = self.create_qp(QueuePairInit {
            service: Service::Rc,
            pd,
            send_ring,
            receives: Receives::Own { ring, max_sge },
            send_cq,
            receive_cq,
            signal_all: false,
            fetching,
        })?;
        if let Some(qp) = self.index(number).and_then(|index| self.qps[index as usize].as_mut()) {
            qp.attributes.parameters = Parameters { max_rd_atomic: 1, ..Parameters::default() };
            qp.loopback = true;
            qp.state = State::Rts;
        }
        Ok(number)
    }
}
