//! The event engine: simulated time and the queue of future events.

mod calendar;
mod time;

pub use calendar::{Calendar, Event};
pub use time::{Picos, transmission};
