//! What the cache keeps beside the value of an item.

use remora_transport::Instant;

/// What memcached keeps beside a value.
#[derive(Copy, Clone, Debug)]
pub struct Attributes {
    /// The client's own.
    pub flags: u32,
    /// Dead from then on.
    pub expires: Instant,
    /// The number for `cas`: another one after each change.
    pub unique: u64,
    /// Marks that meta commands report.
    pub marks: Marks,
}

/// Marks of an item that meta commands report.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Its key was stored in base64.
    pub binary: bool,
    /// It was marked as out of date.
    pub stale: bool,
    /// A client was asked to store it again.
    pub won: bool,
    /// It was asked for.
    pub fetched: bool,
}
