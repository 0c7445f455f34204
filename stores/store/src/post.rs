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
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A work request completed with this error status.
    #[error("the queue pair failed: {}", .0.explain())]
    Completion(Status),
    /// The queue did not accept a work request.
    #[error("the queue pair took no request: {0}")]
    Post(PostError),
    /// The peer violated the protocol.
    #[error("the peer sent a message that no correct peer sends")]
    Protocol,
}

impl From<PostError> for Broken {
    fn from(error: PostError) -> Broken {
        Broken::Post(error)
    }
}
