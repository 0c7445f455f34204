//! The conditions under which a work request at the head of a send queue may start.

use remora_transport::Status;
use remora_wire::Qpn;

use super::control::{ENABLES, Start};
use crate::queue_pair::{QueuePair, waits_for_all};
use crate::shared::Shared;
use crate::wqe::{Wqe, WqeOpcode, flag};

/// Decides whether a work request may start while `outstanding` earlier messages are in flight. Only called
/// for opcodes that may have to wait.
#[cold]
#[inline(never)]
pub(crate) fn may_start(qp: &mut QueuePair, wqe: &Wqe, outstanding: usize, shared: &mut Shared) -> Start {
    match wqe.opcode() {
        WqeOpcode::WAIT => start_wait(qp, wqe, shared),
        WqeOpcode::ENABLE if outstanding > 0 && wqe.flags() & flag::FENCE != 0 => Start::Later,
        WqeOpcode::ENABLE => start_enable(qp, wqe, shared),
        _ if outstanding > 0 && waits_for_all(wqe) => Start::Later,
        _ => Start::Now,
    }
}

fn start_wait(qp: &mut QueuePair, wqe: &Wqe, shared: &mut Shared) -> Start {
    let Some(cq) = u32::try_from(wqe.remote).ok() else {
        return Start::Never(Status::LocalQpOperation);
    };
    let index = shared.place(qp.id().number);
    let may_wait = shared.cqs().may_wait(cq, qp.id().pd);
    let Ok(queue) = shared.cqs_mut().get_mut(cq) else { return Start::Never(Status::LocalQpOperation) };
    if !may_wait {
        return Start::Never(Status::LocalProtection);
    }
    if queue.written() >= wqe.swap_add {
        return Start::Now;
    }
    if !qp.set_waiting(true) {
        let before = queue.wait(index, wqe.swap_add);
        shared.control_mut().before[index as usize] = before;
    }
    Start::Later
}

fn start_enable(qp: &mut QueuePair, wqe: &Wqe, shared: &mut Shared) -> Start {
    let Some(number) = u32::try_from(wqe.remote).ok().filter(|number| number >> 24 == 0).map(Qpn::new) else {
        return Start::Never(Status::LocalQpOperation);
    };
    if number == qp.id().number {
        let may = qp.queues_mut().send.enable(wqe.swap_add);
        return if may { Start::Now } else { Start::Never(Status::LocalQpOperation) };
    }
    let known = shared.control().enabled[shared.place(number) as usize];
    match known {
        Some((there, pd)) if there == number && pd == qp.id().pd => {}
        Some((there, _)) if there == number => return Start::Never(Status::LocalProtection),
        _ => return Start::Never(Status::LocalQpOperation),
    }
    let control = shared.control_mut();
    if control.enables.len() == ENABLES {
        return Start::Later;
    }
    control.enables.push_back((number, wqe.swap_add));
    Start::Now
}
