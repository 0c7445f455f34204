//! Layout of the peer's memory, which both processes know.

use remora_verbs::FreeListOptions;

/// Bytes of a value.
pub const VALUE_LEN: usize = 512;

const MIB: u64 = 1 << 20;
/// Free list for ALLOCATE. It holds more buffers than one turn uses.
pub const BUFFERS: FreeListOptions =
    FreeListOptions { offset: 32 << 20, size: VALUE_LEN as u32, count: 8192, engine: 0 };
/// A pointer to [`VALUE`] and its bound.
pub const SLOT: u64 = 40 * MIB;
/// The value that is read and written.
pub const VALUE: u64 = SLOT + 4096;
/// Counter that the plain CAS increments.
pub const COUNT: u64 = SLOT + 2 * 4096;
/// An address and its tag, 16 bytes, that the enhanced CAS swaps.
pub const TAGGED: u64 = SLOT + 3 * 4096;
/// An address and its tag, 16 bytes, that the chain swaps.
pub const BLOCK: u64 = SLOT + 4 * 4096;
/// List of the addresses of freed buffers, written by the bench.
pub const FREED: u64 = 44 * MIB;
