//! The `transport` room.

pub mod state;
pub mod timers;
mod transitions;
