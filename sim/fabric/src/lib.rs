//! The fabric: a simulated world of NICs and links. It has one seed, virtual time and no threads: two runs of
//! a world are equal.
//!
//! [`network`] moves packets over the links and switches of a [`topology`], by the events of [`engine`]. Two
//! things stand on it. [`simulation`] is a data center whose hosts send flows. [`World`] has a few NICs
//! whose programs are tests: they post and poll through [`program`]. The rules of `remora_fault` decide
//! which frames a world loses or changes, and [`forge`] makes frames that no NIC would send. [`strom`] runs
//! kernels in the time of an FPGA, [`rma`] has portals and regions of 1RMA and the experiments of its paper.

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
pub mod strom;
pub mod topology;
mod trace;
mod verbs;
mod world;

pub use network::Marks;
pub use program::{
    ALL, CompletionQueue, FreeList, QueuePair, REMOTE, Region, Settings, SharedQueue, changes,
};
pub use trace::Trace;
pub use world::{Config, LinkConfig, Sent, SwitchConfig, World};
