//! The attributes that the cache stores for an item in addition to its value.

use remora_transport::Instant;

/// The attributes of an item.
#[derive(Copy, Clone, Debug)]
pub struct Attributes {
    /// The flags of the client, which the cache does not interpret.
    pub flags: u32,
    /// Time at which the item expires.
    pub expires: Instant,
    /// The number that `cas` compares. Each change of the item gives it another one.
    pub unique: u64,
    /// Marks that meta commands report.
    pub marks: Marks,
}

/// Marks of an item that meta commands report.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The key was given in base64.
    pub binary: bool,
    /// The item was marked as out of date.
    pub stale: bool,
    /// A client was asked to store the item again.
    pub won: bool,
    /// The item was read.
    pub fetched: bool,
}
