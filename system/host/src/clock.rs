//! The clock of a host. Reading the time-stamp counter costs half of reading the clock of `std`; the
//! calibration is that of the crate quanta.

use remora_transport::Instant;

/// A monotonic clock: nanoseconds since it was created.
#[derive(Clone, Debug)]
pub struct Clock {
    source: quanta::Clock,
    start: quanta::Instant,
}

impl Clock {
    /// Creates a clock that starts at 0. The first clock of a process calibrates for some milliseconds.
    pub fn new() -> Clock {
        let source = quanta::Clock::new();
        let start = source.now();
        Clock { source, start }
    }

    /// Returns the nanoseconds since the clock was created.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant(self.source.now().saturating_duration_since(self.start).as_nanos() as u64)
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_at_the_rate_of_the_system_clock() {
        let clock = Clock::new();
        let wall = std::time::Instant::now();
        let before = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let passed = clock.now().since(before);
        let wall = wall.elapsed().as_nanos() as u64;
        assert!(passed >= 49_000_000, "{passed} ns passed during a sleep of 50 ms");
        assert!(passed <= wall + 5_000_000, "{passed} ns passed while the system says {wall}");
    }
}
