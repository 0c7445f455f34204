//! What a server needs of a table: the part in which the designs differ at the server.

use super::extents::Extent;
use super::moves::Moves;
use super::rpc::Refusal;
use super::session::Design;
use crate::region::Registered;
use remora_nic::Remote;

/// A table in registered memory, changed by its server only.
pub trait Table {
    /// Which design this is.
    const DESIGN: Design;

    /// What clients must know of it.
    fn grant(&self) -> TableGrant;

    /// Stores `value` under `key`, new or not.
    ///
    /// # Errors
    /// `TableFull` or `NoSpace`; the table is as it was.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Removes `key`.
    ///
    /// # Errors
    /// `Absent`.
    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal>;

    /// Where the value of `key` lies, for a response.
    ///
    /// # Errors
    /// `Absent`; `Unsupported` where clients read for themselves.
    fn find(&self, key: &[u8]) -> Result<Stored, Refusal> {
        let _ = key;
        Err(Refusal::Unsupported)
    }

    /// The memory in which values lie.
    fn values(&self) -> &Registered;

    /// Keeps a value where it is until [`release`](Table::release), even if its key is overwritten or
    /// deleted.
    fn hold(&mut self, hold: Hold) {
        let _ = hold;
    }

    /// Ends a hold.
    fn release(&mut self, hold: Hold) {
        let _ = hold;
    }

    /// Positions of its index, at each of which there is a key or none.
    fn positions(&self) -> u64;

    /// Appends the record of the key at `position` to a page, if there is one.
    fn key_at(&self, position: u64, page: &mut Vec<u8>);

    /// The positions that keys were moved to.
    fn moves(&self) -> &Moves;

    /// Keys in the table.
    fn len(&self) -> u64;

    /// Has it none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What clients must know of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TableGrant {
    /// The table proper.
    pub index: Remote,
    /// Slots to hash over.
    pub index_len: u64,
    /// The region of the objects.
    pub extents: Remote,
    /// Seed of [`hash_key`](super::hash_key).
    pub hash_seed: u64,
}

/// Where a value lies in [`Table::values`].
#[derive(Copy, Clone)]
pub struct Stored {
    /// Offset of its first byte.
    pub offset: usize,
    /// Bytes in it.
    pub len: usize,
    /// What keeps it there.
    pub hold: Hold,
}

impl Stored {
    /// The line on which its object begins.
    pub(crate) fn line(&self) -> usize {
        self.hold.0.line() as usize
    }
}

/// Names an object that a response is being sent from.
#[derive(Copy, Clone)]
pub struct Hold(pub(crate) Extent);
