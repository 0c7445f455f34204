//! Constants that both processes know: opcodes of the peer's kernels, and the layout of the peer's memory.

/// Number of the traversal kernel.
pub(crate) const WALK: u64 = 1;
/// Number of the GET kernel.
pub(crate) const GET: u64 = 2;
/// Number of the shuffling kernel.
pub(crate) const SHUFFLE: u64 = 3;
/// Number of the HyperLogLog kernel, which counts different values.
pub(crate) const COUNT: u64 = 4;
/// The number of the GET kernel as WebAssembly.
pub(crate) const WASM: u64 = 5;
/// Shares of first reads, in thousandths, that the consistency kernels report as torn.
pub(crate) const FAILING: [u32; 4] = [0, 10, 100, 500];

/// Returns the number of the consistency kernel that reports `failing` of a thousand first reads as torn.
pub(crate) const fn whole(failing: u32) -> u64 {
    1000 + failing as u64
}

const MIB: u64 = 1 << 20;
/// Number of nodes of the longest list, each on its own page. A list of n elements begins n nodes before the
/// end.
pub(crate) const NODES: u64 = 32;
/// Offset of the first node: key, next and value of 8 bytes each.
pub(crate) const LIST: u64 = 0;
/// The length of a node in bytes.
pub(crate) const NODE: usize = 24;
/// The offset of the list's values, which follow each other.
pub(crate) const LIST_VALUES: u64 = MIB;
/// The length of a value of a list in bytes (Figure 7 of the paper).
pub(crate) const LIST_VALUE: usize = 64;
/// The number of keys of the hash table, each in its own slot.
pub(crate) const KEYS: u64 = 1024;
/// Offset of the hash table's slots.
pub(crate) const SLOTS: u64 = 2 * MIB;
/// Offset of the hash table's values, [`LONGEST`] bytes apart.
pub(crate) const HASHED: u64 = 4 * MIB;
/// The length in bytes of the longest value and of the longest object.
pub(crate) const LONGEST: usize = 4096;
/// Offset of the objects with their check values.
pub(crate) const OBJECTS: u64 = 9 * MIB;
/// Number of objects.
pub(crate) const COUNT_OF_OBJECTS: u64 = 64;
/// Distance from one object to the next in bytes.
pub(crate) const STRIDE: u64 = 8192;
/// Offset of the memory to which streams are written.
pub(crate) const BULK: u64 = 32 * MIB;
/// Length in bytes of a stream that is shuffled.
pub(crate) const SHUFFLED: usize = 16 << 20;
/// Number of partitions of a shuffled stream.
pub(crate) const PARTITIONS: usize = 1024;
/// The memory of one partition in bytes: a quarter more than its expected share.
pub(crate) const PARTITION: usize = SHUFFLED / PARTITIONS / 4 * 5;
/// The length in bytes of a stream that is counted.
pub(crate) const COUNTED: usize = 32 << 20;
/// The length in bytes of a message of a stream.
pub(crate) const MESSAGE: usize = 1 << 20;
