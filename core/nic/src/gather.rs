//! Access to the local memory of messages: gathering data into packets, and scattering received data.

use remora_memory::{Access, Key, Mem, Owner, Pd};
use remora_transport::rc::ReplyKind;

use crate::context::{List, WqeContext};
use crate::receive_queue::{Receive, ReceiveQueue, element};
use crate::request::Sge;
use crate::ring::Ring;
use crate::wqe::SLOT;

/// Location of a message's local data: the memory, the protection domain of its keys, and the ring that holds
/// its WQE.
#[derive(Copy, Clone)]
pub(crate) struct LocalMemory<'a> {
    pub mem: Mem<'a>,
    pub pd: Pd,
    pub ring: &'a Ring,
}

/// Does the same as [`gather`]; compiled out of line, so that other services do not enlarge the RC path.
#[inline(never)]
pub(crate) fn gather_outlined(
    mem: Mem<'_>,
    pd: Pd,
    ring: &Ring,
    context: &WqeContext,
    offset: u32,
    out: &mut [u8],
) -> bool {
    gather(mem, pd, ring, context, offset, out)
}

/// Does the same as [`deliver`]; compiled out of line.
#[inline(never)]
pub(crate) fn deliver_outlined(
    mem: Mem<'_>,
    pd: Pd,
    queue: &ReceiveQueue,
    receive: &Receive,
    offset: u32,
    data: &[u8],
) -> Result<(), bool> {
    deliver(mem, pd, queue, receive, offset, data)
}

/// Fills `out` with the data that a READ response carries. Returns false if access to the memory is denied.
#[inline(always)]
pub(crate) fn fetch(mem: Mem<'_>, pd: Pd, owner: Owner, kind: &ReplyKind, out: &mut [u8]) -> bool {
    let ReplyKind::Memory { key, va, len } = *kind else { return true };
    // A `match` is used here and below because a closure with a guarded copy is not inlined.
    match mem.check_for(pd, owner, Key::new(key), va, len as usize, Access::REMOTE_READ) {
        Ok(span) => span.read(out) == len as usize,
        Err(_) => false,
    }
}

/// Fills `out` with the message's data from `offset` on. Returns false if a local key or range is invalid.
/// Always inlined, so that plain RC does not pay for the other callers.
#[inline(always)]
pub(crate) fn gather(
    mem: Mem<'_>,
    pd: Pd,
    ring: &Ring,
    context: &WqeContext,
    offset: u32,
    out: &mut [u8],
) -> bool {
    match context.list {
        List::One => {
            let va = context.local.wrapping_add(u64::from(offset));
            match mem.check(pd, context.lkey, va, out.len(), Access::NONE) {
                Ok(span) => span.read(out) == out.len(),
                Err(_) => false,
            }
        }
        // The StRoM kernel holds the data.
        List::Answer => false,
        List::Inline => {
            let start = u64::from(offset);
            for (position, byte_range) in slots_of(start, out.len()) {
                let mut slot = [0; SLOT];
                ring.load(context.index + 1 + position / SLOT as u64, &mut slot);
                let within = position as usize % SLOT;
                let piece = &mut out[byte_range];
                piece.copy_from_slice(&slot[within..within + piece.len()]);
            }
            true
        }
        List::Many(_) => {
            let mut done = 0;
            walk(elements(ring, context), offset, out.len(), |sge, skip, len| {
                let va = sge.addr.wrapping_add(u64::from(skip));
                let fine = mem
                    .check(pd, sge.lkey, va, len, Access::NONE)
                    .is_ok_and(|span| span.read(&mut out[done..done + len]) == len);
                done += len;
                fine
            })
        }
    }
}

/// Writes `data` to the message's buffers from `offset` on. Returns false if a local key, range or access
/// right is invalid.
#[inline]
pub(crate) fn scatter(
    mem: Mem<'_>,
    pd: Pd,
    ring: &Ring,
    context: &WqeContext,
    offset: u32,
    data: &[u8],
) -> bool {
    match context.list {
        List::One => {
            let sge = Sge { addr: context.local, len: context.len, lkey: context.lkey };
            put(mem, pd, &sge, offset, data)
        }
        List::Inline | List::Answer => false,
        List::Many(_) => {
            let mut done = 0;
            walk(elements(ring, context), offset, data.len(), |sge, skip, len| {
                done += len;
                put(mem, pd, &sge, skip, &data[done - len..done])
            })
        }
    }
}

/// Writes `data` to the buffers of a receive work request from `offset` on. Returns `Err(true)` if the data
/// does not fit, and `Err(false)` if a local key, range or access right is invalid.
#[inline(always)]
pub(crate) fn deliver(
    mem: Mem<'_>,
    pd: Pd,
    queue: &ReceiveQueue,
    receive: &Receive,
    offset: u32,
    data: &[u8],
) -> Result<(), bool> {
    if receive.elements == 1 && u64::from(offset) + data.len() as u64 <= u64::from(receive.first.len) {
        return if put(mem, pd, &receive.first, offset, data) { Ok(()) } else { Err(false) };
    }
    let list = (0..receive.elements).map(|number| match number {
        0 => receive.first,
        _ => queue.element(receive, number),
    });
    let capacity: u64 = list.clone().map(|sge| u64::from(sge.len)).sum();
    if u64::from(offset) + data.len() as u64 > capacity {
        return Err(true);
    }
    let mut done = 0;
    let fine = walk(list, offset, data.len(), |sge, skip, len| {
        done += len;
        put(mem, pd, &sge, skip, &data[done - len..done])
    });
    if fine { Ok(()) } else { Err(false) }
}

#[inline]
fn put(mem: Mem<'_>, pd: Pd, sge: &Sge, skip: u32, data: &[u8]) -> bool {
    let va = sge.addr.wrapping_add(u64::from(skip));
    match mem.check(pd, sge.lkey, va, data.len(), Access::LOCAL_WRITE) {
        Ok(span) => span.write(data) == data.len(),
        Err(_) => false,
    }
}

pub(crate) fn elements<'a>(
    ring: &'a Ring,
    context: &'a WqeContext,
) -> impl Iterator<Item = Sge> + Clone + 'a {
    let List::Many(count) = context.list else { unreachable!("only long lists are walked") };
    (0..usize::from(count)).map(move |number| match number {
        0 => Sge { addr: context.local, len: context.len, lkey: context.lkey },
        _ => element(ring, context.index, number),
    })
}

/// Calls `each(element, bytes to skip, bytes to use)` for the part `offset..offset + len` of a list. Returns
/// false if a call of `each` does, or if the list is too short.
fn walk(
    list: impl Iterator<Item = Sge>,
    offset: u32,
    len: usize,
    mut each: impl FnMut(Sge, u32, usize) -> bool,
) -> bool {
    let mut skip = offset;
    let mut left = len;
    for sge in list {
        if left == 0 {
            break;
        }
        if skip >= sge.len {
            skip -= sge.len;
            continue;
        }
        let piece = left.min((sge.len - skip) as usize);
        if !each(sge, skip, piece) {
            return false;
        }
        (skip, left) = (0, left - piece);
    }
    left == 0
}

/// Splits `start..start + len` at slot boundaries, into positions and ranges of the result.
fn slots_of(start: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let position = start + done as u64;
        let piece = (SLOT - position as usize % SLOT).min(len - done);
        done += piece;
        Some((position, done - piece..done))
    })
}
