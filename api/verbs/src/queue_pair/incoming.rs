//! The source of a queue pair's receives: a queue of its own or a shared one.

use remora_memory::Reentered;
use remora_nic::ReceiveRequest;
use std::sync::Arc;

use super::queues::ReceiveSide;
use crate::PostError;
use crate::srq::Shared;

/// The source of a queue pair's receives.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A receive queue of its own.
    Own(ReceiveSide),
    /// A shared receive queue, kept alive.
    Shared(#[allow(dead_code, reason = "kept alive by being here")] Arc<Shared>),
    /// It has no receives (an XRC initiator).
    None,
}

impl Incoming {
    /// Posts a receive work request, and rings the doorbell by `ring` if it must. Nothing is posted if that
    /// is refused.
    #[inline]
    pub fn post(
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
