//! Memory windows: a part of a region under a key of its own, bound and unbound by work requests (IBTA vol. 1
//! §10.6.7).
//!
//! | | type 1 | type 2B |
//! |---|---|---|
//! | serves | every queue pair of its domain | the one queue pair that bound it |
//! | bound again | also while it is bound | only after it was invalidated |
//! | unbound by | a binding of no bytes, the end of the window | LOCAL_INV, SEND_INV, the end of the window |
//!
//! A window's key keeps its upper 24 bits for life, and they alone identify the window: a binding that failed
//! or was flushed leaves the window as it was, and the next one needs no look at the key that it has. The
//! lower eight are the program's, which gives another value with each binding (`ibv_inc_rkey`). So an old key
//! opens nothing. Windows are for peers: as a local key a window's opens nothing. A region with windows bound
//! to it cannot be deregistered.

use crate::key::Issued;
use crate::{Access, Key, Pd};
use std::fmt;

/// A queue pair, as the owner of windows of type 2B: a number that no other queue pair of the table's NIC
/// has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Owner(pub(crate) u64);

impl Owner {
    /// No queue pair: the owner in local accesses.
    pub const NOBODY: Owner = Owner(0);

    /// Queue pair `number` of engine `engine`.
    #[inline]
    pub const fn new(engine: u16, number: u32) -> Owner {
        Owner(1 << 48 | (engine as u64) << 32 | number as u64)
    }
}

/// The type of a window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Serves a domain (`IBV_MW_TYPE_1`).
    Type1,
    /// Serves a queue pair (`IBV_MW_TYPE_2`, in the form that IBTA calls 2B).
    Type2B,
}

/// The arguments of a `BIND_MW`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Any key of the window, present, past or future: the upper 24 bits count.
    pub window: Key,
    /// The lower eight bits of the key that the window gets; its upper 24 bits are the window's own.
    pub key: Key,
    /// The region's key.
    pub region: Key,
    /// First byte, in the region's addresses.
    pub va: u64,
    /// Bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// Rights of peers, and [`Access::ZERO_BASED`].
    pub access: Access,
}

/// Why a window could not be bound. The work request ends with "memory window bind error".
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// No window has the upper 24 bits of this key.
    UnknownWindow,
    /// The window or the region belongs to another domain than the queue pair (IBTA C10-72).
    WrongPd,
    /// A window of type 2B that is bound must be invalidated first (IBTA o10-37.2.30).
    Bound,
    /// The new key of a window of type 2B is the one under which it was bound last.
    Key,
    /// A window of type 2B is bound to at least one byte (IBTA o10-37.2.40).
    Empty,
    /// Rights that no window has; or ZERO_BASED, for type 1 (IBTA o10-36.2.2).
    Access,
    /// No live region has this key, or it is a null region.
    UnknownRegion,
    /// The region was registered without `MW_BIND`, or zero-based (IBTA C10-73).
    NotBindable,
    /// The binding gives peers a right to write that the region's owner lacks (IBTA C10-74).
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
    /// Its key now, bound or not.
    pub key: Key,
    /// A binding has given it the key, so that peers may know the key.
    pub was_bound: bool,
    /// The region it is bound to, and the queue pair that it serves.
    pub bound: Option<(Key, Owner)>,
    pub dying: bool,
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
