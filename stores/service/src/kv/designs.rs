//! The designs of the key-value store.

use remora_store::kv::{Lookup, Registered, Table};

use super::size::Limits;
use crate::Result;
use crate::server::Memory;

/// A classical design: PUT and DELETE are calls, and a client looks up keys in the server's table.
pub trait Classical: 'static {
    /// The client's lookup.
    type Lookup: Lookup;
    /// The server's table.
    type Table: Table;

    /// Returns the bytes of the index for `keys` keys; 0 if clients do not read an index.
    fn table_len(keys: u32, seed: u64) -> usize;

    /// Creates an empty table for `keys` keys in its memory.
    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> Self::Table;

    /// Opens the table of a previous server in the memory that it left. Returns `None` if the memory
    /// contains no table, or if the design cannot continue with one.
    fn reopen(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> Option<Self::Table> {
        let _ = (keys, seed, index, extents);
        None
    }

    /// Deploys the kernel that looks up keys, after the memory of values and index was registered.
    ///
    /// # Errors
    /// The NIC failed.
    fn deploy(limits: &Limits, memory: &mut Memory) -> Result<()> {
        let _ = (limits, memory);
        Ok(())
    }
}

/// The design of Pilaf.
pub struct PilafDesign;

/// The design PRISM-KV.
pub struct PrismDesign;
/// The design of FaRM.
pub struct FarmDesign;

/// Two-sided: every operation is a call.
pub struct TwoSidedDesign;

/// StRoM: a kernel on the server's NIC looks up keys.
pub struct StromDesign;
