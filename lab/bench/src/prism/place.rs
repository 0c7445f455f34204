//! Layout of the peer's memory, which both processes know.

use remora_verbs::FreeListOptions;

/// The length of a value in bytes.
pub(crate) const VALUE_LEN: usize = 512;

const MIB: u64 = 1 << 20;
/// The free list for ALLOCATE. It holds more buffers than one turn uses.
pub(crate) const BUFFERS: FreeListOptions =
    FreeListOptions { offset: 32 << 20, size: VALUE_LEN as u32, count: 8192, engine: 0 };
/// The offset of a pointer to [`VALUE`] with its bound.
pub(crate) const SLOT: u64 = 40 * MIB;
/// The offset of the value that is read and written.
pub(crate) const VALUE: u64 = SLOT + 4096;
/// The offset of the counter that the plain CAS increments.
pub(crate) const COUNT: u64 = SLOT + 2 * 4096;
/// The offset of an address with its tag, 16 bytes, that the enhanced CAS swaps.
pub(crate) const TAGGED: u64 = SLOT + 3 * 4096;
/// The offset of an address with its tag, 16 bytes, that the chain swaps.
pub(crate) const BLOCK: u64 = SLOT + 4 * 4096;
/// The offset of the list of freed buffers' addresses, which the bench writes.
pub(crate) const FREED: u64 = 44 * MIB;
