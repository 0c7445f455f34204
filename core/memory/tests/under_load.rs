//! Deregistration under load: engines hammer a region while it is deregistered and its pages are made
//! inaccessible. One touch after `deregister` returned would kill this process by SIGSEGV.
// Under Miri there is no page to protect, and two threads that spin take it hours.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "maps and protects pages under the table's feet")]

use remora_memory::{Access, AccessError, Biased, Config, Error, Key, Pd, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const PAGE: usize = 4096;
const ROUNDS: u64 = 200;

/// Maps a fresh page and never unmaps it: a later mapping at its address would hide a touch.
fn page() -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

fn forbid(page: *mut u8) {
    // SAFETY: our page, which must not be touched any more; the test checks that.
    assert_eq!(unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) }, 0);
}

/// The state that the hammers and the deregistration share.
#[derive(Default)]
struct Scene {
    key: AtomicU32,
    touches: AtomicU64,
    refusals: AtomicU64,
    stop: AtomicBool,
}

impl Scene {
    /// Checks and touches half of the current key's page in every way, in one pass of `engine`. Returns
    /// whether it found the key alive.
    fn hammer(&self, table: &Table, engine: &Biased<[u8; 2048]>, pd: Pd) -> bool {
        let key = Key::new(self.key.load(Ordering::Acquire));
        let mut pass = engine.enter();
        let (scratch, mem) = pass.parts();
        let at = self.touches.load(Ordering::Relaxed) % 256 * 8;
        match mem.check(pd, key, at, scratch.len(), Access::REMOTE_WRITE) {
            Ok(span) => {
                assert_eq!(span.write(&scratch[..]), scratch.len().min(span.len()));
                assert_eq!(span.read(&mut scratch[..]), scratch.len().min(span.len()));
                span.fetch_add64(1).unwrap();
                assert_eq!(table.deregister(key), Err(Error::InsidePass));
                self.touches.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(AccessError::UnknownKey) => {
                self.refusals.fetch_add(1, Ordering::Relaxed);
                false
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Waits until `counter` has moved on by `more`.
fn await_more(counter: &AtomicU64, more: u64) {
    let goal = counter.load(Ordering::Relaxed) + more;
    while counter.load(Ordering::Relaxed) < goal {
        std::thread::yield_now();
    }
}

/// With three hammers, two threads enter one engine, so that its bias moves between them.
fn deregister_under_load(hammers: usize) {
    let table = Arc::new(Table::new(Config::default()).unwrap());
    let pd = table.alloc_pd().unwrap();
    let engines: Vec<_> = (0..2).map(|_| Biased::new(&table, [7u8; 2048])).collect();
    let scene = Scene::default();
    std::thread::scope(|scope| {
        for hammer in 0..hammers {
            let engine = &engines[hammer % 2];
            let scene = &scene;
            let table = &table;
            scope.spawn(move || {
                while !scene.stop.load(Ordering::Relaxed) {
                    // Nothing to do: lets the other threads go on, where there are fewer cores than threads.
                    if !scene.hammer(table, engine, pd) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            let page = page();
            // SAFETY: mapped until `deregister` has returned, and no reference to it exists.
            let key =
                unsafe { table.register_raw(pd, page, PAGE, 0, Access::from_bits(0xf).unwrap()) }.unwrap();
            scene.key.store(key.get(), Ordering::Release);
            await_more(&scene.touches, 2);
            table.deregister(key).unwrap();
            forbid(page);
            await_more(&scene.refusals, 1);
        }
        scene.stop.store(true, Ordering::Relaxed);
    });
    assert!(scene.touches.into_inner() >= 2 * ROUNDS && scene.refusals.into_inner() >= ROUNDS);
    table.free_pd(pd).unwrap();
}

#[test]
fn no_touch_after_deregistration() {
    deregister_under_load(2);
}

#[test]
fn no_touch_after_deregistration_while_the_bias_wanders() {
    deregister_under_load(3);
}
