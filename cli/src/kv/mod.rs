//! `remora serve kv` and `remora kv`: the classical key-value designs over the NIC.

pub mod bench;
pub mod client;
pub mod command;
mod contest;
mod flight;
pub mod measure;
pub mod parts;
mod post;
pub mod rival;
pub mod serve;
mod work;

use clap::ValueEnum;
use store::kv::farm::{self, Farm, FarmTable};
use store::kv::pilaf::{self, Pilaf, PilafTable};
use store::kv::two_sided::{self, TwoSided, TwoSidedTable};
use store::kv::{Lookup, Registered, Table};

/// READs that a connection may have outstanding: a full window of two-READ lookups.
const READS: u8 = 128;

/// Which design.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum DesignName {
    /// Self-verifying cuckoo table: an entry READ, then a value READ (Pilaf).
    Pilaf,
    /// Hopscotch neighbourhood READ, then a value READ (FaRM).
    Farm,
    /// Every operation is a call.
    TwoSided,
}

impl DesignName {
    /// All of them.
    pub const ALL: [DesignName; 3] = [DesignName::Pilaf, DesignName::Farm, DesignName::TwoSided];

    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            DesignName::Pilaf => "pilaf",
            DesignName::Farm => "farm",
            DesignName::TwoSided => "two-sided",
        }
    }
}

/// A design: how its clients look things up, and its table.
pub trait Design {
    /// Client side.
    type Lookup: Lookup;
    /// Server side.
    type Table: Table;

    /// Bytes of the index for so many keys; 0 if clients read none.
    fn index_len(keys: u32, seed: u64) -> usize;

    /// A table for so many keys over its memory.
    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> Self::Table;
}

/// Pilaf.
pub struct PilafDesign;
/// FaRM.
pub struct FarmDesign;
/// Two-sided calls.
pub struct TwoSidedDesign;

const INDEX: &str = "a design with an index is given its memory";

impl Design for PilafDesign {
    type Lookup = Pilaf;
    type Table = PilafTable;

    fn index_len(keys: u32, seed: u64) -> usize {
        pilaf::Config::for_keys(keys, seed).index_len()
    }

    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> PilafTable {
        PilafTable::new(pilaf::Config::for_keys(keys, seed), index.expect(INDEX), extents)
    }
}

impl Design for FarmDesign {
    type Lookup = Farm;
    type Table = FarmTable;

    fn index_len(keys: u32, seed: u64) -> usize {
        farm::Config::for_keys(keys, seed).index_len()
    }

    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> FarmTable {
        FarmTable::new(farm::Config::for_keys(keys, seed), index.expect(INDEX), extents)
    }
}

impl Design for TwoSidedDesign {
    type Lookup = TwoSided;
    type Table = TwoSidedTable;

    fn index_len(_: u32, _: u64) -> usize {
        0
    }

    fn table(keys: u32, hash_seed: u64, _: Option<Registered>, extents: Registered) -> TwoSidedTable {
        TwoSidedTable::new(two_sided::Config { keys, hash_seed }, extents)
    }
}

/// Calls a function that is generic over the design.
#[macro_export]
macro_rules! with_design {
    ($design:expr, $function:ident($($argument:expr),*)) => {
        match $design {
            $crate::kv::DesignName::Pilaf => $function::<$crate::kv::PilafDesign>($($argument),*),
            $crate::kv::DesignName::Farm => $function::<$crate::kv::FarmDesign>($($argument),*),
            $crate::kv::DesignName::TwoSided => $function::<$crate::kv::TwoSidedDesign>($($argument),*),
        }
    };
}
