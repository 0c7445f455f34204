//! `remora serve block` and `remora block`: replicated blocks.

pub mod bench;
pub mod client;
pub mod command;
mod connector;
mod crowd;
mod etcd;
mod exercise;
mod founding;
mod machine;
mod peers;
mod repair;
mod replica;
mod rows;
mod seat;
pub mod serve;
mod servers;
mod shell;
pub mod together;

use clap::ValueEnum;

/// Operations that a client has in flight at most: buffers are made for it.
pub const WINDOW: u16 = 16;

/// Which design.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum DesignName {
    /// Multi-writer ABD by PRISM's chains.
    PrismRs,
    /// The same by locks and plain verbs.
    Abdlock,
}

impl DesignName {
    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            DesignName::PrismRs => remora_store::block::Design::PrismRs.name(),
            DesignName::Abdlock => remora_store::block::Design::AbdLock.name(),
        }
    }
}
