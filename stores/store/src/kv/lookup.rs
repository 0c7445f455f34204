//! The lookup of a key by a client: the part in which the designs differ.

use super::session::{Design, Grant};
use remora_nic::Remote;
use remora_nic::kernel::Status;

/// A single READ of a lookup.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Remote address and key.
    pub remote: Remote,
    /// Number of bytes.
    pub len: u32,
}

/// READs of one round trip. They are posted together, and their bytes arrive contiguously.
#[derive(Copy, Clone, Debug)]
pub struct Reads {
    reads: [Read; Reads::MOST],
    count: u8,
}

impl Reads {
    /// Maximum number of READs in one round trip.
    pub const MOST: usize = 3;

    /// Returns a single READ.
    pub fn one(remote: Remote, len: u32) -> Reads {
        Reads { reads: [Read { remote, len }; Reads::MOST], count: 1 }
    }

    /// Returns three READs, one for each choice in a cuckoo table.
    pub fn three(reads: [Read; Reads::MOST]) -> Reads {
        Reads { reads, count: 3 }
    }

    /// Returns the READs in the order in which they are posted.
    pub fn as_slice(&self) -> &[Read] {
        &self.reads[..self.count.into()]
    }

    /// Returns the total number of bytes that the READs return.
    pub fn total_len(&self) -> usize {
        self.as_slice().iter().map(|read| read.len as usize).sum()
    }
}

/// A request to a kernel of the server's NIC. The client itself adds the address for the answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Op-code of the kernel.
    pub opcode: u64,
    /// Parameters of the kernel.
    pub params: [u8; Ask::LEN],
}

impl Ask {
    /// Number of parameter bytes.
    pub const LEN: usize = 16;
}

/// The next step of a lookup.
#[derive(Copy, Clone, Debug)]
pub enum Step {
    /// Post another round trip of READs.
    Read(Reads),
    /// Sends a request to a kernel of the server's NIC.
    Ask(Ask),
    /// The value was found in the bytes that arrived last (as the lookup left them).
    Found {
        /// Offset of the value in bytes.
        start: usize,
        /// Length of the value in bytes.
        len: usize,
    },
    /// The key was not in the table at some moment since the lookup began.
    Absent,
    /// The key was found, but the value is longer than the client's buffers.
    TooLong {
        /// Length in bytes of the READ that would be needed.
        len: usize,
    },
    /// The table changed during every attempt, up to the maximum number of attempts.
    Contended,
    /// The lookup needs a call to the server.
    Call,
}

/// The lookup of a design. A value of this type knows the layout of the server's table. `Progress` is the
/// state of one operation.
pub trait Lookup {
    /// The state of one operation; the default value is the initial state.
    type Progress: Copy + Default;

    /// The design that this lookup belongs to.
    const DESIGN: Design;

    /// True if the lookup uses kernels of the server's NIC. Both queue pairs must then have StRoM enabled.
    const ASKS: bool = false;

    /// Creates the lookup from the server's grant. At most `buffer_len` bytes can be read in one round trip.
    fn new(grant: &Grant, buffer_len: usize) -> Self;

    /// Returns the maximum number of bytes that one round trip reads, for keys and values of at most these
    /// lengths.
    fn landing_len(max_key: usize, max_value: usize) -> usize;

    /// Returns the bytes of the READs of a GET that finds its key: of each but the last, and of the last.
    /// `None` if a GET is a call.
    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)>;

    /// Returns the first step for a key with this hash.
    fn begin(&self, progress: &mut Self::Progress, hash: u64) -> Step;

    /// Returns the step that follows `landed`, the bytes of the READs that were posted last. These are the
    /// client's own copy, which the lookup may change.
    fn advance(&self, progress: &mut Self::Progress, key: &[u8], landed: &mut [u8]) -> Step;

    /// Returns the step that follows the answer `landed` of a kernel.
    fn kernel_answered(
        &self,
        progress: &mut Self::Progress,
        key: &[u8],
        status: Status,
        landed: &mut [u8],
    ) -> Step {
        let _ = (progress, key, status, landed);
        Step::Contended
    }

    /// Returns the number of times that the operation was retried because the table changed.
    fn tries(progress: &Self::Progress) -> u32;
}

/// Number of torn or vanished reads after which a lookup gives up. Each costs a round trip, and an update
/// takes the server some microseconds, so only a key that is written continuously reaches this limit.
pub(crate) const MOST_TRIES: u32 = 64;
