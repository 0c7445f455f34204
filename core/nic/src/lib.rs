//! The NIC itself: queue pairs, work queues, completion queues, the scheduler. Pure: it never reads a clock, opens a
//! socket or starts a thread; whoever drives it hands it frames, time and the right to touch memory.
//!
//! Heads up: a work request goes `wqe` → `send_queue` → `queue_pair` (submit) → `egress`; a packet comes
//! `ingress` → transport → `gather` → `completion_queue`.

mod address_handle;
mod attributes;
pub mod chain;
mod completion_queue;
mod congestion;
pub mod cost;
pub mod cqe;
mod datagram;
mod egress;
mod event;
mod extended;
mod fair_scheduler;
mod gather;
mod headers;
mod ingress;
mod irn;
pub mod kernel;
mod multicast;
mod nic;
pub mod prism;
mod queue_pair;
mod receive_queue;
mod reliable;
mod request;
mod ring;
mod send_queue;
mod shared_receive_queue;
mod timers;
mod unreliable;
pub mod wqe;
mod xrc_domain;

pub use attributes::{AddressVector, Modify, ModifyFault, PathMigration};
pub use completion_queue::{Notify, Poller};
pub use datagram::GRH;
pub use event::AsyncEvent;
pub use multicast::MULTICAST_QPN;
pub use nic::{Config, Nic, NicError, QueuePairInit, Receives};
pub use receive_queue::{stride, write_receive};
pub use remora_transport::state::Service;
pub use remora_transport::ud::Destination;
pub use request::*;
pub use ring::{MAX_RING_SLOTS, Ring, Word};
pub use send_queue::Fetching;
pub use shared_receive_queue::{SrqFacts, SrqInit, XrcSrq};
pub use wqe::{PostError, Target};
