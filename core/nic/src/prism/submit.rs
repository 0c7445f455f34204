//! Submission of PRISM work requests.

use remora_transport::Status;
use remora_transport::rc::prism::{Extended, Verb};
use remora_transport::rc::{Kind, Message};
use remora_wire::prism::Flags;

use crate::context::List;
use crate::queue_pair::QueuePair;
use crate::receive_queue::element;
use crate::reliable::ReliableRequester;
use crate::wqe::{MAX_SGE, Wqe, WqeOpcode, flag};

/// Submits a PRISM work request. A malformed request fails, as does any request if the peer did not agree on
/// PRISM.
#[cold]
#[inline(never)]
pub(crate) fn submit_prism<R: ReliableRequester>(qp: &mut QueuePair, wqe: &Wqe, index: u64, slots: u64) {
    let agreed = qp.offloads().prism.is_some() && qp.parameters().max_rd_atomic > 0;
    let Some((extended, len, list)) = decode_prism(qp, wqe, index).filter(|_| agreed) else {
        return qp.submit_failing::<R>(wqe, index, slots, Status::LocalQpOperation);
    };
    if len > 1 << 31 {
        return qp.submit_failing::<R>(wqe, index, slots, Status::LocalLength);
    }
    // The list and the inline data are behind the second slot.
    let message = qp.message(wqe, Kind::Prism(extended), len, list, index + 1, slots - 1);
    if let Some(requester) = R::of(qp.machine_mut()) {
        requester.submit_prism(Message { solicited: false, ..message });
    }
}

#[inline(always)]
fn decode_prism(qp: &QueuePair, wqe: &Wqe, index: u64) -> Option<(Extended, u64, List)> {
    let verb = match wqe.opcode() {
        WqeOpcode::PRISM_READ => Verb::Read,
        WqeOpcode::PRISM_WRITE => Verb::Write,
        WqeOpcode::PRISM_COMPARE_SWAP => Verb::CompareSwap,
        WqeOpcode::PRISM_FETCH_ADD => Verb::FetchAdd,
        _ => return None,
    };
    let flags = Flags::from_bits(wqe.imm as u8);
    let extended = Extended::new(verb, flags, wqe.rkey(), wqe.remote, [wqe.compare, wqe.swap_add]);
    let inline = wqe.flags() & flag::INLINE != 0;
    match verb {
        Verb::Read if inline => None,
        Verb::Read => {
            let (available, list) = list_prism(qp, wqe, index)?;
            let len = wqe.swap_add;
            (available >= len || flags.has(Flags::REDIRECT)).then_some((extended, len, list))
        }
        Verb::Write if flags.has(Flags::DATA_INDIRECT) => {
            (!inline).then_some((extended, wqe.len & u64::from(u32::MAX), List::One))
        }
        Verb::Write if inline => Some((extended, wqe.length(), List::Inline)),
        Verb::Write => list_prism(qp, wqe, index).map(|(len, list)| (extended, len, list)),
        Verb::CompareSwap | Verb::FetchAdd => inline.then_some((extended, wqe.len, List::Inline)),
    }
}

/// Returns the total length of a list and its location.
fn list_prism(qp: &QueuePair, wqe: &Wqe, index: u64) -> Option<(u64, List)> {
    let first = if wqe.compare == 0 { 0 } else { wqe.len & u64::from(u32::MAX) };
    match wqe.compare {
        0 | 1 => Some((first, List::One)),
        count if count <= MAX_SGE as u64 => {
            let rest =
                (1..count as usize).map(|number| element(qp.queues().send.ring(), index + 1, number).len);
            Some((first + rest.map(u64::from).sum::<u64>(), List::Many(count as u8)))
        }
        _ => None,
    }
}
