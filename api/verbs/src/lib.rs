//! Remora's Rust API, in the terms of the verbs. A [`Device`] describes a NIC; opening it gives a
//! [`Context`]. The context creates [`ProtectionDomain`]s, [`MemoryRegion`]s, [`CompletionQueue`]s and
//! [`QueuePair`]s. A program posts a [`WorkRequest`] to a queue pair and later polls its [`WorkCompletion`]
//! from a completion queue.
//!
//! ```
//! use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, work};
//!
//! let context = Device::shm().open()?;
//! let domain = context.alloc_pd()?;
//! let mut cq = context.create_cq(64)?;
//!
//! // Both ends of the connection in one process; `QueuePair::connect` and `Listener` do it between two.
//! let pair = || domain.create_qp(&cq, &cq, &QpOptions::default());
//! let (mut a, _b) = QueuePair::connect_pair(pair()?, pair()?)?;
//!
//! let source = domain.allocate(4096, Access::LOCAL_WRITE)?;
//! let target = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! source.write(0, b"over there")?;
//! a.post_send(&work::write(7, &[source.sge(0, 10)], target.remote(100)))?;
//!
//! let mut done = [EMPTY; 1];
//! cq.wait(&mut done, std::time::Duration::from_secs(1))?;
//! assert_eq!((done[0].id, done[0].status), (7, remora_verbs::Status::Success));
//! let mut there = [0; 10];
//! target.read(100, &mut there)?;
//! assert_eq!(&there, b"over there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each object keeps its context alive, so a program may drop its objects in any order. The text of an error
//! says what is wrong and how to put it right. The outcome of a work request is a value ([`Status`]), not an
//! error.
#![allow(unsafe_code, reason = "foreign memory is registered here")]
#![allow(clippy::too_many_arguments, reason = "a transfer has as many operands")]

mod answer_buffers;
mod channel;
mod code;
mod completion_queue;
mod context;
mod datagram;
mod device;
pub mod doctor;
mod domain;
mod engine_handle;
mod errno;
mod error;
mod free_list;
mod handshakes;
mod kernel_module;
mod kernels;
mod listener;
pub mod nicd;
mod offload;
mod qp_handle;
mod queue_pair;
pub mod raw;
mod region;
pub mod rma;
mod srq;
#[cfg(test)]
mod tests;
mod window;
pub mod work;
mod xrc;

pub use answer_buffers::{AnswerBuffers, AnswerError, KernelAnswer};
pub use channel::CompletionChannel;
pub use completion_queue::{CompletionQueue, CqOptions, EMPTY, StampedCompletion};
pub use context::Context;
pub use datagram::{AddressHandle, DatagramQueuePair, GlobalRoute, RemoteQueue};
pub use device::Device;
pub use domain::ProtectionDomain;
pub use errno::{errno_of_memory, errno_of_open};
pub use error::{CreateError, PollError, PostError};
pub use free_list::{FreeList, FreeListOptions};
pub use handshakes::Handshakes;
pub use kernel_module::{KernelLoader, KernelModule};
pub use kernels::{KernelHandle, KernelOptions};
pub use listener::{Answered, ConnectRequest, Listener};
pub use offload::{Call, LoadError, Loader, Offload};
pub use queue_pair::{Batch, Init, QpOptions, QueuePair, Ready};
pub use region::{MemoryRegion, RemoteMemory};
pub use srq::{Srq, SrqOptions};
pub use window::{MemoryWindow, NullRegion};
pub use xrc::{XrcDomain, XrcInitiator, XrcTarget};

pub use remora_chain as chain;
pub use remora_host::connect::{Capacity, ConnectError, Departures, Full, SetupConnection};
pub use remora_host::{
    DriverCounters, EngineEvent, Mode, OpenError, PortFacts, PortKind, Rules, RulesError, parse_bytes,
};
pub use remora_memory::Config as MemoryConfig;
pub use remora_memory::{
    Access, AccessError, Binding, Bytes, Error as MemoryError, Key, Range, WindowType, page_fault,
};
pub use remora_nic::PostError as QueueError;
pub use remora_nic::cqe::TIMESTAMP_BITS;
pub use remora_nic::kernel;
pub use remora_nic::prism;
pub use remora_nic::{
    AddressVector, AsyncEvent, Calculation, CompletionKind, Fetching, Flags, GRH, GSI_QKEY, MAX_WR,
    MULTICAST_QPN, Modify, NetworkType, NicError, Notify, Operation, PathMigration, Payload, ReceiveCaps,
    ReceiveRequest, Remote, SendCaps, Service, Sge, SrqFacts, Status, WorkCompletion, WorkRequest,
};
pub use remora_port::Counters as PortCounters;
pub use remora_port::fault::{Tally, verbs as faults};
pub use remora_transport::rc::irn;
pub use remora_transport::state::State;
pub use remora_transport::{Counters, congestion};
pub use remora_wire::Psn;
pub use remora_wire::frame::{Address, Endpoint};
