//! The source of a queue pair's receives: a queue of its own or a shared one.

use remora_nic::ReceiveRequest;
use std::sync::Arc;

use super::queues::ReceiveSide;
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
    /// Posts a receive work request. True: the doorbell must ring.
    #[inline]
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<bool, crate::PostError> {
        let Incoming::Own(own) = self else { return Err(crate::PostError::NoReceiveQueue) };
        own.push(request)?;
        own.publish();
        Ok(own.must_ring())
    }
}
