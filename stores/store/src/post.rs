//! What a machine sees of its queue pairs.

use remora_nic::{PostError, ReceiveRequest, WorkRequest, prism};
use remora_transport::Status;

/// The queue pair of a machine, as the machine sees it. An implementation may ring the doorbell at each call
/// or once after a batch of them.
pub trait Post {
    /// Puts a work request on the send queue.
    ///
    /// # Errors
    /// The queue is full or takes no such request; nothing was posted. With queues of the size that
    /// [`QueueNeeds`](crate::QueueNeeds) asks for, "full" does not happen.
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Puts a receive request on the receive queue.
    ///
    /// # Errors
    /// As [`post_send`](Post::post_send).
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError>;
}

/// A queue pair that both sides set up for PRISM.
pub trait PostPrism: Post {
    /// Puts a work request of PRISM on the send queue.
    ///
    /// # Errors
    /// As [`post_send`](Post::post_send).
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError>;
}

/// The queue pairs of a machine that works with several servers.
pub trait Connections {
    /// One of them.
    type Endpoint<'a>: PostPrism
    where
        Self: 'a;

    /// The queue pair of a server, by its number.
    fn endpoint(&mut self, server: usize) -> Self::Endpoint<'_>;
}

/// The queue pair is of no further use to the machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A work request ended with this status.
    Completion(Status),
    /// A work request was not taken.
    Post(PostError),
    /// The peer sent what no correct peer sends.
    Protocol,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Broken::Completion(status) => write!(f, "the queue pair failed: {}", status.explain()),
            Broken::Post(error) => write!(f, "the queue pair took no request: {error}"),
            Broken::Protocol => f.write_str("the peer sent a message that no correct peer sends"),
        }
    }
}

impl core::error::Error for Broken {}

impl From<PostError> for Broken {
    fn from(error: PostError) -> Broken {
        Broken::Post(error)
    }
}
