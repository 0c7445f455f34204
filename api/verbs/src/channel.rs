//! Completion channels (`ibv_comp_channel`): sleeping until a completion comes.

use remora_host::{Channel, Signal, wait_readable};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::nicd::DaemonClient;
use crate::nicd::message::Request;
use crate::{Context, CreateError, PollError};

/// Wake-ups that can wait in one channel: one for each armed queue is the most there can be.
const WAITING: usize = 4096;

/// Reports which of its completion queues, once armed
/// ([`CompletionQueue::arm`](crate::CompletionQueue::arm)), got a completion. Its descriptor is readable
/// while there is a report, for `epoll` and the like (`ibv_comp_channel`).
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    context: Context,
    channel: Channel,
    lent: Option<Arc<Lent>>,
}

/// The program's side of a channel that a daemon lends.
#[derive(Debug)]
struct Lent {
    daemon: Arc<DaemonClient>,
    number: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.daemon.release(&Request::DestroyChannel(self.number));
    }
}

impl CompletionChannel {
    pub(crate) fn new(context: &Context) -> Result<CompletionChannel, CreateError> {
        context.refuse_child()?;
        if let Some(daemon) = context.daemon() {
            let (number, socket) = daemon.create_channel()?;
            let lent = Arc::new(Lent { daemon: Arc::clone(daemon), number });
            let channel = Channel::There(Arc::new(socket));
            return Ok(CompletionChannel { context: context.clone(), channel, lent: Some(lent) });
        }
        let signal =
            Signal::new(WAITING).map_err(|error| CreateError::System(error.raw_os_error().unwrap_or(0)))?;
        Ok(CompletionChannel {
            context: context.clone(),
            channel: Channel::Here(Arc::new(signal)),
            lent: None,
        })
    }

    /// A channel whose other end is with another process: it reports to the program of a daemon.
    pub(crate) fn to(context: &Context, socket: OwnedFd) -> CompletionChannel {
        CompletionChannel { context: context.clone(), channel: Channel::There(Arc::new(socket)), lent: None }
    }

    /// The channel's number at the daemon.
    pub(crate) fn number(&self) -> Result<u32, CreateError> {
        self.lent.as_ref().map(|lent| lent.number).ok_or(CreateError::OtherContext)
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The [tag](crate::CompletionQueue::tag) of a queue that got a completion; none at the moment. A forked
    /// child gets none: a report that it took would be lost to its parent.
    pub fn poll(&self) -> Option<u64> {
        if self.context.fork().is_child() { None } else { self.channel.take() }
    }

    /// Sleeps until an armed queue got a completion; returns its [tag](crate::CompletionQueue::tag).
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
            if self.context.has_failed() {
                return Err(PollError::Failed);
            }
            match wait_readable(self.channel.as_fd(), timeout) {
                Ok(true) => {}
                Ok(false) => return Err(PollError::Timeout),
                Err(error) => return Err(PollError::System(error.raw_os_error().unwrap_or(0))),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
