//! The lock of a NIC's queues, and values that it guards. Several threads may thus post to one queue pair and
//! poll one completion queue without a lock in addition to it.

use remora_host::Engine;
use remora_memory::{Biased, Reentered, Table};
use remora_nic::{Command, Device, FromReply};
use remora_wire::Qpn;
use std::cell::UnsafeCell;
use std::sync::Arc;

use crate::CreateError;
use crate::engine_handle::EngineHandle;
use crate::nicd::DaemonClient;

/// An engine and the lock of its queues: the engine's own, or one of this process for a daemon's engine.
#[derive(Clone, Debug)]
pub(super) enum Locked {
    Own { handle: EngineHandle, engine: Arc<Engine> },
    Nicd { handle: EngineHandle, daemon: Arc<DaemonClient>, lock: Arc<Biased<()>> },
}

/// The queues of an engine whose lock the calling thread holds.
pub(super) enum Inside<'a, 'e> {
    Own(&'a mut remora_host::Inside<'e>),
    Nicd { daemon: &'a DaemonClient, lock: &'a Biased<()> },
}

impl Locked {
    /// Wraps an engine of this process.
    pub(crate) fn own(engine: &Arc<Engine>) -> Locked {
        Locked::Own { handle: EngineHandle::Own(Arc::clone(engine)), engine: Arc::clone(engine) }
    }

    /// Wraps the engine of a daemon.
    ///
    /// # Errors
    /// The system refuses the memory of the lock.
    pub(crate) fn nicd(daemon: Arc<DaemonClient>) -> Result<Locked, remora_memory::Error> {
        // The lock needs a table, which stays empty: the daemon has the regions.
        let table = Arc::new(Table::new(remora_memory::Config::default())?);
        let lock = Arc::new(Biased::new(&table, ()));
        Ok(Locked::Nicd { handle: EngineHandle::Nicd(Arc::clone(&daemon)), daemon, lock })
    }

    /// The engine.
    #[inline]
    pub(crate) fn handle(&self) -> &EngineHandle {
        match self {
            Locked::Own { handle, .. } | Locked::Nicd { handle, .. } => handle,
        }
    }

    /// Returns whether the calling thread runs a signal handler that interrupted a call on the queues.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            Locked::Own { engine, .. } => engine.has_caller(),
            Locked::Nicd { lock, .. } => lock.has_caller(),
        }
    }

    /// Calls `touch` inside the lock. `touch` must be short, and must not take this lock.
    ///
    /// # Errors
    /// [`Reentered`] if the calling thread already holds the lock.
    #[inline]
    pub(crate) fn inside<R>(&self, touch: impl FnOnce(&mut Inside<'_, '_>) -> R) -> Result<R, Reentered> {
        match self {
            Locked::Own { engine, .. } => engine.inside(|inside| touch(&mut Inside::Own(inside))),
            Locked::Nicd { daemon, lock, .. } => {
                let _guard = lock.enter_once()?;
                Ok(touch(&mut Inside::Nicd { daemon, lock }))
            }
        }
    }
}

impl Inside<'_, '_> {
    #[inline]
    fn is_of(&self, locked: &Locked) -> bool {
        match (self, locked) {
            (Inside::Own(inside), Locked::Own { engine, .. }) => inside.is_of(engine),
            (Inside::Nicd { lock, .. }, Locked::Nicd { lock: own, .. }) => std::ptr::eq(*lock, &**own),
            _ => false,
        }
    }

    /// Executes a command and returns the value that its reply carries.
    pub(crate) fn ask<T: FromReply>(&mut self, command: Command) -> Result<T, CreateError> {
        match self {
            Inside::Own(inside) => Ok(inside.ask(command)?),
            Inside::Nicd { daemon, .. } => Ok(Device::ask(*daemon, command)?),
        }
    }

    /// Informs the NIC that work was posted to a queue of `qp`, whose doorbell at a daemon is `bell`.
    #[inline]
    pub(crate) fn ring(&mut self, qp: Qpn, bell: u32) {
        match self {
            Inside::Own(inside) => inside.ring(qp),
            Inside::Nicd { daemon, .. } => daemon.ring_bell(bell),
        }
    }

    /// Drives an engine of this process one step, for a caller that found nothing in its completion queue.
    #[inline]
    pub(crate) fn pass(&mut self) {
        if let Inside::Own(inside) = self {
            inside.pass();
        }
    }
}

/// A value that is accessed only inside the lock of its engine.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    engine: Locked,
    value: UnsafeCell<T>,
}

// SAFETY: `get` gives the value only to the one thread that is inside the lock.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(engine: &Locked, value: T) -> Guarded<T> {
        Guarded { engine: engine.clone(), value: UnsafeCell::new(value) }
    }

    /// The engine whose lock guards the value.
    pub(crate) fn engine(&self) -> &Locked {
        &self.engine
    }

    /// The value. `inside` cannot be used for anything else as long as the value is borrowed.
    ///
    /// # Panics
    /// If `inside` belongs to another engine.
    #[inline]
    pub(crate) fn get<'a>(&'a self, inside: &'a mut Inside<'_, '_>) -> &'a mut T {
        assert!(inside.is_of(&self.engine), "the caller must hold the lock of this value's engine");
        // SAFETY: an `Inside` exists on one thread at a time, and it is borrowed as long as the value is.
        unsafe { &mut *self.value.get() }
    }
}
