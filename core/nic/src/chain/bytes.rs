//! Data movement of loopback queue pairs: copies between two locations in one protection domain, with the
//! checks of both the requester and the responder.

use remora_memory::{Access, AccessError, Key, Mem, Span};
use remora_transport::{Notice, Outcome, Status};
use remora_wire::NakCode;

use crate::calculation::Calculation;
use crate::context::{List, WqeContext};
use crate::gather;
use crate::queue_pair::QueuePair;
use crate::receive_queue::Receive;
use crate::shared::Shared;
use crate::wqe::{MAX_INLINE, Wqe};

/// Number of bytes of a SEND that are copied at once.
const PIECE: usize = 1024;

pub(super) fn write_here(
    qp: &QueuePair,
    mem: Mem<'_>,
    va: u64,
    rkey: u32,
    context: &WqeContext,
    len: u32,
) -> Result<u32, Status> {
    let target = remote_span(qp, mem, va, rkey, len, Access::REMOTE_WRITE)?;
    if context.list == List::Inline {
        let mut bytes = [0; MAX_INLINE];
        let bytes = &mut bytes[..len as usize];
        gather::gather_outlined(mem, qp.id().pd, qp.queues().send.ring(), context, 0, bytes);
        return if target.write(bytes) == bytes.len() { Ok(len) } else { Err(Status::RemoteAccess) };
    }
    with_elements(qp, mem, context, len, Access::NONE, |offset, element| {
        let part = target.part(offset, element.len());
        part.is_ok_and(|part| part.copy_from(element) == element.len())
    })
}

pub(super) fn read_here(
    qp: &QueuePair,
    mem: Mem<'_>,
    va: u64,
    rkey: u32,
    context: &WqeContext,
    len: u32,
) -> Result<u32, Status> {
    let source = remote_span(qp, mem, va, rkey, len, Access::REMOTE_READ)?;
    with_elements(qp, mem, context, len, Access::LOCAL_WRITE, |offset, element| {
        let part = source.part(offset, element.len());
        part.is_ok_and(|part| element.copy_from(&part) == element.len())
    })
}

/// Checks the remote address as a responder does.
fn remote_span<'p>(
    qp: &QueuePair,
    mem: Mem<'p>,
    va: u64,
    rkey: u32,
    len: u32,
    right: Access,
) -> Result<Span<'p>, Status> {
    mem.check_for(qp.id().pd, qp.id().owner, Key::new(rkey), va, len as usize, right)
        .map_err(|_| Status::RemoteAccess)
}

/// Calls `each(offset in the message, element)` for each element, after all elements were checked. If `each`
/// returns false, one of the two buffers faulted; the status is a local protection error in either case.
fn with_elements(
    qp: &QueuePair,
    mem: Mem<'_>,
    context: &WqeContext,
    len: u32,
    right: Access,
    mut each: impl FnMut(usize, &Span<'_>) -> bool,
) -> Result<u32, Status> {
    if let List::One = context.list {
        let span = mem.check(qp.id().pd, context.lkey, context.local, len as usize, right);
        let fine = each(0, &span.map_err(|_| Status::LocalProtection)?);
        return if fine { Ok(len) } else { Err(Status::LocalProtection) };
    }
    let elements = || gather::elements(qp.queues().send.ring(), context);
    let span = |sge: crate::request::Sge| {
        mem.check(qp.id().pd, sge.lkey, sge.addr, sge.len as usize, right)
            .map_err(|_| Status::LocalProtection)
    };
    elements().try_for_each(|sge| span(sge).map(|_| ()))?;
    let mut offset = 0;
    for sge in elements() {
        let span = span(sge)?;
        if !each(offset, &span) {
            return Err(Status::LocalProtection);
        }
        offset += span.len();
    }
    Ok(len)
}

pub(super) fn calculate(
    qp: &QueuePair,
    mem: Mem<'_>,
    wqe: &Wqe,
    calculation: Calculation,
) -> Result<u32, Status> {
    if wqe.length() != 8 {
        return Err(Status::LocalQpOperation);
    }
    if !wqe.remote.is_multiple_of(8) {
        return Err(Status::RemoteInvalidRequest);
    }
    let target = remote_span(qp, mem, wqe.remote, wqe.rkey(), 8, Access::REMOTE_ATOMIC)?;
    let old = calculation.apply(&target, wqe.swap_add).map_err(|fault| match fault {
        AccessError::PageFault => Status::RemoteAccess,
        _ => Status::RemoteInvalidRequest,
    })?;
    bring_back(qp, mem, wqe, old)
}

/// Writes the old value of an atomic to the local element.
pub(super) fn bring_back(qp: &QueuePair, mem: Mem<'_>, wqe: &Wqe, old: u64) -> Result<u32, Status> {
    let target = mem.check(qp.id().pd, wqe.lkey(), wqe.local, 8, Access::LOCAL_WRITE);
    let fine = target.is_ok_and(|target| target.write(&old.to_ne_bytes()) == 8);
    if fine { Ok(8) } else { Err(Status::LocalProtection) }
}

pub(super) fn send_here(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    context: &WqeContext,
    notice: Notice,
    shared: &mut Shared,
) -> Result<u32, Status> {
    let receive = qp.queues_mut().receive.take().ok_or(Status::RnrRetryExceeded)?;
    let mut bytes = [0; PIECE];
    let mut offset = 0;
    let mut delivered = Ok(());
    while offset < notice.len && delivered.is_ok() {
        let piece = &mut bytes[..PIECE.min((notice.len - offset) as usize)];
        if !gather::gather_outlined(mem, qp.id().pd, qp.queues().send.ring(), context, offset, piece) {
            // The SEND fails, and the receive work request that it took is flushed.
            qp.queues_mut().current = Some(receive);
            return Err(Status::LocalProtection);
        }
        delivered = gather::deliver_outlined(mem, qp.id().pd, &qp.queues().receive, &receive, offset, piece);
        offset += piece.len() as u32;
    }
    if let Err(too_long) = delivered {
        let outcome = qp.undelivered(&receive, too_long, shared);
        return Err(failure_status(outcome));
    }
    notify(qp, mem, &receive, &notice, shared).map(|()| notice.len)
}

/// Completes the receive work request that a message took.
pub(super) fn notify(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    receive: &Receive,
    notice: &Notice,
    shared: &mut Shared,
) -> Result<(), Status> {
    match qp.finish(mem, receive, notice, shared) {
        Outcome::Done => Ok(()),
        outcome => Err(failure_status(outcome)),
    }
}

/// Returns the status of a work request for the responder's outcome.
pub(super) fn failure_status(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Nak(NakCode::INVALID_REQUEST) => Status::RemoteInvalidRequest,
        Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR) | Outcome::End => Status::RemoteAccess,
        Outcome::NotReady => Status::RnrRetryExceeded,
        _ => Status::RemoteOperation,
    }
}
