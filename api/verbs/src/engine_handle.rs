//! Where a queue lives: on an engine of this process, or on the daemon's.

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
    /// A poll has found nothing: drives the engine, if it is this process's.
    #[inline]
    pub fn poll(&self) -> Result<(), Reentered> {
        match self {
            EngineHandle::Own(engine) => engine.poll()?,
            EngineHandle::Nicd(_) => std::hint::spin_loop(),
        }
        Ok(())
    }

    /// Is the calling thread a signal handler's that interrupted a call on this engine?
    pub fn has_caller(&self) -> bool {
        match self {
            EngineHandle::Own(engine) => engine.has_caller(),
            EngineHandle::Nicd(_) => false,
        }
    }

    /// The engine, if it is this process's.
    pub fn engine(&self) -> Result<&Arc<Engine>, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine),
            EngineHandle::Nicd(_) => Err(CreateError::NotByDaemon),
        }
    }

    /// The engine's number.
    pub fn number(&self) -> usize {
        match self {
            EngineHandle::Own(engine) => engine.number(),
            EngineHandle::Nicd(_) => 0,
        }
    }
}
