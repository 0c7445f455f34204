//! The transport machines: pure, driven by packets, requests and time given as values.
//!
//! A work request enters by `submit`, a packet by `receive`; `plan` says which packet would leave now and `sent` that it did;
//! `deadline` and `expire` are the timers; `retire` gives what ended.

mod action;
pub mod congestion;
mod counters;
mod instant;
pub mod rc;
pub mod state;
mod status;
#[cfg(test)]
mod testing;
pub mod timers;
mod transitions;
pub mod uc;
pub mod ud;

pub use action::{Action, Atomic, Notice, Outcome};
pub use congestion::Pacer;
pub use counters::Counters;
pub use instant::Instant;
pub use rc::Parameters;
pub use status::Status;
