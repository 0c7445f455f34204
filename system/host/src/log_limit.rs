//! A limit on repeated log lines: a failure in a loop must not fill a disk.

use std::time::{Duration, Instant};

/// Lets a few lines through in each span of time, and counts the others, like the kernel's
/// `printk_ratelimit`.
///
/// ```
/// use remora_host::LogLimit;
/// use std::time::Instant;
///
/// let mut limit = LogLimit::new();
/// if let Some(left_out) = limit.due(Instant::now()) {
///     eprintln!("out of descriptors ({left_out} such lines were left out)");
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct LogLimit {
    /// Start of the current span.
    began: Option<Instant>,
    /// Number of lines let through in this span.
    passed: u32,
    /// Number of lines left out since the last one that was let through.
    left_out: u64,
}

impl LogLimit {
    /// Maximum number of lines in a span.
    pub const BURST: u32 = 10;
    /// Length of a span.
    pub const SPAN: Duration = Duration::from_secs(5);

    /// Creates a limit that has let no line through.
    pub const fn new() -> LogLimit {
        LogLimit { began: None, passed: 0, left_out: 0 }
    }

    /// Returns the number of lines left out since the previous one if a line is due now; otherwise `None`.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= LogLimit::SPAN) {
            (self.began, self.passed) = (Some(now), 0);
        }
        if self.passed == LogLimit::BURST {
            self.left_out += 1;
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_lines_of_a_second_are_ten_and_the_next_says_how_many_were_left_out() {
        let mut limit = LogLimit::new();
        let start = Instant::now();
        let time = |millis: u64| start + Duration::from_millis(millis);
        let passed = (0..1000).filter(|millis| limit.due(time(*millis)).is_some()).count();
        assert_eq!(passed, 10);
        assert_eq!(limit.due(time(4999)), None);
        assert_eq!(limit.due(time(5000)), Some(991));
        assert_eq!(limit.due(time(5001)), Some(0));
    }

    #[test]
    fn what_is_seldom_is_always_said() {
        let mut limit = LogLimit::new();
        let start = Instant::now();
        assert!((0..100).all(|second| limit.due(start + Duration::from_secs(second)) == Some(0)));
    }
}
