//! Connecting to a server that may be full for a moment: the client retries until a place is free.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use remora_verbs::{CompletionQueue, ProtectionDomain, QpOptions, QueuePair, Ready};

use crate::Result;

/// Maximum time for which a client waits for a free place.
pub const TURN: Duration = Duration::from_secs(5);
/// The first pause between two attempts, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];

/// Connects a new queue pair. While the server is full, the client retries for up to [`TURN`].
///
/// # Errors
/// The NIC failed, or `Error::Connect` of the last attempt.
pub fn connect(
    domain: &ProtectionDomain,
    cq: &CompletionQueue,
    options: &QpOptions,
    address: impl ToSocketAddrs,
) -> Result<QueuePair<Ready>> {
    connect_within(TURN, domain, cq, options, address)
}

/// Connects a new queue pair. While the server is full, the client retries for up to `turn`.
///
/// # Errors
/// The errors of [`connect`].
pub fn connect_within(
    turn: Duration,
    domain: &ProtectionDomain,
    cq: &CompletionQueue,
    options: &QpOptions,
    address: impl ToSocketAddrs,
) -> Result<QueuePair<Ready>> {
    let until = Instant::now() + turn;
    let [mut pause, longest] = PAUSES;
    loop {
        // A failed attempt destroys its queue pair.
        let failed = match domain.create_qp(cq, cq, options)?.connect(&address) {
            Ok(pair) => return Ok(pair),
            Err(error) => error,
        };
        let left = until.saturating_duration_since(Instant::now());
        if !failed.is_for_now() || left.is_zero() {
            return Err(failed.into());
        }
        std::thread::sleep(spread(pause).min(left));
        pause = (pause * 3 / 2).min(longest);
    }
}

/// Returns a random time between half of `pause` and `pause`, so that many waiting clients do not retry at
/// the same time.
fn spread(pause: Duration) -> Duration {
    let share = remora_host::random().map_or(0, |random| random as u32 & 0xff);
    pause / 2 + pause / 2 * share / 256
}
