//! The raw layer: the verbs as C programs know them, for libraries that implement the ABI of libibverbs.
//!
//! The NIC belongs to the process, or a daemon lends it. Queue pairs are created in RESET and moved by
//! [`Modify`](crate::Modify). Address vectors are made from a GID. Any threads may share the objects, which
//! have no lock beside the engine's. Dropping an object destroys nothing: each object has a `destroy`, which
//! is refused while another object uses it, as by the kernel.
//!
//! ```
//! use remora_verbs::raw::{ChannelAdapter, Cq, Qp, QpAttributes};
//! use remora_verbs::{Access, Device, Modify, Operation, Payload, Service, State, WorkRequest};
//!
//! let adapter = ChannelAdapter::open(&Device::udp("127.0.0.1:0")?)?;
//! let pd = adapter.alloc_domain()?;
//! let cq = Cq::create(&adapter, 16, None, false)?;
//! let attributes = QpAttributes { max_send_wr: 4, max_recv_wr: 4, ..QpAttributes::default() };
//! let qp = Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes)?;
//! assert_eq!(qp.query().and_then(|attributes| attributes.state), Some(State::Reset));
//!
//! // Connected to itself, by the NIC's own address and the queue pair's own number.
//! let own = adapter.facts().endpoint;
//! let init = Modify { state: Some(State::Init), access: Some(Access::REMOTE_WRITE), pkey_index: Some(0),
//!     port: Some(1), ..Modify::default() };
//! qp.modify(&init)?;
//! let rtr = Modify { state: Some(State::Rtr), address: Some(adapter.address_vector(own, 0, 64)?),
//!     path_mtu: Some(1024), dest_qp: Some(qp.number()), rq_psn: Some(remora_verbs::Psn::new(7)),
//!     max_dest_rd_atomic: Some(1), min_rnr_timer: Some(12), ..Modify::default() };
//! qp.modify(&rtr)?;
//! let rts = Modify { state: Some(State::Rts), sq_psn: Some(remora_verbs::Psn::new(7)), timeout: Some(14),
//!     retry_cnt: Some(7), rnr_retry: Some(7), max_rd_atomic: Some(1), ..Modify::default() };
//! qp.modify(&rts)?;
//!
//! let nop = WorkRequest { id: 9, operation: Operation::Nop, payload: Payload::Sges(&[]),
//!     flags: remora_verbs::Flags { signaled: true, ..Default::default() } };
//! qp.post_send(|queue| queue.push(&nop))??;
//! let mut ids = Vec::new();
//! while cq.poll(1, |cqe| ids.push(cqe.completion.id))? == 0 {}
//! assert_eq!(ids, [9]);
//! qp.destroy()?;
//! cq.destroy()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod channel_adapter;
mod cq;
mod inside;
mod introduce;
mod links;
mod memory;
mod qp;
mod reports;
mod srq;

pub use address::Ah;
pub use channel_adapter::ChannelAdapter;
pub use cq::Cq;
pub use introduce::{Introduce, Links, NoLink};
pub use qp::{Qp, QpAttributes};
pub use remora_host::{Channel, CqHook, EventHook, EventQueue};
pub use remora_memory::Pd;
pub use remora_nic::cqe::Cqe;
pub use remora_nic::wqe::{MAX_INLINE, MAX_SGE};
pub use remora_nic::{Destination, MAX_RING_SLOTS, ReceiveQueue, SendQueue, Target};
pub use remora_port::linked::Wanted;
pub use remora_port::shm::Link;
pub use remora_wire::Qpn;
pub use srq::Srq;
