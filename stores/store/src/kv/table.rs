//! The interface of a server's table: the part in which the designs differ at the server.

use super::extents::Extent;
use super::moves::Moves;
use super::rpc::Refusal;
use super::session::Design;
use crate::region::Registered;
use remora_nic::Remote;

/// A table in registered memory that only its server modifies.
pub trait Table {
    /// The design that this table belongs to.
    const DESIGN: Design;

    /// Returns what clients must know of the table.
    fn grant(&self) -> TableGrant;

    /// Stores `value` under a new or existing `key`.
    ///
    /// # Errors
    /// `TableFull` or `NoSpace`; the table is unchanged.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Removes `key`.
    ///
    /// # Errors
    /// `Absent`.
    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal>;

    /// Returns the location of the value of `key`, for a response.
    ///
    /// # Errors
    /// `Absent`, or `Unsupported` in designs whose clients read the table themselves.
    fn find(&self, key: &[u8]) -> Result<Stored, Refusal> {
        let _ = key;
        Err(Refusal::Unsupported)
    }

    /// Returns the memory that contains the values.
    fn values(&self) -> &Registered;

    /// Keeps a value in place until [`release`](Table::release), even if its key is overwritten or deleted.
    fn hold(&mut self, hold: Hold) {
        let _ = hold;
    }

    /// Ends a hold; an object that was deleted meanwhile is freed.
    fn release(&mut self, hold: Hold) {
        let _ = hold;
    }

    /// Returns the number of index positions. Each position holds one key or none.
    fn positions(&self) -> u64;

    /// Appends the record of the key at `position` to a page, if the position holds a key.
    fn key_at(&self, position: u64, page: &mut Vec<u8>);

    /// Returns the moves of keys between positions.
    fn moves(&self) -> &Moves;

    /// Returns the number of keys in the table.
    fn len(&self) -> u64;

    /// Returns true if the table has no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of a grant that describes a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TableGrant {
    /// The index: entries or buckets.
    pub index: Remote,
    /// Number of entries or buckets over which keys are hashed.
    pub index_len: u64,
    /// The region of the objects.
    pub extents: Remote,
    /// Seed of [`hash_key`](super::hash_key).
    pub hash_seed: u64,
}

/// The location of a value in [`Table::values`].
#[derive(Copy, Clone)]
pub struct Stored {
    /// Offset of the first byte.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// The hold to pass to [`Table::hold`] while the value is being sent.
    pub hold: Hold,
}

impl Stored {
    /// Returns the line on which the object begins.
    pub(crate) fn line(&self) -> usize {
        self.hold.0.line() as usize
    }
}

/// The identity of an object from which a response is being sent.
#[derive(Copy, Clone)]
pub struct Hold(pub(crate) Extent);
