//! Kernels beside RPC (StRoM paper, §3.5, §5.2): on incoming WRITEs, and between the program and its peer.

use remora_memory::{Access, Key, Mem};
use remora_transport::rc::strom::Part;
use remora_transport::{Action, Outcome};
use remora_wire::NakCode;

use super::base::Piece;
use super::{LOOKED_AT, Look};
use crate::queue_pair::QueuePair;
use crate::shared::Shared;

/// A message, or a piece of one, from the program to a kernel of its own NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// Which kernel.
    pub opcode: u64,
    /// 24 bits, which its answer carries to the peer.
    pub tag: u32,
    /// Parameters, which begin with a [`Place`](super::Place) of the peer; otherwise data.
    pub params: bool,
    /// Bytes of the message from these on; it starts with those for which `first` is set and ends when none
    /// are left.
    pub left: u32,
    /// The message starts here.
    pub first: bool,
    /// At most [`PACKET`](super::PACKET) of them.
    pub bytes: &'a [u8],
}

/// Does a kernel look at the WRITEs that come in?
#[inline(always)]
pub(crate) fn is_tapped(qp: &QueuePair) -> bool {
    qp.strom.as_ref().is_some_and(|strom| strom.tap.is_some())
}

/// Executes a request, and shows a kernel what goes to memory. If the kernel has no capacity, the
/// requester waits.
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

/// Places a WRITE that a kernel looks at, piece by piece: while the kernel looks at one, the next one and
/// its target are prefetched.
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
    let span = mem.check_for(qp.pd, qp.owner, Key::new(key), va, whole, Access::REMOTE_WRITE);
    if let Ok(span) = span
        && let Some(look) = write_viewer(qp, shared)
    {
        for (at, piece) in payload.chunks(LOOKED_AT).enumerate() {
            span.prefetch_beside(((at + 1) * LOOKED_AT) as u64, LOOKED_AT);
            look.look(piece);
            if span.write_at(at * LOOKED_AT, piece).is_err() {
                return Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR);
            }
        }
        return Outcome::Done;
    }
    place_and_show(qp, mem, va, payload, shared, |qp, _| qp.place(mem, key, va, extent, payload))
}

/// The kernel's view of WRITEs, if it has one and no earlier input waits.
fn write_viewer<'k>(qp: &mut QueuePair, shared: &'k mut Shared) -> Option<&'k mut dyn Look> {
    let strom = qp.strom.as_mut()?;
    let tap = strom.tap?;
    if !shared.kernels.is_there(tap) {
        return None;
    }
    let lane_ref = shared.kernels.find_lane_for(tap.place, qp.number, strom.lane)?;
    strom.lane = lane_ref.at;
    lane_ref.looks()
}

/// Calls `place`, and then hands the kernel what was placed.
pub(crate) fn place_and_show(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    va: u64,
    payload: &[u8],
    shared: &mut Shared,
    place: impl FnOnce(&mut QueuePair, &mut Shared) -> Outcome,
) -> Outcome {
    let Some(strom) = &mut qp.strom else { return place(qp, shared) };
    let found = strom.tap.filter(|tap| shared.kernels.is_there(*tap));
    let Some(tap) = found else { return place(qp, shared) };
    let Some(lane) =
        shared.kernels.find_lane_for(tap.place, qp.number, strom.lane).map(|lane_ref| lane_ref.at)
    else {
        shared.counters.kernels_busy += 1;
        return Outcome::NotReady;
    };
    strom.lane = lane;
    let outcome = place(qp, shared);
    // The notice may have found its completion queue full, and ended the queue pair.
    if outcome == Outcome::Done
        && qp.strom.is_some()
        && let Some(lane_ref) = shared.kernels.lane_ref(lane)
    {
        let part = Part::new(0, 0, payload.len() as u32, false, [true; 2]);
        let piece = Piece { part, passing: Some(va) };
        lane_ref.drive(qp, mem, Some((&piece, payload)));
    }
    outcome
}
