//! The control path as values: a [`Command`] creates, changes, queries or destroys an object of the NIC, and
//! [`Nic::execute`](crate::Nic::execute) returns a [`Reply`] or a [`CommandError`].
//!
//! Commands can be compared, printed, stored and sent to another process. Objects are named by their numbers;
//! memory and code are named by the numbers of parts that the host has handed to the NIC (`parts.rs`).

mod error;
mod execute;
mod names;
mod reply;

use remora_memory::Pd;
use remora_wire::Qpn;
use remora_wire::frame::Address;
use serde::{Deserialize, Serialize};
use strum::EnumDiscriminants;

use crate::attributes::{AddressVector, Modify};
use crate::chain::LoopbackInit;
use crate::completion_queue::{CqFlags, Notify};
use crate::config::QueuePairInit;
use crate::kernel::{Invocation, KernelInit};
use crate::part_number::PartNumber;
use crate::prism::FreeListInit;
use crate::rma::PortalInit;
use crate::shared_receive_queue::SrqInit;
pub use error::{CommandError, CommandFault};
pub use names::ObjectName;
pub use reply::{FromReply, Reply};

/// A command of the control path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(
    name(CommandKind),
    derive(strum::Display, strum::EnumIter, Serialize, Deserialize),
    strum(serialize_all = "title_case"),
    doc = "The kind of a command."
)]
pub enum Command {
    /// Creates a completion queue. The reply is its number.
    CreateCq {
        /// Memory of the queue.
        ring: PartNumber,
        /// Optional features.
        flags: CqFlags,
    },
    /// Moves a completion queue to another ring, with the completions that are not polled yet.
    ResizeCq {
        /// Number of the queue.
        cq: u32,
        /// New memory of the queue.
        ring: PartNumber,
    },
    /// Requests one wake-up of a completion queue.
    NotifyCq {
        /// Number of the queue.
        cq: u32,
        /// Completions that wake the program.
        notify: Notify,
    },
    /// Asks for the number of completions written since the completion queue was created.
    CountCompletions {
        /// Number of the queue.
        cq: u32,
    },
    /// Destroys a completion queue. Refused with `Busy` while a queue pair uses it.
    DestroyCq {
        /// Number of the queue.
        cq: u32,
    },
    /// Creates a queue pair in RESET. The reply is its number.
    CreateQp(QueuePairInit),
    /// Creates queue pair 1 of the general services interface in RESET (IBTA vol. 1 §3.9.4): a UD queue pair
    /// whose Q_Key is always [`GSI_QKEY`](crate::GSI_QKEY). The queue pair receives packets for number 1,
    /// independent of the NIC's QPN range.
    CreateGsiQp(QueuePairInit),
    /// Creates a queue pair that is connected to itself and ready to send (RTS). The reply is its number.
    CreateLoopback(LoopbackInit),
    /// Creates the target side of an extended reliable connection (XRC), in RESET. It has no queues of its
    /// own. The reply is its number.
    CreateXrcTarget {
        /// Number of the XRC domain.
        domain: u32,
    },
    /// Changes the state and attributes of a queue pair.
    ModifyQp {
        /// The queue pair.
        qp: Qpn,
        /// Attributes to change.
        change: Box<Modify>,
    },
    /// Asks for the attributes of a queue pair, including its state (`ibv_query_qp`).
    QueryQp(Qpn),
    /// Assigns a queue pair to a tenant. Bandwidth is shared equally between tenants, and by the queue pairs
    /// of one tenant within its share. Tenant 0 is the default; other tenants are numbered from
    /// [`FIRST_TENANT`](crate::FIRST_TENANT).
    SetTenant {
        /// The queue pair.
        qp: Qpn,
        /// Number of the tenant.
        tenant: u32,
    },
    /// Allows the NIC to fetch a managed send queue up to a slot.
    Enable {
        /// The queue pair.
        qp: Qpn,
        /// Count of slots since the queue was created.
        count: u64,
    },
    /// Destroys a queue pair. Its work requests and unpolled completions are discarded, and packets for it
    /// are dropped. Refused with `Busy` while it is attached to a multicast group.
    DestroyQp(Qpn),
    /// Puts every queue pair into the error state, which flushes its work requests, and reports
    /// [`DeviceFatal`](crate::AsyncEvent::DeviceFatal) (IBTA vol. 1 §11.6.3.3). So every posted work request
    /// completes.
    Fail,
    /// Creates a shared receive queue. The reply is its number.
    CreateSrq(SrqInit),
    /// Moves a shared receive queue to another ring, with the posted work requests.
    ResizeSrq {
        /// Number of the queue.
        srq: Qpn,
        /// New memory of the queue.
        ring: PartNumber,
    },
    /// Arms the limit of a shared receive queue: one event is raised when fewer than `limit` work requests
    /// are left, immediately if this is already so. 0 disarms the limit.
    ArmSrq {
        /// Number of the queue.
        srq: Qpn,
        /// Number of work requests.
        limit: u32,
    },
    /// Asks for the capacity, the limit and the number of posted work requests of a shared receive queue.
    QuerySrq(Qpn),
    /// Destroys a shared receive queue. Refused with `Busy` while a queue pair uses it.
    DestroySrq(Qpn),
    /// Allocates an XRC domain. The reply is its number.
    AllocXrcDomain,
    /// Frees an XRC domain. Refused with `Busy` while a queue pair or shared receive queue belongs to it.
    FreeXrcDomain {
        /// Number of the domain.
        domain: u32,
    },
    /// Attaches a UD queue pair to a multicast group. The queue pair then receives the datagrams to the group
    /// that carry its Q_Key.
    AttachMulticast {
        /// The queue pair.
        qp: Qpn,
        /// Address of the group.
        group: Address,
    },
    /// Detaches a queue pair from a multicast group.
    DetachMulticast {
        /// The queue pair.
        qp: Qpn,
        /// Address of the group.
        group: Address,
    },
    /// Creates an address handle. The reply is its number.
    CreateAddressHandle {
        /// Protection domain of the handle.
        pd: Pd,
        /// Way to the destination.
        address: AddressVector,
    },
    /// Destroys an address handle. Unsent work requests that name the handle complete with an error.
    DestroyAddressHandle {
        /// Number of the handle.
        handle: u32,
    },
    /// Creates a free list of PRISM. The reply is its number, which ALLOCATE names.
    CreateFreeList(FreeListInit),
    /// Asks for the capacity of a free list and the number of free and resting buffers.
    QueryFreeList {
        /// Number of the list.
        list: u64,
    },
    /// Asks for the buffers of a free list that are neither free nor resting, as bits: bit 0 of the first
    /// word is buffer `first`; bits beyond the last buffer are 0.
    FindBuffers {
        /// Number of the list.
        list: u64,
        /// The first buffer.
        first: u32,
        /// Number of words, at most [`MAX_WORDS`](crate::MAX_WORDS).
        words: u32,
    },
    /// Destroys a free list. Later ALLOCATEs that name it fail with a remote access error. The buffers remain
    /// unchanged.
    DestroyFreeList {
        /// Number of the list.
        list: u64,
    },
    /// Deploys a kernel, which serves requests immediately. The reply is its number.
    DeployKernel(KernelInit),
    /// Replaces the code of a kernel, once for each lane. A lane switches when its old code rests.
    ReplaceKernel {
        /// Number of the kernel.
        kernel: u32,
        /// New code.
        code: PartNumber,
    },
    /// Attaches a kernel to a queue pair that is ready to receive. The kernel receives the data of the peer's
    /// WRITEs, packet by packet, after the data was placed in memory. `None` detaches the kernel. With IRN,
    /// packets are passed in order of arrival, each once.
    AttachKernel {
        /// The queue pair.
        qp: Qpn,
        /// Number of the kernel.
        kernel: Option<u32>,
    },
    /// Lets a kernel check the data of the peer's READs before the response is sent; a READ is then limited
    /// to one packet. `None` removes the check. If the kernel is removed, such READs end with responder
    /// errors. The check is invisible to the peer.
    CheckReads {
        /// The queue pair.
        qp: Qpn,
        /// Number of the kernel.
        kernel: Option<u32>,
    },
    /// Passes a message, or a piece of one, to a kernel of this NIC as if it came from the peer of a queue
    /// pair. Answers go to that peer. Refused with `Busy` if no lane is free, or if four pieces wait for it.
    InvokeKernel {
        /// The queue pair.
        qp: Qpn,
        /// The message.
        invocation: Invocation,
    },
    /// Asks for the deployed kernels.
    QueryKernels,
    /// Removes a kernel. The kernel accepts no new requests, and requests in progress end with an error.
    /// Refused with `Busy` while some of its answers are not acknowledged.
    RemoveKernel {
        /// Number of the kernel.
        kernel: u32,
    },
    /// Creates a command portal of 1RMA. The reply has its number and its slots.
    CreatePortal(PortalInit),
    /// Asks for the state of 1RMA on the engine.
    QueryRma,
    /// Destroys a portal. Its operations end without completions. Data of a write that was already sent may
    /// still take effect at the server.
    DestroyPortal {
        /// Number of the portal.
        portal: u32,
    },
}

impl Command {
    /// Returns the kind of the command.
    pub fn kind(&self) -> CommandKind {
        CommandKind::from(self)
    }
}
