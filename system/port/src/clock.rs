//! Clocks for the wrappers. Ports need none; wrappers read one only when a frame is held or recorded.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Every closure that returns nanoseconds implements it.
pub trait Clock {
    /// Returns the nanoseconds since some fixed moment. The value never decreases.
    fn now_ns(&mut self) -> u64;
}

impl<F: FnMut() -> u64> Clock for F {
    fn now_ns(&mut self) -> u64 {
        self()
    }
}

/// A monotonic clock that starts at 0 when it is created.
#[derive(Copy, Clone, Debug)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// Creates a clock that starts now.
    pub fn new() -> Monotonic {
        Monotonic(Instant::now())
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Monotonic::new()
    }
}

impl Clock for Monotonic {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The wall clock: nanoseconds since 1970, as capture files need them.
#[derive(Copy, Clone, Debug, Default)]
pub struct Wall;

impl Clock for Wall {
    fn now_ns(&mut self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }
}
