//! The NIC itself: queue pairs, work queues, completion queues and the packet scheduler, as one state machine
//! without I/O. The NIC never reads a clock, opens a socket or starts a thread: its driver passes in the
//! frames, the time and access to the registered memory.
//!
//! Where to start reading: a work request passes through `wqe`, `send_queue`, `queue_pair/submit` and
//! `queue_pair/egress`; a received packet passes through `queue_pair/ingress`, the transport crate, `gather`
//! and `completion_queue`. The program's side of the queues is `program`.

#![allow(
    clippy::too_many_arguments,
    reason = "a packet needs much state at once; a struct made for one call hides which parts a function uses"
)]

mod address_handle;
mod arrived;
mod attributes;
mod bare;
mod calculation;
pub mod chain;
mod command;
mod completion_queue;
mod completion_queues;
mod config;
mod congestion;
mod context;
pub mod cqe;
mod datagram;
mod device;
mod doorbell;
mod emit;
mod event;
mod extended;
mod extras;
mod fair_scheduler;
mod gather;
mod headers;
mod identification;
mod irn;
pub mod kernel;
mod machine;
mod multicast;
mod nic;
mod offloads;
mod part_number;
mod parts;
mod path;
pub mod prism;
mod program;
mod qp_numbers;
mod queue_caps;
mod queue_pair;
mod receive_queue;
mod reliable;
mod request;
mod ring;
pub mod rma;
mod send_queue;
mod service_bits;
mod shared;
mod shared_receive_queue;
mod stopped_queues;
mod timers;
mod turn;
mod unreliable;
pub mod wqe;
mod wqe_opcode;
mod xrc_domain;

pub use attributes::{AddressVector, Modify, ModifyFault, PathMigration, PeerFrames, QueuePairFacts};
pub use bare::Bare;
pub use command::{Command, CommandError, CommandFault, CommandKind, FromReply, ObjectName, Reply};
pub use completion_queue::{CqFlags, Notify};
pub use config::{Config, NicError, QueuePairInit, Receives};
pub use datagram::GRH;
pub use device::{Device, DeviceError};
pub use doorbell::{BellOwner, Doorbell};
pub use event::AsyncEvent;
pub use fair_scheduler::FIRST_TENANT;
pub use multicast::MULTICAST_QPN;
pub use nic::Nic;
pub use part_number::PartNumber;
pub use parts::{HandedPart, MAX_PARTS};
pub use prism::MAX_WORDS;
pub use program::{CompletionPoller, ReceiveQueue, SendQueue};
pub use queue_caps::{MAX_WR, ReceiveCaps, SendCaps};
pub use queue_pair::GSI_QKEY;
pub use receive_queue::stride;
pub use remora_transport::state::Service;
pub use remora_transport::ud::Destination;
pub use request::*;
pub use ring::{MAX_RING_SLOTS, Ring, Word};
pub use send_queue::Fetching;
pub use shared_receive_queue::{SrqFacts, SrqInit, XrcSrq};
pub use wqe::{PostError, Target};
