//! Memory windows: a part of a region under a key of its own, bound and unbound by work requests (IBTA vol.
//! 1 §10.6.7).
//!
//! | | type 1 | type 2B |
//! |---|---|---|
//! | serves | every queue pair of its domain | only the queue pair that bound it |
//! | bind a second time | allowed while bound | only after an invalidation |
//! | unbound by | a binding of no bytes, freeing the window | LOCAL_INV, SEND_INV, freeing the window |
//!
//! The upper 24 bits of a window's key never change, and they alone identify the window: after a binding
//! that failed or was flushed the window is unchanged, and the program can bind it without knowing its
//! present key. The lower eight bits are chosen by the program, which gives another value with each binding
//! (`ibv_inc_rkey`), so an old key is not valid any more. Windows are for peers only: the key of a window
//! is not valid in local accesses. A region with windows bound to it cannot be deregistered.

use crate::key::Issued;
use crate::{Access, Key, Pd};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The queue pair that owns windows of type 2B: a number that no other queue pair of the table's NIC has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner(pub(crate) u64);

impl Owner {
    /// No queue pair: the owner in local accesses.
    pub const NOBODY: Owner = Owner(0);

    /// Returns the owner for queue pair `number` of engine `engine`.
    #[inline]
    pub const fn new(engine: u16, number: u32) -> Owner {
        Owner(1 << 48 | (engine as u64) << 32 | number as u64)
    }
}

/// The type of a window.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowType {
    /// Serves every queue pair of a domain (`IBV_MW_TYPE_1`).
    Type1,
    /// Serves one queue pair (`IBV_MW_TYPE_2`, in the form that IBTA calls 2B).
    Type2B,
}

/// The arguments of a `BIND_MW` work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Any key of the window, present, past or future: only the upper 24 bits count.
    pub window: Key,
    /// The key to assign: only the lower eight bits count, because the upper 24 bits of a window's key
    /// never change.
    pub key: Key,
    /// The region's key.
    pub region: Key,
    /// Address of the first byte, in the region's addresses.
    pub va: u64,
    /// Number of bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// Rights granted to peers, and [`Access::ZERO_BASED`].
    pub access: Access,
}

/// The reason why a window could not be bound. The work request completes with "memory window bind error".
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// No window has the upper 24 bits of this key.
    UnknownWindow,
    /// The window or the region belongs to another domain than the queue pair (IBTA C10-72).
    WrongPd,
    /// The window is of type 2B and bound; it must be invalidated first (IBTA o10-37.2.30).
    Bound,
    /// The new key of a window of type 2B equals the key of its last binding.
    Key,
    /// The window is of type 2B and the binding has no bytes (IBTA o10-37.2.40).
    Empty,
    /// The binding grants rights that no window can have, or ZERO_BASED for a window of type 1 (IBTA
    /// o10-36.2.2).
    Access,
    /// No live region has this key, or it is a null region.
    UnknownRegion,
    /// The region was registered without `MW_BIND`, or zero-based (IBTA C10-73).
    NotBindable,
    /// The binding lets peers write although the region's owner may not (IBTA C10-74).
    MissingRight,
    /// Not all bytes lie in one range of the region (IBTA C10-75).
    OutOfBounds,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BindError::UnknownWindow => "no window has this key",
            BindError::WrongPd => "window, region and queue pair are not of one protection domain",
            BindError::Bound => "a bound window of type 2 must be invalidated first",
            BindError::Key => "the new key is the one of the binding before",
            BindError::Empty => "a window of type 2 must show at least one byte",
            BindError::Access => "rights that this window cannot have",
            BindError::UnknownRegion => "no region has this key",
            BindError::NotBindable => "the region was registered without MW_BIND, or zero-based",
            BindError::MissingRight => "peers would write where the region's owner may not",
            BindError::OutOfBounds => "the window leaves the region",
        })
    }
}

impl std::error::Error for BindError {}

/// A window, as control operations see it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Window {
    pub issued: Issued,
    pub pd: Pd,
    pub kind: WindowType,
    /// The present key, bound or not.
    pub key: Key,
    /// True once a binding has assigned the key, so that peers may know it.
    pub was_bound: bool,
    /// The region that the window is bound to, and the queue pair that it serves.
    pub bound: Option<(Key, Owner)>,
    pub dying: bool,
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
