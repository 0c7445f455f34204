//! PRISM on a queue pair: it is enabled, it ends, and its timer drops answers.

use remora_transport::Instant;
use remora_transport::timers::MAX_ACK_TIMEOUTS;

use super::QueuePair;
use crate::machine::Machine;
use crate::prism::Prism;
use crate::shared::Shared;

impl QueuePair {
    /// On the way to RTR: PRISM is agreed with the peer.
    pub(crate) fn enable_prism(&mut self) {
        match &mut self.machine {
            Machine::Rc(connection) => connection.responder.enable_prism(),
            Machine::Irn(irn) => irn.responder.enable_prism(),
            _ => return,
        }
        let parameters = &self.attributes.parameters;
        // The peer's timeout and retries are not known, but set-up gives both sides the same. The first
        // timeouts are shorter than the longest: the rest is for the path.
        let timeouts = MAX_ACK_TIMEOUTS * (u64::from(parameters.retry_cnt) + 1);
        let patience = parameters.timeout_ns.saturating_mul(timeouts);
        self.prism = Some(Box::new(Prism::new(parameters.max_dest_rd_atomic, patience)));
    }

    /// Returns true if the peer agreed on PRISM.
    #[inline(always)]
    pub(crate) fn has_prism(&self) -> bool {
        self.prism.is_some()
    }

    /// The connection ends: its buffers go back to their free lists.
    pub(crate) fn end_prism(&mut self, shared: &mut Shared) {
        if let Some(mut prism) = self.prism.take() {
            prism.end(&mut shared.free_lists);
        }
    }

    /// Returns the time at which `expire_prism` is due.
    #[inline(always)]
    pub(crate) fn deadline_prism(&self) -> Instant {
        self.prism.as_ref().map_or(Instant::NEVER, |prism| prism.deadline())
    }

    /// The timer of PRISM: a peer that has been silent for long repeats no request.
    pub(crate) fn expire_prism(&mut self, now: Instant, shared: &mut Shared) {
        let QueuePair { prism: Some(prism), machine, .. } = self else { return };
        prism.expire(now, &mut shared.free_lists, || match machine {
            Machine::Rc(connection) => (connection.responder.forget(), true),
            // Where no timer runs nothing is sent again, until the peer sends a packet.
            Machine::Irn(irn) => (irn.responder.forget(), irn.responder.repeats()),
            _ => (true, false),
        });
    }
}
