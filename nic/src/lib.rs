//! The NIC itself: queue pairs, work queues, completion queues, the scheduler. Pure: it never reads a clock, opens a
//! socket or starts a thread; whoever drives it hands it frames, time and the right to touch memory.
//!
//! Heads up: a work request goes `wqe` → `send_queue` → `queue_pair` (submit) → `egress`; a packet comes
//! `ingress` → transport → `gather` → `completion_queue`.

mod attributes;
mod completion_queue;
pub mod cqe;
mod egress;
mod event;
mod gather;
mod headers;
mod ingress;
mod nic;
mod queue_pair;
mod receive_queue;
mod request;
mod ring;
mod send_queue;
mod timers;
pub mod wqe;

pub use attributes::{AddressVector, Modify, ModifyFault};
pub use completion_queue::{Notify, Poller};
pub use event::AsyncEvent;
pub use nic::{Config, Nic, NicError, QueuePairInit};
pub use receive_queue::{stride, write_receive};
pub use request::*;
pub use ring::{MAX_RING_SLOTS, Ring, Word};
pub use wqe::PostError;
