//! Changes of the table by the host as values.

use crate::{Access, Key, Owner, Pd, WindowType};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The addresses of a range of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// The address by which accesses name the first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// The address of the first byte in this process; 0 in a change that was deserialized.
    #[serde(skip)]
    pub start: u64,
}

/// A change of a table by the host. Work requests that bind or invalidate are no changes by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableChange {
    /// A region was registered.
    Registered {
        /// Key of the region.
        key: Key,
        /// Protection domain of the region.
        pd: Pd,
        /// Ranges of the region.
        ranges: Vec<Addresses>,
        /// Rights of the region.
        access: Access,
    },
    /// A null region was registered.
    NullRegistered {
        /// Key of the region.
        key: Key,
        /// Protection domain of the region.
        pd: Pd,
    },
    /// The key of a region died, because the region is being deregistered.
    Ended {
        /// Key of the region.
        key: Key,
    },
    /// A window was allocated.
    WindowAllocated {
        /// Key of the window.
        key: Key,
        /// Protection domain of the window.
        pd: Pd,
        /// Type of the window.
        kind: WindowType,
    },
    /// A window was freed.
    WindowFreed {
        /// Any key of the window.
        key: Key,
    },
    /// The windows of a queue pair that was destroyed were unbound.
    OwnerUnbound {
        /// The queue pair.
        owner: Owner,
    },
    /// The windows of a region were unbound.
    RegionUnbound {
        /// Key of the region.
        key: Key,
    },
}

/// A function that is called with every change, in order, under the mutex of the table: it must not call the
/// table.
pub type TableObserver = Arc<dyn Fn(&TableChange) + Send + Sync>;
