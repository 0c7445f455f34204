//! The interface of kernels: the traits that a kernel implements, and the limits that it is given.

use super::streams::Streams;

/// A kernel: user code on the data path (the paper's Listing 1). A kernel runs in a *lane*, which serves one
/// queue pair at a time and processes that queue pair's requests in order.
///
/// A kernel allocates all its memory when it is created. A step must not allocate or block, and should take
/// about as long as copying [`DMA`](super::DMA) bytes; longer work is divided into several steps.
pub trait Kernel: Send {
    /// Executes one step: consumes the available input and read data, and issues at most one command and one
    /// message.
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress;

    /// Resets the kernel to its initial state, because its queue pair was destroyed or its request ended with
    /// an error.
    fn reset(&mut self);

    /// Returns the address and length of the memory that the kernel will read for a request with these
    /// parameters: first (`seen` is `None`), or after it has read the bytes `seen` (64 at most). The NIC
    /// prefetches this memory, so that the cache misses of concurrent requests overlap.
    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        let _ = (params, seen);
        None
    }

    /// Returns the kernel's check of READ data; `None` if the kernel does not check READs.
    fn checks(&mut self) -> Option<&mut dyn Check> {
        None
    }

    /// Returns the kernel's observer of WRITE data; `None` if the kernel has none. An observer sees the data
    /// on its way to memory, without a step. Otherwise WRITEs are input of the kernel after they have been
    /// placed.
    fn looks(&mut self) -> Option<&mut dyn Look> {
        None
    }
}

/// A check of READ data before the response is sent (the paper's send kernel). A check keeps no state between
/// READs.
pub trait Check {
    /// Returns the number of bytes after the READ's range that the check also needs, [`BEHIND`] at most.
    /// These bytes are not sent.
    fn behind(&self) -> usize;

    /// Returns the verdict on the data. `before` is the number of earlier readings for the same response.
    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict;
}

/// Maximum number of bytes after a READ's range that a [`Check`] receives.
pub const BEHIND: usize = 64;

/// Maximum number of successive readings for one response.
pub const READINGS: u32 = 64;
/// Delay in nanoseconds before the data is read again, after [`READINGS`] successive readings.
pub const AGAIN_NS: u64 = 10_000;
/// Time in nanoseconds after which a READ whose data still fails the check ends with a responder error.
pub const UNFIT_NS: u64 = 50_000_000;

/// The verdict of a [`Check`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The data is sent.
    Leave,
    /// The data is read again: up to [`READINGS`] times immediately, then with delays for [`UNFIT_NS`].
    Again,
    /// The READ ends with a responder error.
    Refuse,
}

/// An observer of WRITE data.
pub trait Look {
    /// Observes the next bytes of a packet, in pieces of [`LOOKED_AT`] bytes except for the last.
    fn look(&mut self, bytes: &[u8]);
}

/// Size in bytes of the pieces that an observer receives. A piece is in the cache, and the next one is
/// prefetched meanwhile.
pub const LOOKED_AT: usize = 512;

/// The result of a kernel's step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The kernel has more work and is called again.
    Again,
    /// The kernel waits for input or for read data, and holds state of its queue pair.
    Waits,
    /// The kernel waits for input and holds no state, so its lane may serve another queue pair.
    Rests,
}

/// Maximum number of steps for one packet or in one turn. The acknowledgement of a packet is delayed by at
/// most that many steps.
pub const STEPS: u32 = 32;
