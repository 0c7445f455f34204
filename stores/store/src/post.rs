//! The queue pair as a machine of this crate sees it.

use remora_nic::{PostError, ReceiveRequest, WorkRequest, prism};
use remora_transport::Status;

/// The queue pair of a machine. An implementation may ring the doorbell at each call or once after a batch
/// of calls.
pub trait Post {
    /// Posts a work request to the send queue.
    ///
    /// # Errors
    /// The queue is full or does not support the request; nothing was posted. A queue of the size that
    /// [`QueueNeeds`](crate::QueueNeeds) asks for is never full.
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive request to the receive queue.
    ///
    /// # Errors
    /// The queue is full or does not support the request; nothing was posted.
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError>;
}

/// A queue pair on which both sides enabled PRISM.
pub trait PostPrism: Post {
    /// Posts a PRISM work request to the send queue.
    ///
    /// # Errors
    /// The queue is full or does not support the request; nothing was posted.
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError>;
}

/// The queue pairs of a machine that works with several servers.
pub trait Connections {
    /// The queue pair of one server.
    type Endpoint<'a>: PostPrism
    where
        Self: 'a;

    /// Returns the queue pair of the server with this number.
    fn endpoint(&mut self, server: usize) -> Self::Endpoint<'_>;
}

/// The reason for which a machine can no longer use a queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A work request completed with this error status.
    Completion(Status),
    /// The queue did not accept a work request.
    Post(PostError),
    /// The peer violated the protocol.
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
