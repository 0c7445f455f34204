//! The engine that serves a queue: one of this process, or the daemon's.

use remora_host::Engine;
use remora_memory::Reentered;
use remora_nic::{Command, FromReply};
use std::sync::Arc;

use crate::CreateError;
use crate::nicd::DaemonClient;
use crate::nicd::message::Request;

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

    /// Executes a command and returns the value that its reply carries.
    pub(crate) fn ask<T: FromReply>(&self, command: Command) -> Result<T, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.ask(command)?),
            EngineHandle::Nicd(daemon) => daemon.execute(command),
        }
    }

    /// Destroys an object by this command, because its handle is dropped. The daemon keeps objects that the
    /// program leaves to it.
    pub(crate) fn end(&self, command: Command) -> Result<(), CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.ask(command)?),
            EngineHandle::Nicd(daemon) => {
                daemon.release(&Request::Execute(command));
                Ok(())
            }
        }
    }

    /// Returns whether both are the same NIC.
    pub(crate) fn is(&self, other: &EngineHandle) -> bool {
        match (self, other) {
            (EngineHandle::Own(one), EngineHandle::Own(other)) => Arc::ptr_eq(one, other),
            (EngineHandle::Nicd(one), EngineHandle::Nicd(other)) => Arc::ptr_eq(one, other),
            _ => false,
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
