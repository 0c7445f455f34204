//! How a client finds a key: the part in which the designs differ.

use super::session::{Design, Grant};
use remora_nic::Remote;
use remora_nic::kernel::Status;

/// One READ of a lookup.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What to read.
    pub remote: Remote,
    /// How many bytes.
    pub len: u32,
}

/// READs that are posted together and land one behind the other: one round trip.
#[derive(Copy, Clone, Debug)]
pub struct Reads {
    reads: [Read; Reads::MOST],
    count: u8,
}

impl Reads {
    /// READs in one round trip at most.
    pub const MOST: usize = 3;

    /// A single READ.
    pub fn one(remote: Remote, len: u32) -> Reads {
        Reads { reads: [Read { remote, len }; Reads::MOST], count: 1 }
    }

    /// As many as there are choices in a cuckoo table.
    pub fn three(reads: [Read; Reads::MOST]) -> Reads {
        Reads { reads, count: 3 }
    }

    /// The READs, in the order in which they are posted and land.
    pub fn as_slice(&self) -> &[Read] {
        &self.reads[..self.count.into()]
    }

    /// Bytes that land.
    pub fn total_len(&self) -> usize {
        self.as_slice().iter().map(|read| read.len as usize).sum()
    }
}

/// A request to a kernel of the server's NIC. The client chooses the address of its answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Op-code of the kernel.
    pub opcode: u64,
    /// Parameters of the kernel.
    pub params: [u8; Ask::LEN],
}

impl Ask {
    /// Bytes of parameters.
    pub const LEN: usize = 16;
}

/// What comes next in a lookup.
#[derive(Copy, Clone, Debug)]
pub enum Step {
    /// Another round trip.
    Read(Reads),
    /// A round trip too, with a kernel at its other end.
    Ask(Ask),
    /// The value is `len` bytes from `start` on in the bytes that landed last (as the lookup left them).
    Found {
        /// Offset of the value.
        start: usize,
        /// Bytes in it.
        len: usize,
    },
    /// At some moment since the lookup began the key was not in the table.
    Absent,
    /// The value is there but longer than the client's buffers.
    TooLong {
        /// Bytes that the READ would take.
        len: usize,
    },
    /// The table kept changing under the reader for as many tries as it makes.
    Contended,
    /// Found by a call to the server.
    Call,
}

/// How a design finds a key with READs. A value of this type is what a client knows of the server's table.
/// `Progress` is what it knows of one operation.
pub trait Lookup {
    /// The state of one operation; the default is its beginning.
    type Progress: Copy + Default;

    /// Which design this is.
    const DESIGN: Design;

    /// Does it ask kernels of the server's NIC? Then both sides' queue pairs agree on StRoM.
    const ASKS: bool = false;

    /// From the server's grant; `buffer_len` bytes are all that can land in one round trip.
    fn new(grant: &Grant, buffer_len: usize) -> Self;

    /// Bytes that can land in one round trip when keys and values have these lengths at most.
    fn landing_len(max_key: usize, max_value: usize) -> usize;

    /// Bytes of the READs of a GET that finds its key: of each but the last, and of the last. None if the GET
    /// is a call.
    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)>;

    /// The first step for a key of this hash.
    fn begin(&self, progress: &mut Self::Progress, hash: u64) -> Step;

    /// The step after `landed`, the bytes of the READs that were asked for last. They are the client's own
    /// copy and may be changed.
    fn advance(&self, progress: &mut Self::Progress, key: &[u8], landed: &mut [u8]) -> Step;

    /// The step after a kernel has answered with `landed`.
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

    /// How often this operation found the table changing and retried.
    fn tries(progress: &Self::Progress) -> u32;
}

/// Torn or vanished reads after which a lookup gives up. Each costs a round trip, and an update takes the
/// server some microseconds. So a key must be written without pause for a reader to reach this limit.
pub(crate) const MOST_TRIES: u32 = 64;
