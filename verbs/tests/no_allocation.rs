//! Once everything is set up, no verb allocates: not in the program's thread, not in the NIC's.
#![allow(unsafe_code, reason = "an allocator that counts")]

use remora_verbs::{Access, Device, EMPTY, Mode, QpOptions, QueuePair, ReceiveRequest, Status, work};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Spans of time in which allocations are counted, and the rounds of each.
const SPANS: usize = 4;
const ROUNDS: u64 = 240;

fn rounds(device: &Device) {
    let (near, far) = (device.open().unwrap(), device.open().unwrap());
    let (near_domain, far_domain) = (near.alloc_pd().unwrap(), far.alloc_pd().unwrap());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = near_domain.allocate(1 << 16, access).unwrap();
    let table = far_domain.allocate(1 << 16, access).unwrap();
    let (mut cq, mut far_cq) = (near.create_cq(64).unwrap(), far.create_cq(64).unwrap());
    let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
    let (mut one, mut two) = QueuePair::connect_pair(one, two).unwrap();
    let mut round = || {
        let (local, word) = ([memory.sge(0, 30_000)], [memory.sge(0, 8)]);
        two.post_recv(&ReceiveRequest { id: 1, sges: &[table.sge(0, 64)] }).unwrap();
        two.post_recv(&ReceiveRequest { id: 2, sges: &[] }).unwrap();
        let requests = [
            work::write(1, &local, table.remote(0)),
            work::read(2, &local, table.remote(0)),
            work::compare_swap(3, &word, table.remote(0), 0, 1),
            work::fetch_add(4, &word, table.remote(0), 1),
            work::send_inline(5, &[1; 64]),
            work::write_imm(6, &word, table.remote(64), 7),
            work::nop(7),
        ];
        for request in &requests {
            one.post_send(request).unwrap();
        }
        let mut done = [EMPTY; 8];
        let mut left = [requests.len(), 2];
        while left != [0, 0] {
            for (cq, left) in [&mut cq, &mut far_cq].into_iter().zip(&mut left) {
                let count = cq.poll(&mut done).unwrap();
                assert!(done[..count].iter().all(|done| done.status == Status::Success));
                *left -= count;
            }
        }
    };
    (0..60).for_each(|_| round());
    let mut allocated = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (40..ROUNDS).for_each(|_| round());
        std::thread::sleep(Duration::from_millis(20));
        (0..40).for_each(|_| round());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    // On a busy machine a thread of the NIC's begins, and allocates what it begins with, only after many rounds.
    let spans: Vec<u64> = (0..SPANS).map(|_| allocated()).collect();
    assert_eq!(spans.last(), Some(&0), "{spans:?}");
    assert!(spans.iter().sum::<u64>() < ROUNDS, "{spans:?}: more than what is made once");
}

/// One test, so that nothing else runs in this process.
#[test]
fn a_verb_in_steady_state_allocates_nothing() {
    let udp = Device::udp("127.0.0.1:0").unwrap();
    for device in [Device::shm(), udp.clone(), Device::shm().mode(Mode::Dedicated), udp.mode(Mode::Dedicated)]
    {
        rounds(&device);
    }
}
