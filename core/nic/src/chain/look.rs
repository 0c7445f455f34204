//! The state of send queues, for tools that show a chain step by step.

use remora_transport::state::State;
use remora_wire::Qpn;

use crate::nic::Nic;
use crate::queue_pair::QueuePair;
use crate::wqe::SLOT;

/// Where a send queue stands. Counts are slots since its creation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SendQueueFacts {
    /// Executed.
    pub taken: u64,
    /// Copied by the NIC: what is changed below this is not seen.
    pub fetched: u64,
    /// Posted, or enabled.
    pub limit: u64,
    /// A WAIT holds it.
    pub waiting: bool,
    /// State of its queue pair.
    pub state: State,
}

impl Nic {
    /// Sets how many work requests a loopback queue pair executes in a turn; the default is 64. With 1, and a
    /// budget of 1 in [`transmit`](Nic::transmit), the NIC goes step by step.
    pub fn set_chain_turn(&mut self, works: usize) {
        self.shared.chain_turn = works.max(1);
    }

    /// Where a send queue stands.
    pub fn send_queue_facts(&self, qp: Qpn) -> Option<SendQueueFacts> {
        let qp = self.look(qp)?;
        let (taken, fetched, limit) = qp.send.counts();
        Some(SendQueueFacts { taken, fetched, limit, waiting: qp.waiting, state: qp.state })
    }

    /// The NIC's copy of a slot that it has fetched, until a later one takes its place.
    pub fn fetched_slot(&self, qp: Qpn, index: u64) -> Option<[u8; SLOT]> {
        self.look(qp)?.send.copy(index)
    }

    fn look(&self, qp: Qpn) -> Option<&QueuePair> {
        self.qps[self.index(qp)? as usize].as_deref()
    }
}
