//! Completion channels: sleeping until a completion comes.

use host::{Signal, wait_readable};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::{Context, CreateError, PollError};

/// Wake-ups that can wait in one channel: one for each armed queue is the most there can be.
const WAITING: usize = 4096;

/// Tells which of its completion queues, once armed ([`CompletionQueue::arm`](crate::CompletionQueue::arm)), got a
/// completion. Its descriptor is readable while there is something to tell, for `epoll` and the like.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    context: Context,
    signal: Arc<Signal<u64>>,
}

impl CompletionChannel {
    pub(crate) fn new(context: &Context) -> Result<CompletionChannel, CreateError> {
        context.refuse_child()?;
        let signal =
            Signal::new(WAITING).map_err(|error| CreateError::System(error.raw_os_error().unwrap_or(0)))?;
        Ok(CompletionChannel { context: context.clone(), signal: Arc::new(signal) })
    }

    pub(crate) fn signal(&self) -> &Arc<Signal<u64>> {
        &self.signal
    }

    /// The [tag](crate::CompletionQueue::tag) of a queue that got a completion; none at the moment.
    pub fn poll(&self) -> Option<u64> {
        self.signal.take()
    }

    /// Sleeps until an armed queue got a completion: its [tag](crate::CompletionQueue::tag).
    ///
    /// # Errors
    /// `Timeout`; `Forked`; `System`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<u64, PollError> {
        loop {
            if self.context.fork().is_child() {
                return Err(PollError::Forked);
            }
            if let Some(tag) = self.poll() {
                return Ok(tag);
            }
            match wait_readable(self.signal.as_fd(), timeout) {
                Ok(true) => {}
                Ok(false) => return Err(PollError::Timeout),
                Err(error) => return Err(PollError::System(error.raw_os_error().unwrap_or(0))),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}
