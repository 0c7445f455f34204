//! Pages that are replaced and restored under the eyes of other threads and of forked children.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Private pages of a test.
struct Own {
    start: *mut u8,
    pages: usize,
}

impl Own {
    fn new(pages: usize) -> Own {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * mappings::page(), both, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Own { start: start.cast(), pages }
    }

    fn address(&self, offset: usize) -> u64 {
        self.start as u64 + offset as u64
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the pages, which are mapped as long as this value exists.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    fn mappings(&self) -> Vec<Mapping> {
        mappings::of_range(self.address(0), self.address(self.pages * mappings::page())).unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: mapped by this value.
        unsafe { libc::munmap(self.start.cast(), self.pages * mappings::page()) };
    }
}

// SAFETY: threads access the pages by atomics.
unsafe impl Sync for Own {}

fn lend_bytes(own: &Own, offset: usize, len: usize) -> LentMemory {
    LentMemory { pages: lend(own.address(offset), own.address(offset + len)).unwrap() }
}

fn lent_word(memory: &LentMemory, own: &Own, offset: usize) -> u64 {
    let address = own.address(offset);
    let pages = memory.pages.iter().find(|pages| pages.first() <= address && address < pages.end()).unwrap();
    let mut word = [0; 8];
    pages.bytes().read((address - pages.first()) as usize, &mut word).unwrap();
    u64::from_le_bytes(word)
}

#[test]
fn lent_pages_keep_their_bytes_and_become_private_with_their_last_region() {
    let page = mappings::page();
    let own = Own::new(4);
    (0..4).for_each(|number| own.word(number * page + 64).store(number as u64 + 1, Ordering::Relaxed));
    // The second region shares a page with the first one.
    let first = lend_bytes(&own, page + 64, page);
    let second = lend_bytes(&own, 2 * page + 100, page);
    assert_eq!((first.pages.len(), second.pages.len()), (1, 2));
    assert_eq!(own.mappings().iter().filter(|mapping| !mapping.is_private).count(), 2);
    own.word(2 * page + 128).store(77, Ordering::Relaxed);
    assert_eq!(lent_word(&first, &own, 2 * page + 128), 77);
    assert_eq!(lent_word(&second, &own, 3 * page + 64), 4);
    drop(first);
    assert_eq!(lent_word(&second, &own, 2 * page + 128), 77, "the second region still has its pages");
    second.pages[0].bytes().write(page + 8, &[9]).unwrap();
    drop(second);
    assert!(own.mappings().iter().all(|mapping| mapping.is_private));
    let words = [64, page + 64, 2 * page + 64, 2 * page + 128, 3 * page + 64];
    assert_eq!(words.map(|at| own.word(at).load(Ordering::Relaxed)), [1, 2, 3, 77, 4]);
    assert_eq!(own.word(2 * page + 8).load(Ordering::Relaxed), 9, "written by the NIC");
}

#[test]
fn a_thread_that_writes_meanwhile_loses_nothing() {
    let own = Own::new(1);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !ends.load(Ordering::Relaxed) {
                // Not an atomic addition: a lost store would show in the next one.
                let seen = own.word(512).load(Ordering::Relaxed);
                assert_eq!(seen, written);
                written += 1;
                own.word(512).store(written, Ordering::Relaxed);
            }
            written
        });
        for _ in 0..2000 {
            drop(lend_bytes(&own, 0, 8));
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(writer.join().unwrap(), own.word(512).load(Ordering::Relaxed));
    });
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let own = Own::new(2);
    let on_stack = [0u8; 64];
    let stack = lend(on_stack.as_ptr() as u64, on_stack.as_ptr() as u64 + 64);
    assert_eq!(stack.err(), Some(libc::EOPNOTSUPP), "{on_stack:?}");
    let shared = Bytes::memfd("other", mappings::page()).unwrap();
    assert_eq!(lend(shared.address(), shared.address() + 8).err(), Some(libc::EOPNOTSUPP));
    // SAFETY: the test's own page.
    unsafe { libc::munmap(own.start.add(mappings::page()).cast(), mappings::page()) };
    assert_eq!(lend(own.address(0), own.address(2 * mappings::page())).err(), Some(libc::EFAULT));
}

#[test]
fn pages_that_the_program_has_replaced_are_left_alone() {
    let own = Own::new(1);
    let memory = lend_bytes(&own, 0, 8);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: replaces the test's own page.
    let again = unsafe { libc::mmap(own.start.cast(), mappings::page(), both, flags, -1, 0) };
    assert_eq!(again, own.start.cast());
    own.word(0).store(5, Ordering::Relaxed);
    let newer = lend_bytes(&own, 0, 8);
    assert_eq!(lent_word(&newer, &own, 0), 5);
    drop(memory);
    assert!(!own.mappings()[0].is_private, "the newer region still has the page");
    drop(newer);
    assert_eq!((own.mappings()[0].is_private, own.word(0).load(Ordering::Relaxed)), (true, 5));
}

#[test]
fn a_forked_child_has_pages_of_its_own() {
    let own = Own::new(1);
    own.word(0).store(1, Ordering::Relaxed);
    let memory = lend_bytes(&own, 0, 8);
    // SAFETY: the child calls nothing but _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inherited = own.word(0).load(Ordering::Relaxed);
        own.word(0).store(2, Ordering::Relaxed);
        // SAFETY: ends the child.
        unsafe { libc::_exit(inherited as i32) };
    }
    let mut status = 0;
    // SAFETY: waits for the test's own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1));
    assert_eq!((own.word(0).load(Ordering::Relaxed), lent_word(&memory, &own, 0)), (1, 1));
}
