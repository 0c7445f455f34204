//! Work requests and work completions, as the verbs have them.
//!
//! These are values for programs and for the pure client machines of `store`. On the queues themselves stand
//! bytes (`wqe.rs`, `cqe.rs`): only those are ever executed.

use remora_memory::{Binding, Key};
use remora_wire::Qpn;

use crate::prism::Outcome;

pub use crate::chain::Calculation;

/// One piece of local memory: a scatter/gather element (IBTA vol. 1 §10.8.2; `ibv_sge`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sge {
    /// First byte, in the region's own address space.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The region's local key.
    pub lkey: Key,
}

/// A place in the peer's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// First byte, in the remote region's address space.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: Key,
}

/// What a send work request does (IBTA vol. 1 §9.4, §10.8).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Message into the peer's next receive work request.
    Send,
    /// SEND with 32 bits of immediate data (host order here, big-endian on the wire).
    SendImm(u32),
    /// SEND that invalidates a key of the peer.
    SendInv(Key),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE that also consumes a receive work request and delivers immediate data.
    WriteImm(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// Compare and swap of 8 bytes; the old value comes back into the one local element.
    CompareSwap {
        /// 8-aligned target.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// Value stored when the target equals `compare`.
        swap: u64,
    },
    /// Fetch and add of 8 bytes; the old value comes back into the one local element.
    FetchAdd {
        /// 8-aligned target.
        remote: Remote,
        /// Addend, wrapping.
        add: u64,
    },
    /// Invalidates a local key.
    LocalInv(Key),
    /// Binds a memory window, or takes its binding away.
    BindWindow(Binding),
    /// Holds what is behind it until a completion queue of this NIC has been written so many times.
    Wait {
        /// Its number.
        cq: u32,
        /// Completions since its creation.
        count: u64,
    },
    /// Lets the send queue of a queue pair of the same protection domain be fetched so far.
    Enable {
        /// Its number.
        qp: Qpn,
        /// Slots since its creation.
        count: u64,
    },
    /// An atomic that only loopback queue pairs execute; the old value comes back into the one local element.
    Calculate {
        /// Which.
        calculation: Calculation,
        /// 8-aligned target.
        remote: Remote,
        /// The other operand.
        operand: u64,
    },
    /// Parameters for a kernel of the peer's NIC, one packet at most: where answers go (as a RETH,
    /// `remora_wire::strom`), then the kernel's own.
    Rpc {
        /// Which kernel.
        opcode: u64,
        /// The program's name for the request, 24 bits: it comes back with the answer.
        tag: u32,
    },
    /// Bytes for a kernel of the peer's NIC.
    RpcWrite {
        /// Which kernel.
        opcode: u64,
        /// The program's name for the request, 24 bits.
        tag: u32,
    },
    /// Does nothing, in order.
    Nop,
}

/// Flags of a send work request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// A completion is written (always on a queue pair created with `signal_all`).
    pub signaled: bool,
    /// Starts only after all earlier READs and atomics of this queue have ended.
    pub fence: bool,
    /// Sets the solicited-event bit of the message's last packet.
    pub solicited: bool,
}

/// Where the bytes of a send work request are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In registered memory.
    Sges(&'a [Sge]),
    /// Copied into the work queue at once; no key is needed and the buffer is free when the call returns.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With which local bytes.
    pub payload: Payload<'a>,
    /// How.
    pub flags: Flags,
}

/// A receive work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// How a work request ended; numbered as `ibv_wc_status`.
pub use remora_transport::Status;

/// What kind of work a completion ends; numbered as `ibv_wc_opcode`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CompletionKind {
    /// A SEND of any kind.
    Send = 0,
    /// A WRITE, with or without immediate data.
    Write = 1,
    /// A READ.
    Read = 2,
    /// A compare and swap.
    CompareSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// A BIND_MW.
    BindWindow = 5,
    /// A LOCAL_INV.
    LocalInv = 6,
    /// A NOP (no number of its own in libibverbs).
    Nop = 100,
    /// A WAIT (likewise).
    Wait = 101,
    /// An ENABLE (likewise).
    Enable = 102,
    /// A calculation (likewise).
    Calculate = 103,
    /// Parameters for a kernel (likewise).
    Rpc = 110,
    /// Bytes for a kernel (likewise).
    RpcWrite = 111,
    /// A read of 1RMA (likewise).
    RmaRead = 120,
    /// A write of 1RMA (likewise).
    RmaWrite = 121,
    /// A rekey of 1RMA (likewise).
    RmaRekey = 122,
    /// A message arrived in a receive work request.
    Receive = 128,
    /// A WRITE with immediate data arrived and took a receive work request.
    ReceiveWriteImm = 129,
}

/// The IP header that a datagram of RoCE v2 brought (IBTA annex A17.4.5.1; Linux' `rdma_network_type`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NetworkType {
    /// IPv4, in the last 20 of the 40 bytes.
    Ipv4,
    /// IPv6, in all 40.
    Ipv6,
}

/// A work completion (`ibv_wc`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The work request's id.
    pub id: u64,
    /// Its end. Everything below but `qp_num` is meaningful only on success.
    pub status: Status,
    /// What it was.
    pub kind: CompletionKind,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data of the message, if it brought some.
    pub imm: Option<u32>,
    /// Key that the message invalidated here, if any.
    pub invalidated: Option<Key>,
    /// Queue pair that it belongs to.
    pub qp_num: u32,
    /// The queue pair that sent a datagram; else 0.
    pub src_qp: u32,
    /// The first 40 bytes received are the datagram's global route header (`IBV_WC_GRH`), which holds an IP
    /// header of this kind.
    pub grh: Option<NetworkType>,
    /// How an operation of PRISM ended; [`Outcome::Done`] for all other work.
    pub outcome: Outcome,
}
