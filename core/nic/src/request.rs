//! Work requests and work completions, with the fields of the verbs API.
//!
//! Programs and the clients of the `store` crate use these values. Queues in memory hold their encodings
//! (`wqe.rs`, `cqe.rs`), and the NIC executes only the encoded form.

use remora_memory::{Binding, Key};
use remora_wire::Qpn;

use remora_wire::prism::Verdict;

pub use crate::calculation::Calculation;

/// A contiguous range of local memory: a scatter/gather element (IBTA vol. 1 §10.8.2; `ibv_sge`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Address of the first byte, in the memory region's own address space.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the memory region.
    pub lkey: Key,
}

/// A location in the peer's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte, in the remote memory region's address space.
    pub addr: u64,
    /// Remote key of the memory region.
    pub rkey: Key,
}

/// The operation of a send work request (IBTA vol. 1 §9.4, §10.8).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND: a message into the peer's next receive work request.
    Send,
    /// SEND with 32 bits of immediate data (in host byte order here, big-endian on the wire).
    SendImm(u32),
    /// SEND that also invalidates this key at the peer.
    SendInv(Key),
    /// RDMA WRITE to remote memory.
    Write(Remote),
    /// RDMA WRITE that also consumes a receive work request and delivers immediate data.
    WriteImm(Remote, u32),
    /// RDMA READ of remote memory.
    Read(Remote),
    /// Compare-and-swap of 8 bytes. The old value is written to the single local element.
    CompareSwap {
        /// Target, aligned to 8 bytes.
        remote: Remote,
        /// Expected value of the target.
        compare: u64,
        /// New value, stored if the target equals `compare`.
        swap: u64,
    },
    /// Fetch-and-add of 8 bytes. The old value is written to the single local element.
    FetchAdd {
        /// Target, aligned to 8 bytes.
        remote: Remote,
        /// Addend; the addition wraps.
        add: u64,
    },
    /// Invalidates a local key.
    LocalInv(Key),
    /// Binds a memory window, or removes its binding.
    BindWindow(Binding),
    /// WAIT: delays the following work requests of this queue until a completion queue of this NIC has
    /// received `count` completions.
    Wait {
        /// Number of the completion queue.
        cq: u32,
        /// Number of completions since the completion queue was created.
        count: u64,
    },
    /// ENABLE: allows the NIC to fetch another queue pair's send queue up to `count` slots. Both queue pairs
    /// belong to one protection domain.
    Enable {
        /// Number of the other queue pair.
        qp: Qpn,
        /// Number of slots since the send queue was created.
        count: u64,
    },
    /// An atomic operation of loopback queue pairs, with an arithmetic function that RDMA does not have. The
    /// old value is written to the single local element.
    Calculate {
        /// The arithmetic function.
        calculation: Calculation,
        /// Target, aligned to 8 bytes.
        remote: Remote,
        /// Second operand; the first is the value at `remote`.
        operand: u64,
    },
    /// StRoM RPC: parameters for a kernel of the peer's NIC, at most one packet. The payload starts with the
    /// destination of the answers (encoded as a RETH, see `remora_wire::strom`); the kernel's own parameters
    /// follow.
    Rpc {
        /// Number that selects the kernel.
        opcode: u64,
        /// 24-bit tag of the request, chosen by the program; the answer carries the same tag.
        tag: u32,
    },
    /// StRoM RPC WRITE: payload for a kernel of the peer's NIC.
    RpcWrite {
        /// Number that selects the kernel.
        opcode: u64,
        /// 24-bit tag of the request, chosen by the program.
        tag: u32,
    },
    /// No operation; completes in order.
    Nop,
}

/// Flags of a send work request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Requests a completion. On a queue pair created with `signal_all`, every request has one.
    pub signaled: bool,
    /// Delays the request until all earlier READs and atomics of this queue have completed.
    pub fence: bool,
    /// Sets the solicited-event bit of the message's last packet.
    pub solicited: bool,
}

/// Location of a send work request's data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Data in registered memory, as a list of scatter/gather elements.
    Sges(&'a [Sge]),
    /// Data that is copied into the work queue when the request is posted. No key is needed, and the buffer
    /// may be reused when the call returns.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Value chosen by the program; the completion returns it.
    pub id: u64,
    /// Operation that is executed.
    pub operation: Operation,
    /// The local data.
    pub payload: Payload<'a>,
    /// Flags of the request.
    pub flags: Flags,
}

/// A receive work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// Value chosen by the program; the completion returns it.
    pub id: u64,
    /// Buffers that receive the message.
    pub sges: &'a [Sge],
}

/// The status of a completed work request, numbered as `ibv_wc_status`.
pub use remora_transport::Status;

/// The kind of work request that a completion reports, numbered as `ibv_wc_opcode`. Kinds from 100 to 122 do
/// not exist in libibverbs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CompletionKind {
    /// A SEND of any kind.
    Send = 0,
    /// A WRITE, with or without immediate data.
    Write = 1,
    /// Completion of a READ.
    Read = 2,
    /// A compare and swap.
    CompareSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// Completion of a BIND_MW.
    BindWindow = 5,
    /// Completion of a LOCAL_INV.
    LocalInv = 6,
    /// Completion of a NOP.
    Nop = 100,
    /// Completion of a WAIT.
    Wait = 101,
    /// Completion of an ENABLE.
    Enable = 102,
    /// A calculation ([`Operation::Calculate`]).
    Calculate = 103,
    /// A StRoM RPC.
    Rpc = 110,
    /// A StRoM RPC WRITE.
    RpcWrite = 111,
    /// A 1RMA read.
    RmaRead = 120,
    /// A 1RMA write.
    RmaWrite = 121,
    /// A 1RMA rekey, which changes a region's key.
    RmaRekey = 122,
    /// A message arrived in a receive work request.
    Receive = 128,
    /// A WRITE with immediate data arrived and took a receive work request.
    ReceiveWriteImm = 129,
}

/// The kind of IP header with which a RoCE v2 datagram arrived (IBTA annex A17.4.5.1; Linux
/// `rdma_network_type`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NetworkType {
    /// IPv4, in the last 20 bytes of the 40-byte GRH.
    Ipv4,
    /// IPv6, in all 40 bytes of the GRH.
    Ipv6,
}

/// A work completion (`ibv_wc`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The id of the work request.
    pub id: u64,
    /// Status of the work request. On an error, only `id`, `status` and `qp_num` are meaningful.
    pub status: Status,
    /// Kind of the work request.
    pub kind: CompletionKind,
    /// Number of bytes received or read.
    pub byte_len: u32,
    /// Immediate data of the message; `None` if the message has none.
    pub imm: Option<u32>,
    /// Local key that the message invalidated; `None` if the message invalidated none.
    pub invalidated: Option<Key>,
    /// Number of the queue pair that the work request belongs to.
    pub qp_num: u32,
    /// Number of the queue pair that sent a datagram; 0 for other completions.
    pub src_qp: u32,
    /// Network type of the global route header (GRH), which occupies the first 40 bytes of the received data
    /// (`IBV_WC_GRH`); `None` without a GRH.
    pub grh: Option<NetworkType>,
    /// Verdict of a PRISM operation; [`Verdict::Done`] for all other work requests.
    pub outcome: Verdict,
}
