//! Memory of the program that the NIC of a daemon accesses. The pages of a region are replaced, at their
//! addresses and with their bytes, by pages of a memfd, which the daemon maps, too. They outlive the process
//! as long as the daemon keeps the region. With the last region of a page, the process gets private pages
//! back.
//!
//! Limits: the memory of a mapping that is shared already, such as a file, cannot be lent, nor can the stack
//! of the thread that registers it. A system call of another thread that writes into the pages while they
//! are replaced fails with EFAULT; a thread whose own stack is being replaced is killed.

mod pages;

use remora_verbs::raw::{ChannelAdapter, Pd};
use remora_verbs::{Access, Bytes, Key, Range};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::errno;
use crate::mappings::{self, Mapping};
use pages::Pages;

/// The lent pages of this process by the number of their file.
static LENT: Mutex<BTreeMap<u64, Weak<Pages>>> = Mutex::new(BTreeMap::new());

fn lent() -> MutexGuard<'static, BTreeMap<u64, Weak<Pages>>> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pages of a region of a daemon's NIC. Dropping the last region of a page makes the page private.
#[derive(Debug)]
pub(crate) struct LentMemory {
    pages: Vec<Arc<Pages>>,
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        if pages::is_child() {
            // The parent's threads may have held the lock when the child was forked.
            std::mem::forget(pages);
            return;
        }
        // Locked, so that no other region counts on pages that become private.
        let _known = lent();
        drop(pages);
    }
}

/// Registers memory of the program at the daemon.
pub(crate) fn register(
    adapter: &ChannelAdapter,
    domain: Pd,
    start: u64,
    length: usize,
    iova: u64,
    access: Access,
) -> Result<(Key, LentMemory), c_int> {
    // The daemon's NIC has no page faults.
    if access.contains(Access::ON_DEMAND) {
        return Err(libc::EOPNOTSUPP);
    }
    if length == 0 {
        // A region of length 0 is registered with one byte, to which no peer has access.
        let nothing = Bytes::memfd("remora-empty", 1).map_err(errno::of_memory)?;
        let key = adapter.register(domain, &[Range::at(&nothing, iova)], Access::ZERO_BASED);
        return Ok((key.map_err(errno::of_create)?, LentMemory { pages: Vec::new() }));
    }
    let end = start.checked_add(length as u64).ok_or(libc::EFAULT)?;
    let pages = lend(start, end)?;
    let mut ranges = Vec::with_capacity(pages.len());
    for pages in &pages {
        let from = pages.first().max(start);
        let to = pages.end().min(end);
        ranges.push(Range {
            bytes: pages.bytes().clone(),
            offset: (from - pages.first()) as usize,
            len: (to - from) as usize,
            iova: iova.wrapping_add(from - start),
        });
    }
    let key = adapter.register_own(domain, &ranges, access).map_err(errno::of_create)?;
    Ok((key, LentMemory { pages }))
}

/// Replaces those pages of the range that are not lent yet. Returns all pages in the order of addresses.
fn lend(start: u64, end: u64) -> Result<Vec<Arc<Pages>>, c_int> {
    let mut known = lent();
    known.retain(|_, pages| pages.strong_count() > 0);
    let page = mappings::page() as u64;
    let first = start & !(page - 1);
    let end = end.checked_next_multiple_of(page).ok_or(libc::EFAULT)?;
    let runs = runs(mappings::of_range(first, end)?, &known)?;
    runs.into_iter()
        .map(|run| match run {
            Run::Lent(pages) => Ok(pages),
            Run::Private(mapping) => {
                let pages = Arc::new(Pages::replace(&mapping)?);
                known.insert(pages.inode(), Arc::downgrade(&pages));
                Ok(pages)
            }
        })
        .collect()
}

/// Neighbouring pages of a range.
enum Run {
    /// Pages that are lent already.
    Lent(Arc<Pages>),
    /// Private pages with the same rights.
    Private(Mapping),
}

/// Returns the runs of the mappings of a range.
fn runs(mappings: Vec<Mapping>, known: &BTreeMap<u64, Weak<Pages>>) -> Result<Vec<Run>, c_int> {
    let mut runs = Vec::new();
    for mapping in mappings {
        let lent = known.get(&mapping.inode).and_then(Weak::upgrade);
        let run = match lent.filter(|pages| pages.are_at(&mapping)) {
            Some(pages) => Run::Lent(pages),
            None if mapping.is_private => Run::Private(mapping),
            None => return Err(libc::EOPNOTSUPP),
        };
        match (runs.last_mut(), run) {
            (Some(Run::Private(last)), Run::Private(next)) if last.protection == next.protection => {
                last.end = next.end;
            }
            (Some(Run::Lent(last)), Run::Lent(next)) if Arc::ptr_eq(last, &next) => {}
            (_, run) => runs.push(run),
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
