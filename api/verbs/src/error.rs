//! Errors that occur before a work request is under way. Later failures are reported by completions.

use remora_memory::Reentered;
use std::fmt;

/// The reason why an object could not be created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// The process was forked after the context was opened. A child must open a device of its own.
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY).
    Reentered,
    /// An error of the memory table.
    Memory(remora_memory::Error),
    /// An error of the NIC.
    Nic(remora_nic::NicError),
    /// The queue pair's attributes do not allow the change of state.
    Modify(remora_nic::ModifyFault),
    /// The completion queues are on different engines. Create both on one (`CqOptions::engine`).
    DifferentEngines,
    /// A completion queue, region or domain belongs to another context.
    OtherContext,
    /// The port cannot reach the address; contains the port's text.
    Unreachable(String),
    /// The port cannot join the multicast group; contains the port's text.
    Group(String),
    /// A value is too large: its name, the value, and the greatest one allowed.
    TooMany(&'static str, u64, u64),
    /// A value is too small: its name, the value, and the least one allowed.
    TooFew(&'static str, u64, u64),
    /// The operating system refused a resource: its name, and the errno.
    System(&'static str, i32),
    /// The NIC belongs to a daemon, and a daemon does not offer this.
    NotByDaemon,
    /// The NIC daemon refused; contains the daemon's text.
    Daemon(String),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Forked => f.write_str(FORKED),
            CreateError::Reentered => f.write_str(REENTERED),
            CreateError::Memory(error) => error.fmt(f),
            CreateError::Nic(error) => error.fmt(f),
            CreateError::Modify(fault) => fault.fmt(f),
            CreateError::DifferentEngines => f.write_str(
                "the completion queues are on different engines: create both on one (CqOptions::engine)",
            ),
            CreateError::Unreachable(words) | CreateError::Group(words) => f.write_str(words),
            CreateError::OtherContext => f.write_str(
                "a completion queue, region or domain belongs to another context: make it by this one",
            ),
            CreateError::TooMany(what, asked, most) => {
                write!(
                    f,
                    "{what} of {asked}; at most {most} is possible{}",
                    if *asked == 0 { ", at least 1" } else { "" }
                )
            }
            CreateError::TooFew(what, asked, least) => {
                write!(f, "{what} of {asked}; at least {least} is possible")
            }
            CreateError::NotByDaemon => f.write_str(NOT_BY_DAEMON),
            CreateError::Daemon(words) => f.write_str(words),
            CreateError::System(resource, errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "the system gives no {resource}: {error}{}", remora_port::remedy(&error))
            }
        }
    }
}

impl std::error::Error for CreateError {}

impl CreateError {
    /// Returns the conversion of errors of the system while this resource is requested.
    pub(crate) fn system(resource: &'static str) -> impl Fn(std::io::Error) -> CreateError + Copy {
        move |error| CreateError::System(resource, error.raw_os_error().unwrap_or(0))
    }
}

impl From<remora_memory::Error> for CreateError {
    fn from(error: remora_memory::Error) -> CreateError {
        CreateError::Memory(error)
    }
}

impl From<remora_nic::NicError> for CreateError {
    fn from(error: remora_nic::NicError) -> CreateError {
        CreateError::Nic(error)
    }
}

const NOT_BY_DAEMON: &str = "the NIC belongs to a daemon, which lends regions of its own memory (`ProtectionDomain::allocate`), \
                             completion queues and connected queue pairs: memory of this program, and other queues, need a NIC of its own";
const FORKED: &str = "the process was forked since the device was opened: open one in the child";
const REENTERED: &str = "a signal handler calls the NIC that its thread was calling: call it later";
const FAILED: &str = "a thread of the NIC has failed, or its daemon is gone: open the device anew";

/// The reason why a work request was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue refuses the work request.
    Queue(remora_nic::PostError),
    /// The process was forked after the context was opened.
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY). Nothing was posted.
    Reentered,
    /// A thread of the NIC has failed, or its daemon is gone.
    Failed,
    /// The queue pair has no receive queue, or takes its receives from a shared receive queue.
    NoReceiveQueue,
    /// The address handle belongs to another engine or context than the queue pair.
    OtherEngine,
    /// A datagram has no destination; `post_send_to` takes one.
    NoDestination,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::Queue(error) => error.fmt(f),
            PostError::Forked => f.write_str(FORKED),
            PostError::Reentered => f.write_str(REENTERED),
            PostError::Failed => f.write_str(FAILED),
            PostError::NoReceiveQueue => f.write_str(
                "the queue pair has no receive queue of its own: post to its shared receive queue",
            ),
            PostError::NoDestination => {
                f.write_str("a datagram needs a destination: post it by `post_send_to`")
            }
            PostError::OtherEngine => {
                f.write_str("the address handle was made on another engine: make it on the queue pair's")
            }
        }
    }
}

impl std::error::Error for PostError {}

impl From<Reentered> for PostError {
    fn from(_: Reentered) -> PostError {
        PostError::Reentered
    }
}

impl From<Reentered> for PollError {
    fn from(_: Reentered) -> PollError {
        PollError::Reentered
    }
}

impl From<remora_nic::PostError> for PostError {
    fn from(error: remora_nic::PostError) -> PostError {
        PostError::Queue(error)
    }
}

/// The reason why polling found no completion and will find none, or found none in time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PollError {
    /// More completions came than the queue holds, and some are lost. The queue must be as deep as all
    /// signaled work that may be outstanding.
    Overrun,
    /// No completion came in time.
    Timeout,
    /// The process was forked after the context was opened.
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY).
    Reentered,
    /// A thread of the NIC has failed, or its daemon is gone.
    Failed,
    /// The operating system refused to wait; contains the errno.
    System(i32),
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollError::Overrun => f.write_str(
                "completions were lost: the queue must be as deep as all signaled work that may be outstanding",
            ),
            PollError::Timeout => f.write_str("no completion came in time"),
            PollError::Forked => f.write_str(FORKED),
            PollError::Reentered => f.write_str(REENTERED),
            PollError::Failed => f.write_str(FAILED),
            PollError::System(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for PollError {}
