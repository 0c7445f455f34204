//! The source of a queue pair's receive work requests: its own receive queue or a shared one.

use remora_memory::Reentered;
use remora_nic::{ReceiveQueue, ReceiveRequest};
use std::sync::Arc;

use crate::PostError;
use crate::srq::Shared;

/// The source of a queue pair's receive work requests.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The queue pair's own receive queue.
    Own(ReceiveQueue),
    /// A shared receive queue, kept alive by this reference.
    Shared(#[allow(dead_code, reason = "kept alive by being here")] Arc<Shared>),
    /// No source: the queue pair receives nothing (an XRC initiator).
    None,
}

impl Incoming {
    /// Posts a receive work request, and calls `ring` for the doorbell if the queue needs it. If `ring`
    /// fails, nothing is posted.
    #[inline]
    pub(crate) fn post(
        &mut self,
        request: &ReceiveRequest<'_>,
        ring: impl FnOnce() -> Result<(), Reentered>,
    ) -> Result<(), PostError> {
        let Incoming::Own(own) = self else { return Err(PostError::NoReceiveQueue) };
        own.push(request)?;
        own.publish();
        if own.must_ring()
            && let Err(reentered) = ring()
        {
            own.withdraw();
            return Err(reentered.into());
        }
        Ok(())
    }
}
