//! The program's side of the queues: fills the slots of work queues and polls completion queues. It needs the
//! memory of the queues only, and rings no doorbells, because those belong to the program's device.
//!
//! Posting takes two steps. `push` fills slots, and `publish` makes all filled slots visible to the NIC by
//! one store of the producer index, so that a batch of requests costs one store and one doorbell.

mod poller;
mod receive_queue;
mod send_queue;

pub use poller::CompletionPoller;
pub use receive_queue::ReceiveQueue;
pub use send_queue::SendQueue;
