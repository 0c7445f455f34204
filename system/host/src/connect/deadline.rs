//! The times within which a set-up must be complete.

use std::time::{Duration, Instant};

/// Longest time that the route to an endpoint is waited for without a connection set-up.
pub const ROUTE_PATIENCE: Duration = NEIGHBOUR_TIMEOUT;

/// Time within which a peer's neighbour must answer, unless the whole set-up has less. It covers several
/// rounds of three requests, because those of the first seconds are lost where an address is still being
/// checked or a link has just come up.
pub(super) const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(15);

/// The time when a whole set-up must be complete.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now() + timeout)
    }

    /// Returns the remaining time, never zero; `None` if the deadline has passed.
    pub(crate) fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}
