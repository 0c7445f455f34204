//! A flush of connections: before a peer stops, it acknowledges everything that was sent to it, so that no
//! sender runs out of retries.

use std::time::{Duration, Instant};

use remora_nic::wqe::ID_BITS;
use remora_verbs::{Key, QueuePair, Ready, Remote, Status, WorkCompletion, work};

use crate::Result;
use crate::error::ensure;

/// Id of the READs posted by a flush; no store machine uses this id.
const FLUSH: u64 = (1 << ID_BITS) - 1;
/// Maximum time for peers to acknowledge.
const PATIENCE: Duration = Duration::from_secs(20);

/// A flush of connections by zero-length READs, one per peer. A completed READ proves that its peer has
/// acknowledged everything that was posted before, which an answer of the application does not prove. Rounds
/// are repeated until nothing else completes during a round, because processing a completion may post more,
/// for instance returned buffers.
pub struct Flush {
    /// READs of this round that have not completed.
    left: usize,
    /// True if nothing else has completed since the round began. False before the first round.
    quiet: bool,
    began: Instant,
    /// Name of the peers for the error message.
    whom: &'static str,
}

impl Flush {
    /// Returns a flush of connections to `whom`.
    pub fn of(whom: &'static str) -> Flush {
        Flush { left: 0, quiet: false, began: Instant::now(), whom }
    }

    /// Returns false once everything is acknowledged. Otherwise posts the READs that are due; the caller
    /// must poll for completions, and pass each to [`takes`](Flush::takes).
    ///
    /// # Errors
    /// A queue does not accept a READ, or a peer does not answer.
    pub fn goes_on<'p>(&mut self, pairs: impl IntoIterator<Item = &'p mut QueuePair<Ready>>) -> Result<bool> {
        if self.left == 0 && self.quiet {
            return Ok(false);
        }
        ensure!(self.began.elapsed() < PATIENCE, Silent, "{} does not answer", self.whom);
        if self.left > 0 {
            // The peer may be waiting for this CPU core.
            std::thread::yield_now();
            return Ok(true);
        }
        self.quiet = true;
        for pair in pairs {
            pair.post_send(&work::read(FLUSH, &[], Remote { addr: 0, rkey: Key::new(0) }))?;
            self.left += 1;
        }
        Ok(true)
    }

    /// Returns true if the completion belongs to a READ of this flush.
    ///
    /// # Errors
    /// The READ failed.
    pub fn takes(&mut self, completion: &WorkCompletion) -> Result<bool> {
        let own = completion.id == FLUSH;
        if own {
            let status = completion.status;
            ensure!(status == Status::Success, Silent, "{} is gone: {}", self.whom, status.explain());
            self.left -= 1;
        }
        self.quiet &= own;
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_verbs::EMPTY;

    #[test]
    fn rounds_follow_each_other_until_nothing_else_has_ended_beside_one() {
        let mut flush = Flush::of("a peer");
        // Two rounds of completed READs.
        for _ in 0..2 {
            assert!(flush.goes_on([]).unwrap());
            flush.left = 1;
            assert!(flush.takes(&WorkCompletion { id: FLUSH, status: Status::Success, ..EMPTY }).unwrap());
            assert!(!flush.takes(&WorkCompletion { id: 5, ..EMPTY }).unwrap());
        }
        assert!(flush.goes_on([]).unwrap());
        assert!(!flush.goes_on([]).unwrap());
    }

    #[test]
    fn who_is_gone_is_named() {
        let mut flush = Flush::of("a peer");
        let failed = WorkCompletion { id: FLUSH, status: Status::RetryExceeded, ..EMPTY };
        let error = flush.takes(&failed).unwrap_err().to_string();
        assert!(error.starts_with("a peer is gone: "), "{error}");
    }
}
