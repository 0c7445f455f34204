//! Where things lie in the peer's memory, known to both processes.

use remora_verbs::FreeListOptions;

/// Bytes of a value.
pub const VALUE_LEN: usize = 512;

const MIB: u64 = 1 << 20;
/// Buffers for ALLOCATE: more than one turn takes.
pub const BUFFERS: FreeListOptions =
    FreeListOptions { offset: 32 << 20, size: VALUE_LEN as u32, count: 8192, engine: 0 };
/// A pointer to [`VALUE`] and its bound.
pub const SLOT: u64 = 40 * MIB;
/// The value that is read and written.
pub const VALUE: u64 = SLOT + 4096;
/// What the plain CAS counts up.
pub const COUNT: u64 = SLOT + 2 * 4096;
/// An address and its tag, 16 bytes, for the enhanced CAS.
pub const TAGGED: u64 = SLOT + 3 * 4096;
/// The same for the chain.
pub const BLOCK: u64 = SLOT + 4 * 4096;
/// Where the bench tells which buffers have come out of use: their addresses.
pub const FREED: u64 = 44 * MIB;
