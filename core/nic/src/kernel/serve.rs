//! Ingress of RPC requests: each packet is passed to a lane immediately and in order.

use remora_memory::Mem;
use remora_transport::rc::strom::Part;
use remora_transport::{Instant, Outcome, rc::irn};
use remora_wire::strom::{Ending, Status};

use super::base::Piece;
use super::delayed_ack::conclude_delaying_ack;
use super::lane::AnswerSender;
use super::streams::Message;
use super::{Place, Strom};
use crate::machine::Machine;
use crate::queue_pair::{QueuePair, View};
use crate::shared::Shared;

/// Enables StRoM on a queue pair at the transition to RTR.
pub(crate) fn enable_strom(qp: &mut QueuePair) {
    let early = match qp.machine_mut() {
        Machine::Plain(connection) | Machine::Rc(connection) => {
            connection.responder.enable_strom();
            0
        }
        Machine::Irn(irn) => irn.responder.enable_strom(),
        _ => return,
    };
    let mtu = qp.parameters().mtu;
    let strom = Strom::new(qp.queues().send.ring().slots(), early, mtu);
    qp.offloads_mut().strom = Some(Box::new(Strom { agreed: true, ..strom }));
}

/// Processes a packet for a kernel on a go-back-N connection.
#[inline(never)]
pub(crate) fn serve_rpc(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    part: &Part,
    payload: &[u8],
    shared: &mut Shared,
) {
    let outcome = hand_over_now(qp, mem, part, payload, shared);
    conclude_delaying_ack(qp, now, outcome, shared);
}

/// Passes a packet to its kernel, which executes its first steps.
#[inline(never)]
pub(crate) fn hand_over(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    part: &Part,
    payload: &[u8],
    shared: &mut Shared,
) -> Outcome {
    hand_over_now(qp, mem, part, payload, shared)
}

/// Passes a packet to its kernel; inlined into the most frequent caller.
#[inline(always)]
fn hand_over_now(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    part: &Part,
    payload: &[u8],
    shared: &mut Shared,
) -> Outcome {
    let View { id, offloads, .. } = qp.view();
    let Some(strom) = &mut offloads.strom else { return Outcome::Done };
    let hint = strom.lane;
    if part.first() {
        strom.serving = shared.kernels_mut().serves(id.pd, part.opcode, hint.place);
    }
    let place = match strom.serving {
        None => return answer_no_kernel(qp, part, shared),
        Some(id) if part.first() || shared.kernels().is_there(id) => id.place,
        // The kernel was removed in the middle of the message, which has ended with an error.
        Some(_) => return Outcome::Done,
    };
    let Some(mut lane_ref) = shared.kernels_mut().find_lane_for(place, id.number, hint) else {
        shared.counters_mut().kernels_busy += 1;
        return Outcome::NotReady;
    };
    strom.lane = lane_ref.id;
    let piece = Piece { part: *part, passing: None };
    if !lane_ref.put_off(mem, &piece, payload) {
        lane_ref.drive(qp, mem, Some((&piece, payload)));
    } else if lane_ref.is_crowded() {
        lane_ref.drive(qp, mem, None);
    }
    Outcome::Done
}

/// Answers a message with an unknown opcode, at the end of the message.
fn answer_no_kernel(qp: &mut QueuePair, part: &Part, shared: &mut Shared) -> Outcome {
    let target = Place { addr: 0, rkey: 0, len: 0 };
    let ending = Some(Ending { status: Status::NO_KERNEL, tag: part.tag() });
    if part.last() && !qp.send_message(&Message { target, len: 0, filled: 0, ending }, None) {
        shared.counters_mut().kernels_busy += 1;
        return Outcome::NotReady;
    }
    Outcome::Done
}

/// IRN only: stores a packet for a kernel that arrived ahead of order.
#[inline(never)]
pub(crate) fn keep_rpc(qp: &mut QueuePair, slot: u32, part: &Part, payload: &[u8]) -> Outcome {
    let Some(early) = qp.offloads_mut().strom.as_mut().and_then(|strom| strom.early.get_mut(slot as usize))
    else {
        return Outcome::NotReady;
    };
    let Some(kept) = early.bytes.get_mut(..payload.len()) else { return Outcome::NotReady };
    kept.copy_from_slice(payload);
    (early.part, early.len) = (Some(*part), payload.len() as u16);
    Outcome::Done
}

/// Passes a stored packet, now the next in order, to its kernel.
#[inline(never)]
pub(crate) fn hand_over_kept(qp: &mut QueuePair, mem: Mem<'_>, slot: u32, shared: &mut Shared) -> Outcome {
    let Some(early) = qp.offloads_mut().strom.as_mut().and_then(|strom| strom.early.get_mut(slot as usize))
    else {
        return Outcome::Done;
    };
    let Some(part) = early.part else { return Outcome::Done };
    let bytes = std::mem::take(&mut early.bytes);
    let len = usize::from(early.len);
    let outcome = hand_over(qp, mem, &part, &bytes[..len], shared);
    // The queue pair may have ended in the meantime.
    if let Some(strom) = &mut qp.offloads_mut().strom {
        strom.early[slot as usize].bytes = bytes;
    }
    if outcome == Outcome::NotReady && !shared.kernels().stalled.contains(&qp.id().number) {
        shared.kernels_mut().stalled.push_back(qp.id().number);
    }
    outcome
}

const _: () = assert!(size_of::<irn::Step>() <= 64, "a step travels in registers and one cache line");
