//! The targets of lookups, and the variants of each.

use remora_chain::offload::LIST;

use super::tables::{CALLS, KEYS, READS};

/// The variants of a lookup by the request with which their clients connect: the name of a shipped program,
/// or another request.
pub(super) type Way = (&'static str, &'static str);

pub(super) const HASH_WAYS: [Way; 3] = [("chain", "get"), ("two-reads", READS), ("call", CALLS)];
pub(super) const BREAKS: &str = "list-break";
pub(super) const LIST_WAYS: [Way; 4] =
    [("chain", "list"), ("chain-break", BREAKS), ("two-reads", READS), ("call", CALLS)];

/// The target of a lookup.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// A value of this many bytes in a hash table.
    Hash(u64),
    /// An element among the given number of first elements of a list of eight values of 64 bytes.
    List(u64),
}

impl Lookup {
    pub(super) fn name(self) -> String {
        match self {
            Lookup::Hash(len) => format!("hash-get/{len}"),
            Lookup::List(range) => format!("list-of-{LIST}/range-{range}"),
        }
    }

    pub(super) fn ways(self) -> &'static [Way] {
        match self {
            Lookup::Hash(_) => &HASH_WAYS,
            Lookup::List(_) => &LIST_WAYS,
        }
    }

    pub(super) fn key(self, number: u64) -> u64 {
        match self {
            Lookup::Hash(_) => 1 + number % KEYS,
            Lookup::List(range) => 1 + number.wrapping_mul(7) % range,
        }
    }

    pub(super) fn value_len(self) -> u64 {
        if let Lookup::Hash(len) = self { len } else { 64 }
    }
}
