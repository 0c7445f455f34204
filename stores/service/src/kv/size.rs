//! The limits that a server sets for its clients, and the size of its table.

use remora_store::kv::ServerConfig;
use std::rc::Rc;

use super::contents::Contents;

/// The limits that a server sets for its clients.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of clients at the same time.
    pub clients: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Length in bytes of the values of YCSB records, if the table begins with such records. PRISM allocates
    /// buffers of their size.
    pub record_len: Option<u32>,
    /// True if queue pairs use IRN with clients that also want it.
    pub irn: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        let ServerConfig { max_key, max_value, .. } = ServerConfig::default();
        Limits { clients: 64, max_key, max_value, record_len: None, irn: false }
    }
}

/// The size of a table.
#[derive(Clone, Debug)]
pub struct Size {
    /// Maximum number of keys.
    pub capacity: u32,
    /// Bytes for keys and values.
    pub bytes: usize,
    /// Seed of the key hash.
    pub seed: u64,
    /// True if the memory was kept, and contains the table of a previous server.
    pub reopened: bool,
    /// The initial contents of the table.
    pub contents: Rc<Contents>,
}

impl Size {
    /// Returns the size of a new, empty table of PRISM or a classical design, with 1024 bytes for each key
    /// and value.
    pub fn of_keys(keys: u32) -> Size {
        let bytes = keys as usize * 1024 + (16 << 20);
        Size { capacity: keys, bytes, seed: crate::seed::fresh(), reopened: false, contents: Rc::default() }
    }
}
