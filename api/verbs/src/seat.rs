//! Where a queue is: on an engine of this process, or on the daemon's.

use remora_host::Engine;
use std::sync::Arc;

use crate::CreateError;
use crate::nicd::Desk;

/// An engine, as far as queues need it.
#[derive(Clone, Debug)]
pub(crate) enum Seat {
    /// On an engine of this process.
    Own(Arc<Engine>),
    /// On the daemon's.
    Nicd(Arc<Desk>),
}

impl Seat {
    /// Somebody polls and finds nothing.
    #[inline]
    pub fn poll(&self) {
        match self {
            Seat::Own(engine) => engine.poll(),
            Seat::Nicd(_) => std::hint::spin_loop(),
        }
    }

    /// The engine, if it is this process's.
    pub fn engine(&self) -> Result<&Arc<Engine>, CreateError> {
        match self {
            Seat::Own(engine) => Ok(engine),
            Seat::Nicd(_) => Err(CreateError::NotByDaemon),
        }
    }

    /// The engine's number.
    pub fn number(&self) -> usize {
        match self {
            Seat::Own(engine) => engine.number(),
            Seat::Nicd(_) => 0,
        }
    }
}
