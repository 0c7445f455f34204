//! Time for the wrappers. Ports need none. The wrappers read it only when a frame is held or recorded.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The time of a wrapper; any closure that returns nanoseconds is one.
pub trait Clock {
    /// Nanoseconds since some fixed moment; never less than before.
    fn now_ns(&mut self) -> u64;
}

impl<F: FnMut() -> u64> Clock for F {
    fn now_ns(&mut self) -> u64 {
        self()
    }
}

/// Nanoseconds since it was made.
#[derive(Copy, Clone, Debug)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// A clock that begins now.
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

/// Nanoseconds since 1970, as captures want them.
#[derive(Copy, Clone, Debug, Default)]
pub struct Wall;

impl Clock for Wall {
    fn now_ns(&mut self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }
}
