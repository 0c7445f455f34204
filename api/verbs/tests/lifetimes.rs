//! Objects that are dropped: in any order, under traffic, by another thread, by a forked child.
#![allow(unsafe_code, reason = "fork(2)")]

use remora_verbs::{
    Access, Context, CreateError, Device, EMPTY, MemoryRegion, Mode, PollError, PortKind, PostError,
    ProtectionDomain, QpOptions, QueuePair, Status, work,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// Each kind of port in each driving mode.
fn devices() -> [Device; 4] {
    let udp = Device::udp("127.0.0.1:0").unwrap();
    [Device::shm(), udp.clone(), Device::shm().mode(Mode::Dedicated), udp.mode(Mode::Dedicated)]
}

fn open(device: &Device) -> (Context, ProtectionDomain) {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    (context, domain)
}

#[test]
fn things_may_be_dropped_in_any_order() {
    for device in devices() {
        let (context, domain) = open(&device);
        let cq = context.create_cq(16).unwrap();
        let memory = domain.allocate(64, shared()).unwrap();
        let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let (mut one, two) = QueuePair::connect_pair(pair(), pair()).unwrap();
        drop((context, domain, cq));
        one.post_send(&work::write(1, &[memory.sge(0, 8)], memory.remote(8))).unwrap();
        drop(memory);
        drop((two, one));
    }
}

#[test]
fn a_context_closes_under_traffic() {
    for device in devices() {
        let (near, near_domain) = open(&device);
        let (far, far_domain) = open(&device);
        let options = QpOptions { timeout: 8, retry_cnt: 1, ..QpOptions::default() };
        let mut cq = near.create_cq(64).unwrap();
        let far_cq = far.create_cq(64).unwrap();
        let memory = near_domain.allocate(1 << 20, shared()).unwrap();
        let table = far_domain.allocate(1 << 20, shared()).unwrap();
        let one = near_domain.create_qp(&cq, &cq, &options).unwrap();
        let two = far_domain.create_qp(&far_cq, &far_cq, &options).unwrap();
        let (mut one, two) = QueuePair::connect_pair(one, two).unwrap();
        for id in 0..32 {
            one.post_send(&work::write(id, &[memory.sge(0, 1 << 20)], table.remote(0))).unwrap();
        }
        // The far side is dropped while most of the work is in progress.
        let place = table.remote(0);
        drop((two, far_cq, table, far_domain, far));
        // If this thread was delayed so long that all of that work had completed, this WRITE has not.
        one.post_send(&work::write(32, &[memory.sge(0, 1 << 20)], place)).unwrap();
        let mut failed = 0;
        let mut done = [EMPTY; 64];
        let mut seen = 0;
        while seen < 33 {
            let count = cq.wait(&mut done, LONG).unwrap();
            failed += done[..count].iter().filter(|done| done.status != Status::Success).count();
            seen += count;
        }
        assert!(failed > 0, "the retries ran out");
        assert_eq!(one.state(), remora_verbs::State::Err);
    }
}

/// A region is deregistered while READs and WRITEs access it. They end in error, and the owner may use the
/// memory for other purposes.
#[test]
fn deregistration_under_load_ends_the_traffic_with_an_error() {
    for device in devices() {
        let (near, near_domain) = open(&device);
        let (far, far_domain) = open(&device);
        let memory = near_domain.allocate(1 << 16, shared()).unwrap();
        for _ in 0..10 {
            let bytes = remora_verbs::Bytes::heap(1 << 16).unwrap();
            let table: MemoryRegion = far_domain.register(&bytes, shared()).unwrap();
            let mut cq = near.create_cq(64).unwrap();
            let mut far_cq = far.create_cq(64).unwrap();
            let options = QpOptions::default();
            let one = near_domain.create_qp(&cq, &cq, &options).unwrap();
            let two = far_domain.create_qp(&far_cq, &far_cq, &options).unwrap();
            let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
            let remote = table.remote(0);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let over = &over;
                scope.spawn(move || {
                    // The owner polls all the time, and so drives its NIC.
                    while !over.load(Ordering::Acquire) {
                        let _ = far_cq.poll(&mut [EMPTY; 1]);
                    }
                });
                let dropped = scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(3));
                    drop(table);
                    // The memory belongs to the program alone: no peer writes it any more.
                    bytes.write(0, &[7; 1 << 16]).unwrap();
                    std::thread::sleep(Duration::from_millis(3));
                    let mut now = vec![0; 1 << 16];
                    bytes.read(0, &mut now).unwrap();
                    now.iter().all(|byte| *byte == 7)
                });
                let mut done = [EMPTY; 64];
                let mut id = 0;
                let status = loop {
                    id += 1;
                    one.post_send(&work::write(id, &[memory.sge(0, 1 << 16)], remote)).unwrap();
                    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
                    if done[0].status != Status::Success {
                        break done[0].status;
                    }
                };
                assert_eq!(status, Status::RemoteAccess);
                assert!(dropped.join().unwrap(), "written after the deregistration");
                over.store(true, Ordering::Release);
            });
        }
    }
}

#[test]
fn a_full_completion_queue_is_an_error_and_an_event() {
    let (context, domain) = open(&Device::shm());
    let mut small = context.create_cq(4).unwrap();
    let cq = context.create_cq(64).unwrap();
    let one = domain.create_qp(&small, &small, &QpOptions::default()).unwrap();
    let two = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
    for id in 0..5 {
        one.post_send(&work::nop(id)).unwrap();
    }
    let mut done = [EMPTY; 8];
    assert_eq!(small.poll(&mut done), Ok(4));
    assert_eq!(small.poll(&mut done), Err(PollError::Overrun));
    let mut events = std::iter::from_fn(|| context.poll_event()).map(|event| event.event);
    assert!(events.any(|event| matches!(event, remora_verbs::AsyncEvent::CqOverrun(_))));
}

#[test]
fn a_completion_queue_grows_with_what_waits_in_it() {
    let (context, domain) = open(&Device::shm());
    let mut cq = context.create_cq(4).unwrap();
    let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (mut one, _two) = QueuePair::connect_pair(pair(), pair()).unwrap();
    for id in 0..4 {
        one.post_send(&work::nop(id)).unwrap();
    }
    cq.resize(16).unwrap();
    assert_eq!(cq.depth(), 16);
    for id in 4..16 {
        one.post_send(&work::nop(id)).unwrap();
    }
    let mut done = [EMPTY; 32];
    assert_eq!(cq.poll(&mut done), Ok(16));
    assert!(done[..16].iter().zip(0..).all(|(done, id)| done.id == id));
    assert!(matches!(cq.resize(0), Err(CreateError::TooMany("depth", 0, _))));
}

#[test]
fn a_forked_child_finds_everything_inert_and_the_parent_goes_on() {
    for device in devices() {
        let (near, near_domain) = open(&device);
        let (far, far_domain) = open(&device);
        let mut cq = near.create_cq(16).unwrap();
        let far_cq = far.create_cq(16).unwrap();
        let memory = near_domain.allocate(64, shared()).unwrap();
        let table = far_domain.allocate(64, shared()).unwrap();
        let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
        let (mut one, two) = QueuePair::connect_pair(one, two).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: the child only runs the code under test and ends by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let refused = one.post_send(&work::nop(1)) == Err(PostError::Forked)
                && cq.poll(&mut [EMPTY; 1]) == Err(PollError::Forked)
                && cq.arm(remora_verbs::Notify::Any) == Err(PollError::Forked)
                && near.create_cq(4).err() == Some(CreateError::Forked)
                && near_domain.allocate(64, shared()).err() == Some(CreateError::Forked);
            drop((one, two, cq, far_cq, memory, table, near_domain, far_domain, near, far));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if refused { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child was refused and came to its end");
        for id in 0..100 {
            one.post_send(&work::write(id, &[memory.sge(0, 64)], table.remote(0))).unwrap();
            let mut done = [EMPTY; 1];
            assert_eq!(cq.wait(&mut done, LONG), Ok(1));
            assert_eq!(done[0].status, Status::Success);
        }
        // The end of the child did not close the parent's links.
        std::thread::sleep(Duration::from_millis(120));
        one.post_send(&work::read(1, &[memory.sge(0, 64)], table.remote(0))).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success);
    }
}

/// Threads that share an engine, each with its own queue pair and completion queue, do not disturb each
/// other.
#[test]
fn threads_may_share_an_engine() {
    for device in devices() {
        let (near, near_domain) = open(&device);
        let (far, far_domain) = open(&device);
        let table = far_domain.allocate(4096, shared()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (near, near_domain, far, far_domain, table) =
                    (&near, &near_domain, &far, &far_domain, &table);
                scope.spawn(move || {
                    let mut cq = near.create_cq(64).unwrap();
                    let far_cq = far.create_cq(4).unwrap();
                    let memory = near_domain.allocate(64, shared()).unwrap();
                    let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
                    let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
                    let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
                    for round in 0..200u64 {
                        memory.put(0, &round).unwrap();
                        let place = table.remote(thread * 64);
                        one.post_send(&work::write(1, &[memory.sge(0, 8)], place)).unwrap();
                        one.post_send(&work::read(2, &[memory.sge(8, 8)], place)).unwrap();
                        let mut done = [EMPTY; 2];
                        let mut seen = 0;
                        while seen < 2 {
                            seen += cq.wait(&mut done, LONG).unwrap();
                        }
                        assert_eq!(memory.get::<u64>(8), Ok(round));
                    }
                });
            }
        });
    }
}

/// Memory, links and numbers of destroyed queue pairs are reused.
#[test]
fn queue_pairs_come_and_go() {
    for device in devices() {
        let (near, near_domain) = open(&device);
        let (far, far_domain) = open(&device);
        let mut peers = std::collections::BTreeSet::new();
        for _ in 0..300 {
            let cq = near.create_cq(4).unwrap();
            let far_cq = far.create_cq(4).unwrap();
            let options = QpOptions { max_send_wr: 16, max_recv_wr: 4, ..QpOptions::default() };
            let one = near_domain.create_qp(&cq, &cq, &options).unwrap();
            let two = far_domain.create_qp(&far_cq, &far_cq, &options).unwrap();
            let (one, _two) = QueuePair::connect_pair(one, two).unwrap();
            peers.insert(one.agreement().unwrap().peer.0);
        }
        // A link stays for the next connection. The number of a peer becomes free, but is not reused for a
        // while.
        let most = if near.port().kind == PortKind::Shm { 1 } else { 64 };
        assert!(peers.len() <= most, "{} numbers of 300 connections, one at a time", peers.len());
    }
}
