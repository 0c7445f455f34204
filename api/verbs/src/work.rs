//! Constructors for work requests. All requests are signaled; set other flags where needed:
//!
//! ```
//! use remora_verbs::{Flags, WorkRequest, work};
//! let quiet = WorkRequest { flags: Flags::default(), ..work::nop(1) };
//! assert!(!quiet.flags.signaled);
//! ```

use remora_memory::Key;
use remora_nic::{Calculation, Flags, Operation, Payload, Remote, Sge, WorkRequest};
use remora_wire::Qpn;

use crate::CompletionQueue;

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// Returns a request for any operation on a scatter/gather list of local memory.
#[inline]
pub const fn request<'a>(id: u64, operation: Operation, local: &'a [Sge]) -> WorkRequest<'a> {
    WorkRequest { id, operation, payload: Payload::Sges(local), flags: SIGNALED }
}

/// A SEND, which fills the peer's next receive work request.
#[inline]
pub const fn send(id: u64, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::Send, local)
}

/// A SEND with 32 bits of immediate data.
#[inline]
pub const fn send_imm(id: u64, local: &[Sge], imm: u32) -> WorkRequest<'_> {
    request(id, Operation::SendImm(imm), local)
}

/// A SEND that also invalidates a remote key of the peer.
#[inline]
pub const fn send_inv(id: u64, local: &[Sge], key: Key) -> WorkRequest<'_> {
    request(id, Operation::SendInv(key), local)
}

/// Returns a request for any operation on bytes that are copied into the queue when it is posted.
#[inline]
pub const fn inline(id: u64, operation: Operation, bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest { id, operation, payload: Payload::Inline(bytes), flags: SIGNALED }
}

/// A SEND of bytes that are copied into the queue when the request is posted.
#[inline]
pub const fn send_inline(id: u64, bytes: &[u8]) -> WorkRequest<'_> {
    inline(id, Operation::Send, bytes)
}

/// An RDMA WRITE of the bytes of `local` to `remote`.
#[inline]
pub const fn write(id: u64, local: &[Sge], remote: Remote) -> WorkRequest<'_> {
    request(id, Operation::Write(remote), local)
}

/// An RDMA WRITE of bytes that are copied into the queue when the request is posted.
#[inline]
pub const fn write_inline(id: u64, bytes: &[u8], remote: Remote) -> WorkRequest<'_> {
    inline(id, Operation::Write(remote), bytes)
}

/// An RDMA WRITE that also consumes a receive work request of the peer and delivers 32 bits of immediate
/// data.
#[inline]
pub const fn write_imm(id: u64, local: &[Sge], remote: Remote, imm: u32) -> WorkRequest<'_> {
    request(id, Operation::WriteImm(remote, imm), local)
}

/// An RDMA READ of `remote` into `local`.
#[inline]
pub const fn read(id: u64, local: &[Sge], remote: Remote) -> WorkRequest<'_> {
    request(id, Operation::Read(remote), local)
}

/// A compare-and-swap of 8 bytes. The old value is stored in the local list element, which has 8 bytes.
#[inline]
pub const fn compare_swap(
    id: u64,
    local: &[Sge; 1],
    remote: Remote,
    compare: u64,
    swap: u64,
) -> WorkRequest<'_> {
    request(id, Operation::CompareSwap { remote, compare, swap }, local)
}

/// A fetch-and-add of 8 bytes. The old value is stored in the local list element, which has 8 bytes.
#[inline]
pub const fn fetch_add(id: u64, local: &[Sge; 1], remote: Remote, add: u64) -> WorkRequest<'_> {
    request(id, Operation::FetchAdd { remote, add }, local)
}

/// A request to a kernel of the peer's NIC. `local` holds the address for the answer
/// ([`Place::emit`](crate::kernel::Place::emit)), followed by the kernel's parameters.
#[inline]
pub const fn rpc(id: u64, opcode: u64, tag: u32, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::Rpc { opcode, tag }, local)
}

/// The bytes of `local` for a kernel of the peer's NIC.
#[inline]
pub const fn rpc_write(id: u64, opcode: u64, tag: u32, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::RpcWrite { opcode, tag }, local)
}

/// Invalidates a local key.
#[inline]
pub const fn local_inv<'a>(id: u64, key: Key) -> WorkRequest<'a> {
    request(id, Operation::LocalInv(key), &[])
}

/// A WAIT: the requests after it in the queue start when `count` completions were written to `cq` since the
/// queue was created. A queue pair of the same protection domain must complete to `cq`.
#[inline]
pub fn wait<'a>(id: u64, cq: &CompletionQueue, count: u64) -> WorkRequest<'a> {
    request(id, Operation::Wait { cq: cq.number(), count }, &[])
}

/// An ENABLE: lets the NIC fetch the send queue of queue pair `qp` up to slot `count`. That queue is managed
/// or recycled, and of the same protection domain.
#[inline]
pub const fn enable<'a>(id: u64, qp: u32, count: u64) -> WorkRequest<'a> {
    request(id, Operation::Enable { qp: Qpn::new(qp & 0x00ff_ffff), count }, &[])
}

/// A calculation on 8 bytes, for loopback queue pairs only. The old value is stored in the local list
/// element, which has 8 bytes.
#[inline]
pub const fn calculate(
    id: u64,
    local: &[Sge; 1],
    remote: Remote,
    calculation: Calculation,
    operand: u64,
) -> WorkRequest<'_> {
    request(id, Operation::Calculate { calculation, remote, operand }, local)
}

/// A NOP, which completes in order and does nothing.
#[inline]
pub const fn nop<'a>(id: u64) -> WorkRequest<'a> {
    request(id, Operation::Nop, &[])
}
