//! Work requests by name. All are signaled; change the flags for others:
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

/// Any operation on a list of local memory.
#[inline]
pub const fn request<'a>(id: u64, operation: Operation, local: &'a [Sge]) -> WorkRequest<'a> {
    WorkRequest { id, operation, payload: Payload::Sges(local), flags: SIGNALED }
}

/// A SEND into the peer's next receive work request.
#[inline]
pub const fn send(id: u64, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::Send, local)
}

/// A SEND with 32 bits of immediate data.
#[inline]
pub const fn send_imm(id: u64, local: &[Sge], imm: u32) -> WorkRequest<'_> {
    request(id, Operation::SendImm(imm), local)
}

/// A SEND that also invalidates a key of the peer.
#[inline]
pub const fn send_inv(id: u64, local: &[Sge], key: Key) -> WorkRequest<'_> {
    request(id, Operation::SendInv(key), local)
}

/// Any operation on bytes that are copied into the queue at once.
#[inline]
pub const fn inline(id: u64, operation: Operation, bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest { id, operation, payload: Payload::Inline(bytes), flags: SIGNALED }
}

/// A SEND of bytes that are copied into the queue at once.
#[inline]
pub const fn send_inline(id: u64, bytes: &[u8]) -> WorkRequest<'_> {
    inline(id, Operation::Send, bytes)
}

/// An RDMA WRITE of the bytes of `local` to `remote`.
#[inline]
pub const fn write(id: u64, local: &[Sge], remote: Remote) -> WorkRequest<'_> {
    request(id, Operation::Write(remote), local)
}

/// RDMA WRITE of bytes that are copied into the queue at once.
#[inline]
pub const fn write_inline(id: u64, bytes: &[u8], remote: Remote) -> WorkRequest<'_> {
    inline(id, Operation::Write(remote), bytes)
}

/// RDMA WRITE that also takes a receive work request of the peer and gives it 32 bits.
#[inline]
pub const fn write_imm(id: u64, local: &[Sge], remote: Remote, imm: u32) -> WorkRequest<'_> {
    request(id, Operation::WriteImm(remote, imm), local)
}

/// An RDMA READ of `remote` into `local`.
#[inline]
pub const fn read(id: u64, local: &[Sge], remote: Remote) -> WorkRequest<'_> {
    request(id, Operation::Read(remote), local)
}

/// Compare and swap of 8 bytes; the old value comes into the one local element, of 8 bytes.
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

/// Fetch and add of 8 bytes; the old value comes into the one local element, of 8 bytes.
#[inline]
pub const fn fetch_add(id: u64, local: &[Sge; 1], remote: Remote, add: u64) -> WorkRequest<'_> {
    request(id, Operation::FetchAdd { remote, add }, local)
}

/// Parameters for a kernel of the peer's NIC: where answers go ([`Place::emit`](crate::kernel::Place::emit)),
/// then its own.
#[inline]
pub const fn rpc(id: u64, opcode: u64, tag: u32, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::Rpc { opcode, tag }, local)
}

/// Bytes of `local` for a kernel of the peer's NIC.
#[inline]
pub const fn rpc_write(id: u64, opcode: u64, tag: u32, local: &[Sge]) -> WorkRequest<'_> {
    request(id, Operation::RpcWrite { opcode, tag }, local)
}

/// Invalidates a local key.
#[inline]
pub const fn local_inv<'a>(id: u64, key: Key) -> WorkRequest<'a> {
    request(id, Operation::LocalInv(key), &[])
}

/// Holds the requests behind it until `count` completions have come to a queue since it was made. A queue
/// pair of the same protection domain must complete there.
#[inline]
pub fn wait<'a>(id: u64, cq: &CompletionQueue, count: u64) -> WorkRequest<'a> {
    request(id, Operation::Wait { cq: cq.number(), count }, &[])
}

/// Lets the queue pair of this number be fetched up to `count` slots. It is managed or recycled, and of the
/// same protection domain.
#[inline]
pub const fn enable<'a>(id: u64, qp: u32, count: u64) -> WorkRequest<'a> {
    request(id, Operation::Enable { qp: Qpn::new(qp & 0x00ff_ffff), count }, &[])
}

/// A calculation on 8 bytes, for loopback queue pairs alone; the old value comes into the one local element,
/// of 8 bytes.
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

/// A NOP: it completes in order and does nothing.
#[inline]
pub const fn nop<'a>(id: u64) -> WorkRequest<'a> {
    request(id, Operation::Nop, &[])
}
