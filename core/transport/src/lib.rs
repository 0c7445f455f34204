//! The transport machines: pure, driven by packets, requests and time given as values.
//!
//! `submit` takes a work request, `receive` a packet. `plan` returns the packet that would leave now, `sent`
//! confirms that it left. `deadline` and `expire` are the timers, `retire` returns messages that ended.

#![allow(
    clippy::too_many_arguments,
    reason = "a packet needs much state at once; a struct made for one call hides which parts a function uses"
)]

mod action;
pub mod congestion;
mod counters;
mod instant;
pub mod rc;
pub mod rma;
pub mod state;
mod status;
#[cfg(test)]
mod testing;
pub mod timers;
pub mod uc;
pub mod ud;

pub use action::{Action, Atomic, Notice, Outcome};
pub use congestion::Pacer;
pub use counters::Counters;
pub use instant::Instant;
pub use rc::Parameters;
pub use status::Status;
