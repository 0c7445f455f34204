//! Inspection of send queues, for tools that show a chain step by step.

use remora_transport::state::State;
use remora_wire::Qpn;

use crate::nic::Nic;
use crate::queue_pair::QueuePair;
use crate::wqe::SLOT;

/// The state of a send queue. Counts are slots since its creation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SendQueueFacts {
    /// Number of executed slots.
    pub taken: u64,
    /// Fetched slots. The NIC does not see changes to slots below this count.
    pub fetched: u64,
    /// Fetch limit, which follows from the posted and enabled counts.
    pub limit: u64,
    /// True while a WAIT blocks the queue.
    pub waiting: bool,
    /// State of the queue pair.
    pub state: State,
}

impl Nic {
    /// Sets the number of work requests that a loopback queue pair executes in one turn; the default is 64.
    /// With 1, and a budget of 1 in [`transmit`](Nic::transmit), the NIC executes one work request at a time.
    pub fn set_chain_turn(&mut self, works: usize) {
        self.shared.control_mut().turn = works.max(1);
    }

    /// Returns the state of a send queue; `None` if there is no such queue pair.
    pub fn send_queue_facts(&self, qp: Qpn) -> Option<SendQueueFacts> {
        let qp = self.look(qp)?;
        let (taken, fetched, limit) = qp.queues().send.counts();
        Some(SendQueueFacts { taken, fetched, limit, waiting: qp.is_waiting(), state: qp.state() })
    }

    /// Returns the NIC's copy of a fetched slot; `None` if the slot was not fetched or a later slot has
    /// replaced it.
    pub fn fetched_slot(&self, qp: Qpn, index: u64) -> Option<[u8; SLOT]> {
        self.look(qp)?.queues().send.copy(index)
    }

    fn look(&self, qp: Qpn) -> Option<&QueuePair> {
        self.qps[self.index(qp)? as usize].as_deref()
    }
}
