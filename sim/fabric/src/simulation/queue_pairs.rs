//! Connected queue pairs, and the flows whose work requests they carry.

use remora_nic::{ReceiveQueue, SendQueue};
use remora_wire::Qpn;
use std::collections::VecDeque;

/// Largest number of slots of a work request.
pub(super) const SLOTS_OF_REQUEST: u64 = 2;

/// Flows that share a kept queue pair: sender, receiver, true for READs, class and path. The UDP source port
/// is that of the first flow.
pub(crate) type Sharing = (u32, u32, bool, Option<u8>, Option<u32>);

/// An end of a connection.
pub(super) struct End {
    pub(super) host: u32,
    pub(super) number: Qpn,
    pub(super) send: SendQueue,
    pub(super) receive: ReceiveQueue,
}

/// Two connected queue pairs, and their flows.
pub(crate) struct QueuePairs {
    /// The end that posts, and its peer.
    pub(super) ends: [End; 2],
    /// Key in [`Flows::kept`](super::flows::Flows::kept), if the queue pairs are kept.
    pub(super) sharing: Option<Sharing>,
    /// Flows that have not ended, in the order of their work requests.
    pub(super) flows: VecDeque<u32>,
    /// Number of `flows` whose work requests are all posted.
    pub(super) posted: usize,
    /// Number of work requests that have not completed.
    pub(super) outstanding: u64,
}

impl QueuePairs {
    /// Adds a flow after all others. Returns the host that posts its work requests.
    pub(crate) fn add(&mut self, flow: u32) -> u32 {
        self.flows.push_back(flow);
        self.ends[0].host
    }

    /// Counts a completed work request.
    pub(crate) fn completed(&mut self) {
        self.outstanding -= 1;
    }

    /// Removes a flow that has ended.
    pub(crate) fn remove(&mut self, flow: u32) {
        // Work requests complete in order, so the flow is the first one.
        let first = self.flows.pop_front();
        debug_assert_eq!(first, Some(flow), "work requests complete in order");
        self.posted -= 1;
    }

    /// Removes all flows and returns them.
    pub(crate) fn take_flows(&mut self) -> VecDeque<u32> {
        std::mem::take(&mut self.flows)
    }

    pub(super) fn takes_another(&self) -> bool {
        self.outstanding < self.ends[0].send.ring().slots() / SLOTS_OF_REQUEST
    }
}
