//! 1RMA over real ports, and between real processes.
#![allow(unsafe_code, reason = "signals, and memory that two processes map")]

mod attack;
mod bed;
mod input;
mod ports;
mod process;
mod processes;
mod random;
mod stopped;
#[path = "../veth/mod.rs"]
mod veth;
