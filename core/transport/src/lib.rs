//! //! The protocol state machines of the transport services: RC with go-back-N or IRN, UC, UD and 1RMA.
//!
//! The machines are pure: they read no clock, socket or memory, and take packets, requests and the time as
//! arguments. `submit` adds a work request and `receive` processes a packet. `plan` returns the packet to
//! send next, and `sent` confirms that it was sent. `deadline` returns the time of the next timer, `expire`
//! runs the timers that are due, and `retire` returns finished messages.

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
pub mod timers;
pub mod uc;
pub mod ud;

pub use action::{Action, Atomic, Notice, Outcome};
pub use congestion::Pacer;
pub use counters::Counters;
pub use instant::Instant;
pub use rc::Parameters;
pub use status::Status;
