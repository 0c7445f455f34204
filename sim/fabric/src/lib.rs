//! The fabric: a simulated world of NICs and links. One seed, virtual time, no threads: a world run twice does the same.
//!
//! [`World`] holds the NICs and moves time; [`program`] is how a test posts and polls; `remora_fault` says what links do to
//! frames; [`forge`] makes frames that no NIC would send; [`loss`] measures what loss costs, [`share`] how flows share a
//! bottleneck; [`strom`] plays kernels in the time of an FPGA.

pub mod forge;
mod link;
pub mod loss;
pub mod program;
mod services;
pub mod share;
pub mod strom;
mod switch;
mod trace;
mod world;

pub use link::{LinkConfig, Sent};
pub use program::{
    ALL, CompletionQueue, FreeList, QueuePair, REMOTE, Region, Settings, SharedQueue, changes,
};
pub use switch::{Marks, SwitchConfig};
pub use trace::Trace;
pub use world::{Config, World};
