//! The memory of queues, and the limits of a program that is loaded.

use remora_nic::{Bare, Command, CqFlags, Ring};

/// Maximum number of pieces of a receive, as on RedN's NIC.
pub(super) const PIECES: usize = 16;
/// Number of entries of a completion queue.
pub(super) const COMPLETIONS: u32 = 256;

/// The reason why a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The program needs more queues or memory than the NIC has.
    #[error("the program has more queues or more bytes than the NIC takes")]
    TooBig,
    /// A receive has more pieces than a NIC supports.
    #[error("a receive of {queue} has more than {pieces} pieces", pieces = PIECES)]
    TooManyPieces {
        /// Name of the queue.
        queue: String,
    },
    /// The number of receives of a recycled queue is not a power of two.
    #[error("the receives of {queue} repeat with the recycled queue: their number must be a power of two")]
    NoPowerOfTwo {
        /// Name of the queue.
        queue: String,
    },
}

pub(super) fn ring(slots: u32) -> Result<Ring, LoadError> {
    Ring::heap(slots).map_err(|_| LoadError::TooBig)
}

/// Creates a completion queue that may overrun, because WAITs only count its completions.
pub(super) fn create_counted_cq(nic: &Bare, ring: Ring) -> Result<u32, LoadError> {
    let flags = CqFlags { ignores_overrun: true, ..CqFlags::default() };
    nic.ask(Command::CreateCq { ring: nic.hand(ring), flags }).map_err(|_| LoadError::TooBig)
}
