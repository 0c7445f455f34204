//! Completion channels (`ibv_comp_channel`): a program sleeps on one until a completion queue has a
//! completion.

use remora_host::{Channel, Signal, wait_readable};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::nicd::DaemonClient;
use crate::nicd::message::Request;
use crate::{Context, CreateError, PollError};

/// Maximum number of reports that can wait in one channel. Each armed queue has at most one.
const WAITING: usize = 4096;

/// A channel that reports which of its armed completion queues
/// ([`CompletionQueue::arm`](crate::CompletionQueue::arm)) got a completion (`ibv_comp_channel`). Its
/// descriptor is readable while a report waits, for `epoll` and the like.
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
        self.daemon.release_by(&Request::DestroyChannel(self.number));
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
        let signal = Signal::new(WAITING).map_err(CreateError::system("eventfd for a completion channel"))?;
        Ok(CompletionChannel {
            context: context.clone(),
            channel: Channel::Here(Arc::new(signal)),
            lent: None,
        })
    }

    /// The channel's number at the daemon.
    pub(crate) fn number(&self) -> Result<u32, CreateError> {
        self.lent.as_ref().map(|lent| lent.number).ok_or(CreateError::OtherContext)
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the [tag](crate::CompletionQueue::tag) of a queue that got a completion, or `None` if no
    /// report waits. Always `None` in a forked child: a report taken by the child would be lost to its
    /// parent.
    pub fn poll(&self) -> Option<u64> {
        if self.context.fork().is_child() { None } else { self.channel.take() }
    }

    /// Sleeps until an armed queue gets a completion, and returns the queue's
    /// [tag](crate::CompletionQueue::tag).
    ///
    /// # Errors
    /// `Timeout` if nothing came in time; `Forked` in a forked child; `Failed`; `System` with the errno of
    /// the wait.
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
