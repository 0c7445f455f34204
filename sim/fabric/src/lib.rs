//! Simulated networks of real NICs. A run has one seed, virtual time and no threads, so two runs with equal
//! settings are equal.
//!
//! [`network`] moves packets over the links and switches of a [`topology`]; it is driven by the events of
//! [`engine`]. Two layers use it. [`simulation`] is a data centre whose hosts send flows. [`World`] joins a
//! few NICs whose programs are tests, which post work requests and poll completions through [`program`]. In a
//! world, the rules of `remora_fault` decide which frames are lost or changed, and [`forge`] makes frames
//! that no NIC would send. [`rma`] has portals and regions of 1RMA and the experiments of its paper.

#![allow(
    clippy::too_many_arguments,
    reason = "a command has as many operands; a struct for them exists, and this makes one"
)]

mod ecn;
pub mod engine;
pub mod forge;
mod frames;
pub mod network;
pub mod program;
pub mod rma;
mod services;
pub mod simulation;
pub mod topology;
mod trace;
mod verbs;
mod world;

pub use network::Marks;
pub use program::{
    ALL, CompletionQueue, FreeList, QueuePair, REMOTE, Region, Settings, SharedQueue, changes,
};
pub use trace::Trace;
pub use world::{Config, LinkConfig, Sent, Simulated, SwitchConfig, World};
