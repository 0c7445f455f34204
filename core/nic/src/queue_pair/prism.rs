//! PRISM on a queue pair: its state from RTR on.

use remora_transport::timers::MAX_ACK_TIMEOUTS;

use super::QueuePair;
use crate::prism::Prism;

impl QueuePair {
    /// Enables PRISM on the way to RTR, because both peers agreed on it.
    pub(crate) fn enable_prism(&mut self) {
        if !self.machine.enable_prism() {
            return;
        }
        let parameters = &self.attributes.parameters;
        // The peer's timeout and retries are not known, but set-up gives both sides the same. The first
        // timeouts are shorter than the longest: the rest is for the path.
        let timeouts = MAX_ACK_TIMEOUTS * (u64::from(parameters.retry_cnt) + 1);
        let patience = parameters.timeout_ns.saturating_mul(timeouts);
        self.offloads.prism = Some(Box::new(Prism::new(parameters.max_dest_rd_atomic, patience)));
    }

    /// Returns true if the peer agreed on PRISM.
    #[inline(always)]
    pub(crate) fn has_prism(&self) -> bool {
        self.offloads.prism.is_some()
    }
}
