//! StRoM (EuroSys'20 §5.2): a kernel on the server's NIC reads a slot of the table and the object that it
//! points to. So a GET takes one round trip and no CPU of the server. PUT and DELETE are calls.
//!
//! The table is an array of [`Slot`](remora_nic::kernel::Slot)s, three buckets in 64 bytes each. A key may be
//! in either of two slots. It may move from the first to the later one, and never back, so a reader that
//! looks at them in this order finds it. The kernel compares the 64 bits of a key's hash: of two keys with
//! the same hash the second is refused (`TableFull`).
//!
//! ```text
//! object, on a line
//!  0  crc    u64  CRC-64/NVME of key and value
//!  8  key, value
//! ```
//! The server changes a bucket word by word, and reuses an object's lines at once. A reader detects a mixture
//! by the check value or by the key, and retries.

mod lookup;
mod table;

pub use lookup::Strom;
pub use table::{Config, StromTable};

/// Op-code of the RPC that starts the kernel.
pub const OPCODE: u64 = 0x6765_7400;
/// Number of slots that may hold a key.
pub(crate) const WAYS: usize = 2;
/// Bytes before the key of an object.
pub(crate) const HEADER: usize = 8;
