//! ALLOCATE: takes a buffer from a free list and writes the operation's data into it (PRISM paper, §3.2).

use remora_memory::{Access, Span};
use remora_transport::rc::prism::{Output, Request};
use remora_wire::NakCode;
use remora_wire::prism::Verdict;

use super::free_list::{FreeLists, Taken};
use super::reach::Reach;
use super::result::ResultSink;

/// Takes a buffer. The second result is the memory of the buffer, if there is one.
///
/// The next buffer is prefetched meanwhile: buffers are rarely in the cache, and stores that miss would delay
/// the atomic that follows.
#[inline(always)]
pub(super) fn take<'m>(
    reach: &Reach<'m, '_>,
    request: &Request,
    lists: &mut FreeLists,
) -> (Taken, Option<Span<'m>>) {
    let list = request.va;
    let len = request.len;
    let mut place = None;
    let taken = lists.take(reach.pd, list, len, |va, size, next| {
        place = reach.span(va, size, Access::REMOTE_WRITE).ok();
        if let (Some(place), Some(next)) = (&place, next) {
            place.prefetch_beside(next.wrapping_sub(va), len as usize);
        }
        place.is_some()
    });
    (taken, place)
}

/// Executes an ALLOCATE whose data is all in this packet.
#[inline(always)]
pub(super) fn allocate(
    reach: &Reach<'_, '_>,
    request: &Request,
    redirect: Option<u64>,
    payload: &[u8],
    lists: &mut FreeLists,
    sink: &mut impl ResultSink,
) -> Result<(), NakCode> {
    // The redirection is checked first, so that no buffer is taken whose address cannot be stored.
    let redirected = match redirect {
        Some(redirect) => Some(reach.span(redirect, size_of::<u64>(), Access::REMOTE_WRITE)?),
        None => None,
    };
    match take(reach, request, lists) {
        (Taken::Buffer { va, pin }, Some(place)) => {
            if place.write(payload) < payload.len().min(place.len()) {
                lists.give_back(pin);
                return Err(NakCode::REMOTE_ACCESS_ERROR);
            }
            if let Some(redirected) = redirected {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&va.to_le_bytes());
                if redirected.write_whole(&bytes, 8).is_err() {
                    lists.give_back(pin);
                    return Err(NakCode::REMOTE_OPERATIONAL_ERROR);
                }
            }
            sink.put(Verdict::Done, Output::Number(va));
        }
        (Taken::Nothing, _) => sink.put(Verdict::NoBuffer, Output::Number(0)),
        (Taken::TooLong, _) => sink.put(Verdict::TooLong, Output::Number(0)),
        _ => return Err(NakCode::REMOTE_ACCESS_ERROR),
    }
    Ok(())
}
