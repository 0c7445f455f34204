//! The turn of a loopback queue pair: executes its work requests one after the other, each completely before
//! the next.

use remora_memory::Mem;
use remora_transport::rc::{Kind, Retired};
use remora_transport::state::State;
use remora_transport::{Instant, Notice, Outcome, Status};
use remora_wire::prism::Verdict;

use super::bytes::{bring_back, calculate, failure_status, notify, read_here, send_here, write_here};
use super::control::Start;
use super::start::may_start;
use crate::calculation::Calculation;
use crate::context::List;
use crate::event::AsyncEvent;
use crate::queue_pair::QueuePair;
use crate::send_queue::Fetched;
use crate::shared::Shared;
use crate::turn::{TurnEnd, TurnUsage};
use crate::wqe::{SLOT, Wqe, flag};
/// Number of bytes after which the turn of a loopback queue pair ends. The last work request may exceed it.
const TURN_BYTES: usize = 64 << 10;
/// Number of work requests that count as one packet in the scheduler's budget.
const A_PACKET: usize = 16;

/// Executes the turn of a loopback queue pair. A rate limit applies to the bytes moved and to those of the
/// work requests.
pub(crate) fn transmit_to_itself(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    shared: &mut Shared,
    used: &mut TurnUsage,
) -> TurnEnd {
    if qp.is_held(now) {
        return TurnEnd::Done;
    }
    let mut done = 0;
    let mut bytes = 0;
    let mut freed = None;
    let turn = loop {
        if qp.state() != State::Rts {
            break TurnEnd::Done;
        }
        if done == shared.control().turn || bytes >= TURN_BYTES {
            break TurnEnd::More;
        }
        let (wqe, index, slots) = match qp.queues_mut().send.next() {
            Fetched::Empty => break TurnEnd::Done,
            Fetched::Malformed { wqe, index } => {
                qp.queues_mut().send.take(1);
                complete_work(qp, &wqe, index, 1, Err(Status::LocalQpOperation), shared);
                break TurnEnd::Done;
            }
            Fetched::Work { wqe, index, slots } => (wqe, index, slots),
        };
        let result = match may_begin(qp, &wqe, shared) {
            Start::Later if qp.is_waiting() => break TurnEnd::Done,
            Start::Later => break TurnEnd::More,
            Start::Never(status) => Err(status),
            Start::Now => execute_whole(qp, mem, &wqe, index, shared),
        };
        qp.queues_mut().send.take(slots);
        done += 1;
        shared.counters_mut().wqes_executed += 1;
        bytes += result.unwrap_or(0) as usize;
        freed = complete_work(qp, &wqe, index, slots, result, shared);
    };
    if let Some(end) = freed {
        qp.queues().send.free(end);
    }
    if let Some(congestion) = &mut qp.offloads_mut().congestion {
        congestion.sent(now, bytes + done * SLOT);
    }
    used.packets += done.div_ceil(A_PACKET);
    used.bytes += bytes;
    turn
}

#[inline]
fn may_begin(qp: &mut QueuePair, wqe: &Wqe, shared: &mut Shared) -> Start {
    if wqe.opcode().may_have_to_wait() { may_start(qp, wqe, 0, shared) } else { Start::Now }
}

/// Completes a work request. Returns the end of the slots that are free but not yet published.
#[inline]
fn complete_work(
    qp: &mut QueuePair,
    wqe: &Wqe,
    index: u64,
    slots: u64,
    result: Result<u32, Status>,
    shared: &mut Shared,
) -> Option<u64> {
    if result.is_ok() && wqe.flags() & flag::SIGNALED == 0 {
        return Some(index + slots);
    }
    qp.queues().send.free(index + slots);
    let kind = qp.decode_outlined(wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
    let context = qp.context(wqe, List::One, index, slots);
    let len = result.unwrap_or(0);
    let status = result.err().unwrap_or(Status::Success);
    let fine = qp.complete_outlined(&Retired { context, len, kind, status, verdict: Verdict::Done }, shared);
    if fine && status != Status::Success {
        shared.counters_mut().req_cqe_error += 1;
        qp.fail(AsyncEvent::QpFatal(qp.id().number), shared);
    }
    None
}

/// Executes a work request and returns the number of bytes moved.
#[inline]
fn execute_whole(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    wqe: &Wqe,
    index: u64,
    shared: &mut Shared,
) -> Result<u32, Status> {
    if let Some(calculation) = Calculation::of(wqe.opcode()) {
        return calculate(qp, mem, wqe, calculation);
    }
    let (kind, len, list) = qp.decode_outlined(wqe, index).ok_or(Status::LocalQpOperation)?;
    if len > 1 << 31 {
        return Err(Status::LocalLength);
    }
    let context = qp.context(wqe, list, index, 1);
    let len = len as u32;
    match kind {
        Kind::Local => qp.execute_locally(mem, wqe).map(|()| 0),
        Kind::Write { va, rkey } => write_here(qp, mem, va, rkey, &context, len),
        Kind::Read { va, rkey } => read_here(qp, mem, va, rkey, &context, len),
        Kind::Atomic { va, rkey, atomic } => match qp.atomic(mem, rkey, va, atomic) {
            Outcome::Value(old) => bring_back(qp, mem, wqe, old),
            outcome => Err(failure_status(outcome)),
        },
        Kind::WriteImm { va, rkey, .. } => {
            let receive = qp.queues_mut().receive.take().ok_or(Status::RnrRetryExceeded)?;
            let written = write_here(qp, mem, va, rkey, &context, len);
            if written.is_err() {
                qp.queues_mut().current = Some(receive);
                return written;
            }
            notify(qp, mem, &receive, &notice(wqe, &kind, len), shared).map(|()| len)
        }
        Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) => {
            send_here(qp, mem, &context, notice(wqe, &kind, len), shared)
        }
        Kind::Prism(_) | Kind::Rpc { .. } | Kind::RpcWrite { .. } => Err(Status::LocalQpOperation),
    }
}

/// Returns the notification that a message delivers to the receive queue.
fn notice(wqe: &Wqe, kind: &Kind, len: u32) -> Notice {
    let (imm, invalidate) = match *kind {
        Kind::SendImm(imm) | Kind::WriteImm { imm, .. } => (Some(imm), None),
        Kind::SendInv(key) => (None, Some(key)),
        _ => (None, None),
    };
    let solicited = wqe.flags() & flag::SOLICITED != 0;
    Notice { len, imm, invalidate, solicited, write: matches!(kind, Kind::WriteImm { .. }) }
}
