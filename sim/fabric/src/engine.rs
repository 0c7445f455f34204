//! The event engine: simulated time and the queue of what happens next.

mod calendar;
mod time;

pub use calendar::{Calendar, Event};
pub use time::{Picos, transmission};
