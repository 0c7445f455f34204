//! The engine that serves a queue: one of this process, or the daemon's.

use remora_host::Engine;
use remora_memory::Reentered;
use std::sync::Arc;

use crate::CreateError;
use crate::nicd::DaemonClient;

/// The engine of a queue.
#[derive(Clone, Debug)]
pub(crate) enum EngineHandle {
    /// An engine of this process.
    Own(Arc<Engine>),
    /// The daemon's engine.
    Nicd(Arc<DaemonClient>),
}

impl EngineHandle {
    /// Called after a poll found nothing. Drives the engine, if it belongs to this process.
    #[inline]
    pub(crate) fn poll(&self) -> Result<(), Reentered> {
        match self {
            EngineHandle::Own(engine) => engine.poll()?,
            EngineHandle::Nicd(_) => std::hint::spin_loop(),
        }
        Ok(())
    }

    /// Returns whether the calling thread runs a signal handler that interrupted a call on this engine.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            EngineHandle::Own(engine) => engine.has_caller(),
            EngineHandle::Nicd(_) => false,
        }
    }

    /// The engine, if it belongs to this process.
    pub(crate) fn engine(&self) -> Result<&Arc<Engine>, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine),
            EngineHandle::Nicd(_) => Err(CreateError::NotByDaemon),
        }
    }

    /// The engine's number.
    pub(crate) fn number(&self) -> usize {
        match self {
            EngineHandle::Own(engine) => engine.number(),
            EngineHandle::Nicd(_) => 0,
        }
    }
}
