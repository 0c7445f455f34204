//! Use of kernels without an RPC (StRoM paper, §3.5, §5.2): on incoming WRITEs, and invoked by the local
//! program.

use remora_memory::{Access, Key, Mem};
use remora_transport::rc::strom::Part;
use remora_transport::{Action, Outcome};
use remora_wire::NakCode;
use serde::{Deserialize, Serialize};

use super::base::Piece;
use super::{LOOKED_AT, Look};
use crate::queue_pair::{QueuePair, View};
use crate::shared::Shared;

/// A message, or a piece of one, from the program to a kernel of its own NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Opcode of the kernel.
    pub opcode: u64,
    /// 24-bit tag, which the answer carries to the peer.
    pub tag: u32,
    /// True for parameters, which begin with a [`Place`](super::Place) of the peer; false for data.
    pub params: bool,
    /// Number of bytes of the message from this piece on. The message ends when `left` equals the length of
    /// `bytes`.
    pub left: u32,
    /// True for the first piece of a message.
    pub first: bool,
    /// Data of the piece, at most [`PACKET`](super::PACKET) bytes.
    pub bytes: Vec<u8>,
}

/// Returns true if a kernel observes incoming WRITEs.
#[inline(always)]
pub(crate) fn is_tapped(qp: &QueuePair) -> bool {
    qp.offloads().strom.as_ref().is_some_and(|strom| strom.tap.is_some())
}

/// Executes a request and passes the written data to a kernel. If the kernel has no capacity, the requester
/// waits.
#[inline(never)]
pub(crate) fn execute_tapped(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    action: Action,
    payload: &[u8],
    shared: &mut Shared,
) -> Outcome {
    match action {
        Action::Place { key, va, extent } => place_tapped(qp, mem, key, va, extent, payload, shared),
        Action::PlaceAndNotify { va, .. } => place_and_show(qp, mem, va, payload, shared, |qp, shared| {
            qp.execute_outlined(mem, action, payload, shared)
        }),
        _ => qp.execute_outlined(mem, action, payload, shared),
    }
}

/// Places an observed WRITE piece by piece: while the kernel processes one piece, the next piece and its
/// target are prefetched.
pub(crate) fn place_tapped(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    key: u32,
    va: u64,
    extent: u32,
    payload: &[u8],
    shared: &mut Shared,
) -> Outcome {
    let whole = (extent as usize).max(payload.len());
    let span = mem.check_for(qp.id().pd, qp.id().owner, Key::new(key), va, whole, Access::REMOTE_WRITE);
    if let Ok(span) = span
        && let Some(look) = write_viewer(qp, shared)
    {
        for (index, piece) in payload.chunks(LOOKED_AT).enumerate() {
            span.prefetch_beside(((index + 1) * LOOKED_AT) as u64, LOOKED_AT);
            look.look(piece);
            if span.write_at(index * LOOKED_AT, piece).is_err() {
                return Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR);
            }
        }
        return Outcome::Done;
    }
    place_and_show(qp, mem, va, payload, shared, |qp, _| qp.place(mem, key, va, extent, payload))
}

/// Returns the kernel's observer of WRITEs, if it has one and no earlier input waits.
fn write_viewer<'k>(qp: &mut QueuePair, shared: &'k mut Shared) -> Option<&'k mut dyn Look> {
    let View { id, offloads, .. } = qp.view();
    let strom = offloads.strom.as_mut()?;
    let tap = strom.tap?;
    if !shared.kernels().is_there(tap) {
        return None;
    }
    let lane_ref = shared.kernels_mut().find_lane_for(tap.place, id.number, strom.lane)?;
    strom.lane = lane_ref.id;
    lane_ref.looks()
}

/// Calls `place`, then passes the placed data to the kernel.
pub(crate) fn place_and_show(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    va: u64,
    payload: &[u8],
    shared: &mut Shared,
    place: impl FnOnce(&mut QueuePair, &mut Shared) -> Outcome,
) -> Outcome {
    let View { id, offloads, .. } = qp.view();
    let Some(strom) = &mut offloads.strom else { return place(qp, shared) };
    let tap = strom.tap.filter(|tap| shared.kernels().is_there(*tap));
    let Some(tap) = tap else { return place(qp, shared) };
    let Some(lane) =
        shared.kernels_mut().find_lane_for(tap.place, id.number, strom.lane).map(|lane_ref| lane_ref.id)
    else {
        shared.counters_mut().kernels_busy += 1;
        return Outcome::NotReady;
    };
    strom.lane = lane;
    let outcome = place(qp, shared);
    // The notification may have overrun its completion queue and ended the queue pair.
    if outcome == Outcome::Done
        && qp.offloads().strom.is_some()
        && let Some(lane_ref) = shared.kernels_mut().lane_ref(lane)
    {
        let part = Part::new(0, 0, payload.len() as u32, false, [true; 2]);
        let piece = Piece { part, passing: Some(va) };
        lane_ref.drive(qp, mem, Some((&piece, payload)));
    }
    outcome
}
