//! Submission of requests to kernels of the peer's NIC.

use remora_transport::Status;
use remora_transport::rc::Kind;
use remora_wire::strom::{HEAD_LEN, TAG_MASK};

use crate::context::List;
use crate::queue_pair::QueuePair;
use crate::reliable::ReliableRequester;
use crate::wqe::{Wqe, WqeOpcode, flag};

/// Submits a request to a kernel. A malformed request fails, as does any request if the peer did not agree on
/// StRoM.
#[cold]
#[inline(never)]
pub(crate) fn submit_strom<R: ReliableRequester>(qp: &mut QueuePair, wqe: &Wqe, index: u64, slots: u64) {
    let opcode = wqe.remote;
    let tag = wqe.rkey();
    let payload = match wqe.flags() & flag::INLINE {
        0 => qp.list(wqe, index),
        _ => Some((wqe.length(), List::Inline)),
    };
    let Some((len, list)) = payload.filter(|_| qp.offloads().strom.is_some() && tag <= TAG_MASK) else {
        return qp.submit_failing::<R>(wqe, index, slots, Status::LocalQpOperation);
    };
    let params = wqe.opcode() == WqeOpcode::RPC;
    let fits = match params {
        true => (HEAD_LEN as u64..=u64::from(qp.parameters().mtu)).contains(&len),
        false => len <= 1 << 31,
    };
    if !fits {
        return qp.submit_failing::<R>(wqe, index, slots, Status::LocalLength);
    }
    let kind = if params { Kind::Rpc { opcode, tag } } else { Kind::RpcWrite { opcode, tag } };
    let message = qp.message(wqe, kind, len, list, index, slots);
    if let Some(requester) = R::of(qp.machine_mut()) {
        requester.submit(message);
    }
}
