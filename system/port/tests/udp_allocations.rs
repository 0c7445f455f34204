//! Checks that a UDP port allocates nothing after set-up, whatever frames pass.
#![allow(unsafe_code, reason = "counting allocations means being the allocator")]

use remora_port::udp::{Options, UdpPort};
use remora_port::{Class, Egress, Port};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True in the thread of the test. Other threads, such as those of the harness, may allocate meanwhile.
    static MINE: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting uses no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if MINE.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `alloc`, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn frames_and_trains_pass_without_an_allocation() {
    let open = || UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut one = open();
    let mut two = open();
    let to_two = one.peer(two.endpoint()).unwrap();
    MINE.set(true);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut came = 0;
    for round in 0..300 {
        // Lone frames, trains, and frames of many lengths use every call and both ways of reading.
        for frame in 0..round % 100 + 1 {
            let len = if round % 3 == 0 { 16 + frame * 7 } else { 256 };
            one.lend(to_two, Class::default(), len).expect("space").bytes.fill(1);
            one.commit();
        }
        one.flush();
        while two.receive(32, &mut |frame| came += frame.bytes.len()) > 0 {}
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(came > 1_000_000 && two.udp_counters().trains_received > 100);
    assert_eq!(after - before, 0);
}
