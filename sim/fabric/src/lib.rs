//! The fabric: a simulated world of NICs and links. It has one seed, virtual time and no threads: two runs of
//! a world are equal.
//!
//! [`World`] holds the NICs and moves time. A test posts and polls through [`program`]. The rules of
//! `remora_fault` decide which frames links lose or change. [`forge`] makes frames that no NIC would send.
//! [`strom`] runs kernels in the time of an FPGA, [`rma`] has portals and regions of 1RMA and the experiments
//! of its paper.

#![allow(
    clippy::too_many_arguments,
    reason = "a command has as many operands; a struct for them exists, and this makes one"
)]

pub mod engine;
pub mod forge;
mod link;
pub mod network;
pub mod program;
pub mod rma;
mod services;
pub mod simulation;
pub mod strom;
mod switch;
pub mod topology;
mod trace;
mod verbs;
mod world;

pub use link::{LinkConfig, Sent};
pub use program::{
    ALL, CompletionQueue, FreeList, QueuePair, REMOTE, Region, Settings, SharedQueue, changes,
};
pub use switch::{Marks, SwitchConfig};
pub use trace::Trace;
pub use world::{Config, World};
