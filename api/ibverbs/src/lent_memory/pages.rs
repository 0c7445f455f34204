//! Pages of the process that are mapped from a memfd instead of being private.

use remora_verbs::{Bytes, page_fault};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::errno;
use crate::mappings::{self, Mapping};

/// Maximum number of runs of lent pages in a process.
const MOST: usize = 4096;

/// The address and length of each run of lent pages, for a forked child: it may not use the heap before its
/// pages are its own. Address 0 marks a vacant place, and 1 one that is being filled.
static PLACES: [[AtomicUsize; 2]; MOST] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST];
const FILLING: usize = 1;
/// True in a forked child, whose pages are its own.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// A run of pages that another process may map, too.
#[derive(Debug)]
pub(super) struct Pages {
    first: u64,
    bytes: Bytes,
    inode: u64,
    place: usize,
}

/// Returns whether this process was forked from one that lends pages.
pub(super) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

fn last_error() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Returns whether the stack of the calling thread has one of these addresses.
fn has_own_stack(first: u64, end: u64) -> bool {
    /// Bytes below a local variable that functions called from here may use.
    const BELOW: u64 = 64 << 10;
    let local = 0u8;
    let here = std::hint::black_box(&raw const local) as u64;
    first <= here && here.saturating_sub(BELOW) < end
}

impl Pages {
    /// Replaces private pages by pages of a memfd with the same bytes.
    pub(super) fn replace(run: &Mapping) -> Result<Pages, c_int> {
        if has_own_stack(run.start, run.end) {
            return Err(libc::EOPNOTSUPP);
        }
        static IN_CHILDREN: Once = Once::new();
        // SAFETY: the function neither allocates nor takes a lock.
        IN_CHILDREN.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(make_private_in_child));
        });
        page_fault::install().map_err(errno::of_memory)?;
        let len = (run.end - run.start) as usize;
        let bytes = Bytes::memfd("remora-lent", len).map_err(errno::of_memory)?;
        let descriptor = bytes.fd().ok_or(libc::EOPNOTSUPP)?.as_raw_fd();
        let inode = inode(descriptor)?;
        let place = take_place(run.start as usize, len)?;
        let start = run.start as usize as *mut c_void;
        let protection = run.protection;
        let copy = bytes.as_ptr();
        let replaced = page_fault::while_moving(start as usize, len, || {
            // SAFETY: the pages stay mapped and readable; only this thread writes the copy, and the new
            // mapping has the bytes of the old one. Nothing here writes to the heap or to another stack.
            unsafe {
                if libc::mprotect(start, len, libc::PROT_READ) != 0 {
                    return false;
                }
                std::ptr::copy_nonoverlapping(start.cast::<u8>(), copy, len);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let mapped = libc::mmap(start, len, protection, flags, descriptor, 0);
                if mapped == libc::MAP_FAILED {
                    libc::mprotect(start, len, protection);
                }
                mapped != libc::MAP_FAILED
            }
        });
        let pages = Pages { first: run.start, bytes, inode, place };
        if replaced { Ok(pages) } else { Err(last_error()) }
    }

    /// The address of the first page.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The address behind the last page.
    pub(super) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// The memory, as the daemon maps it.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of the memory's file.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns whether a mapping has these pages at their addresses.
    pub(super) fn are_at(&self, mapping: &Mapping) -> bool {
        let inside = mapping.start >= self.first && mapping.end <= self.end();
        inside && mapping.inode == self.inode && mapping.offset == mapping.start - self.first
    }

    /// Makes the pages private that the program has not unmapped since.
    fn restore(&self) {
        // Without /proc the pages stay shared, which only a program notices that relies on MADV_DONTNEED.
        let Ok(mappings) = mappings::within(self.first, self.end()) else { return };
        for mapping in mappings.iter().filter(|mapping| self.are_at(mapping)) {
            let len = (mapping.end - mapping.start) as usize;
            page_fault::while_moving(mapping.start as usize, len, || {
                // SAFETY: the pages are mapped from the memfd, as /proc says.
                unsafe { make_private(mapping.start as usize, len, mapping.protection) };
            });
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.restore();
        PLACES[self.place][0].store(0, Ordering::Release);
    }
}

/// Returns the number of a descriptor's file.
fn inode(descriptor: c_int) -> Result<u64, c_int> {
    // SAFETY: fstat fills the structure; zero is a value of it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(descriptor, &mut status) == 0 { Ok(status.st_ino as u64) } else { Err(last_error()) }
    }
}

/// Enters a run of pages, and returns the number of its place.
fn take_place(first: usize, len: usize) -> Result<usize, c_int> {
    let take = |place: &[AtomicUsize; 2]| {
        place[0].compare_exchange(0, FILLING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let number = PLACES.iter().position(take).ok_or(libc::ENOMEM)?;
    PLACES[number][1].store(len, Ordering::Relaxed);
    PLACES[number][0].store(first, Ordering::Release);
    Ok(number)
}

/// Replaces pages by private ones with the same bytes. Neither allocates nor takes a lock.
///
/// # Safety
/// The pages are mapped and readable.
unsafe fn make_private(first: usize, len: usize, protection: c_int) {
    let start = first as *mut c_void;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which then takes the place of the old one with its bytes.
    unsafe {
        let copy = libc::mmap(std::ptr::null_mut(), len, both, flags, -1, 0);
        if copy == libc::MAP_FAILED {
            return;
        }
        if libc::mprotect(start, len, libc::PROT_READ) == 0 {
            std::ptr::copy_nonoverlapping(start.cast::<u8>(), copy.cast::<u8>(), len);
            if protection != both {
                libc::mprotect(copy, len, protection);
            }
            let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            if libc::mremap(copy, len, len, how, start) != libc::MAP_FAILED {
                return;
            }
            libc::mprotect(start, len, protection);
        }
        libc::munmap(copy, len);
    }
}

/// Gives a forked child pages of its own, as the kernel does for private ones. The pages that its parent has
/// unmapped in part are left alone.
extern "C" fn make_private_in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    for [first, len] in &PLACES {
        let first = first.load(Ordering::Acquire);
        let len = len.load(Ordering::Relaxed);
        if first <= FILLING || !is_mapped(first, len) {
            continue;
        }
        // SAFETY: the pages are mapped; the child has one thread.
        unsafe { make_private(first, len, libc::PROT_READ | libc::PROT_WRITE) };
    }
}

/// Returns whether each page of a range is mapped.
fn is_mapped(first: usize, len: usize) -> bool {
    // SAFETY: with MS_ASYNC, msync walks the mappings, fails at a hole, and changes nothing.
    unsafe { libc::msync(first as *mut c_void, len, libc::MS_ASYNC) == 0 }
}
