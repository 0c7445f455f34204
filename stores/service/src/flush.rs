//! Before a peer is stopped, or goes away, it acknowledges all that was sent to it: nobody's retries run out
//! then.

use std::time::{Duration, Instant};

use remora_nic::wqe::ID_BITS;
use remora_verbs::{Key, QueuePair, Ready, Remote, Status, WorkCompletion, work};

use crate::Result;
use crate::error::ensure;

/// Id of the READs posted here; no machine of the stores gives such a one.
const FLUSH: u64 = (1 << ID_BITS) - 1;
/// How long peers may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// READs of nothing, one to each peer: when one has ended, its peer has acknowledged all that was posted
/// before, which an answer does not say. They go round until nothing else has ended beside them, since who
/// takes a completion may post more: buffers go back.
pub struct Flush {
    /// Those of this round that have not ended.
    left: usize,
    /// Nothing else has ended since it began; false, too, before the first one.
    quiet: bool,
    began: Instant,
    /// Who does not answer if they do not end.
    whom: &'static str,
}

impl Flush {
    /// Of connections to `whom`.
    pub fn of(whom: &'static str) -> Flush {
        Flush { left: 0, quiet: false, began: Instant::now(), whom }
    }

    /// False: all is acknowledged. Posts what is due otherwise; completions are to be polled for then, each
    /// to be shown to [`takes`](Flush::takes).
    ///
    /// # Errors
    /// A queue does not take a READ, or a peer does not answer.
    pub fn goes_on<'p>(&mut self, pairs: impl IntoIterator<Item = &'p mut QueuePair<Ready>>) -> Result<bool> {
        if self.left == 0 && self.quiet {
            return Ok(false);
        }
        ensure!(self.began.elapsed() < PATIENCE, Silent, "{} does not answer", self.whom);
        if self.left > 0 {
            // The peer may be waiting for this core.
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

    /// Is it one of its own?
    ///
    /// # Errors
    /// It is, and has failed.
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
        // Two rounds of READs that have ended.
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
