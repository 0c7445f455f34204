//! Errors that occur before a work request is under way. Later failures are reported by completions.

use remora_memory::Reentered;

/// The reason why an object could not be created or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The process was forked after the context was opened. A child must open a device of its own.
    #[error("{}", FORKED)]
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY).
    #[error("{}", REENTERED)]
    Reentered,
    /// An error of the memory table.
    #[error("{0}")]
    Memory(remora_memory::Error),
    /// An error of the NIC.
    #[error("{0}")]
    Nic(remora_nic::NicError),
    /// The queue pair's attributes do not allow the change of state.
    #[error("{0}")]
    Modify(remora_nic::ModifyFault),
    /// The completion queues are on different engines. Create both on one (`CqOptions::engine`).
    #[error("the completion queues are on different engines: create both on one (CqOptions::engine)")]
    DifferentEngines,
    /// A completion queue, region or domain belongs to another context.
    #[error("a completion queue, region or domain belongs to another context: make it by this one")]
    OtherContext,
    /// The port cannot reach the address; contains the port's text.
    #[error("{0}")]
    Unreachable(String),
    /// The port cannot join the multicast group; contains the port's text.
    #[error("{0}")]
    Group(String),
    /// A value is too large: its name, the value, and the greatest one allowed.
    #[error("{0} of {1}; at most {2} is possible{least}", least = if *.1 == 0 { ", at least 1" } else { "" })]
    TooMany(&'static str, u64, u64),
    /// A value is too small: its name, the value, and the least one allowed.
    #[error("{0} of {1}; at least {2} is possible")]
    TooFew(&'static str, u64, u64),
    /// The operating system refused a resource: its name, and the errno.
    #[error(
        "the system gives no {0}: {error}{advice}",
        error = system_error(*.1),
        advice = remora_port::remedy(&system_error(*.1))
    )]
    System(&'static str, i32),
    /// The module of a kernel cannot be loaded; contains the loader's text.
    #[error("{0}")]
    Module(String),
    /// The NIC belongs to a daemon, and a daemon does not offer this.
    #[error("{}", NOT_BY_DAEMON)]
    NotByDaemon,
    /// The user has as much of a daemon's NIC as it may have; contains the daemon's text.
    #[error("{0}")]
    Limit(String),
    /// The NIC daemon refused; contains the daemon's text.
    #[error("{0}")]
    Daemon(String),
}

fn system_error(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

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

impl From<remora_nic::CommandError> for CreateError {
    fn from(error: remora_nic::CommandError) -> CreateError {
        match error.fault {
            remora_nic::CommandFault::Nic(error) => CreateError::Nic(error),
            remora_nic::CommandFault::Modify(fault) => CreateError::Modify(fault),
            remora_nic::CommandFault::Reply => CreateError::Daemon(error.to_string()),
        }
    }
}

impl From<remora_nic::DeviceError> for CreateError {
    fn from(error: remora_nic::DeviceError) -> CreateError {
        match error {
            remora_nic::DeviceError::Command(error) => error.into(),
            remora_nic::DeviceError::Memory(error) => CreateError::Memory(error),
            remora_nic::DeviceError::Unsupported => CreateError::NotByDaemon,
            remora_nic::DeviceError::Limit(words) => CreateError::Limit(words),
            remora_nic::DeviceError::Host(words) => CreateError::Daemon(words),
        }
    }
}

impl From<remora_host::ModifyRefusal> for CreateError {
    fn from(refusal: remora_host::ModifyRefusal) -> CreateError {
        match refusal {
            remora_host::ModifyRefusal::Nic(error) => error.into(),
            remora_host::ModifyRefusal::Peer(error) => CreateError::Unreachable(error.to_string()),
        }
    }
}

impl From<remora_nic::NicError> for CreateError {
    fn from(error: remora_nic::NicError) -> CreateError {
        CreateError::Nic(error)
    }
}

const NOT_BY_DAEMON: &str = "the NIC belongs to a daemon, which uses memory that it shares with the program \
                             (`ProtectionDomain::allocate`): other memory of the program, memory on the NIC \
                             and kernels that are no module need a NIC of its own";
const FORKED: &str = "the process was forked since the device was opened: open one in the child";
const REENTERED: &str = "a signal handler calls the NIC that its thread was calling: call it later";
const FAILED: &str = "a thread of the NIC has failed, or its daemon is gone: open the device anew";

/// The reason why a work request was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue refuses the work request.
    #[error("{0}")]
    Queue(remora_nic::PostError),
    /// The process was forked after the context was opened.
    #[error("{}", FORKED)]
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY). Nothing was posted.
    #[error("{}", REENTERED)]
    Reentered,
    /// A thread of the NIC has failed, or its daemon is gone.
    #[error("{}", FAILED)]
    Failed,
    /// The queue pair has no receive queue, or takes its receives from a shared receive queue.
    #[error("the queue pair has no receive queue of its own: post to its shared receive queue")]
    NoReceiveQueue,
    /// The address handle belongs to another engine or context than the queue pair.
    #[error("the address handle was made on another engine: make it on the queue pair's")]
    OtherEngine,
    /// A datagram has no destination; `post_send_to` takes one.
    #[error("a datagram needs a destination: post it by `post_send_to`")]
    NoDestination,
}

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
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    /// More completions came than the queue holds, and some are lost. The queue must be as deep as all
    /// signaled work that may be outstanding.
    #[error("completions were lost: the queue must be as deep as all signaled work that may be outstanding")]
    Overrun,
    /// No completion came in time.
    #[error("no completion came in time")]
    Timeout,
    /// The process was forked after the context was opened.
    #[error("{}", FORKED)]
    Forked,
    /// The caller is a signal handler that interrupted a call on this NIC (EBUSY).
    #[error("{}", REENTERED)]
    Reentered,
    /// A thread of the NIC has failed, or its daemon is gone.
    #[error("{}", FAILED)]
    Failed,
    /// The operating system refused to wait; contains the errno.
    #[error("{}", system_error(*.0))]
    System(i32),
}
