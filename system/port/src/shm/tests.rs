//! The port over real shared memory, both ends in this process; other processes are in
//! `tests/shm_processes.rs`.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use remora_fault::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::map::{Half, Map};
use super::setup::SetupError;
use super::*;
use crate::{Address, Class, Egress, Endpoint, Peer, Port, Start};

const GID: Endpoint =
    Endpoint { address: Address([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1]), udp_port: 4791 };

fn small() -> Geometry {
    Geometry::new(64, 1000).expect("within bounds")
}

/// Returns both ends of a link that was created as between two processes.
fn link(geometry: Geometry) -> (Link, Link) {
    let listener = Listener::new(geometry, Admit::SameUser).unwrap();
    assert!(listener.accept().unwrap().is_none(), "nobody connected yet");
    thread::scope(|scope| {
        let far = scope.spawn(|| connect(listener.name(), Admit::SameUser, Duration::from_secs(10)).unwrap());
        let near = loop {
            if let Some(near) = listener.accept().unwrap() {
                break near;
            }
            thread::yield_now();
        };
        (near, far.join().unwrap())
    })
}

fn port(links: u32) -> ShmPort {
    ShmPort::new(GID, Limits { links, frame: 1000 }).unwrap()
}

/// Returns two ports connected by one link.
fn ports() -> (ShmPort, ShmPort) {
    let (near, far) = link(small());
    let mut a = port(4);
    let mut b = port(4);
    assert_eq!((a.add_link(near), b.add_link(far)), (Ok(Peer(0)), Ok(Peer(0))));
    (a, b)
}

fn send(port: &mut ShmPort, peer: Peer, bytes: &[u8]) -> bool {
    let Some(lease) = port.lend(peer, Class::default(), bytes.len()) else {
        return false;
    };
    assert_eq!((lease.bytes.len(), lease.ip_id), (bytes.len(), 0));
    lease.bytes.copy_from_slice(bytes);
    port.commit();
    port.flush();
    true
}

fn receive(port: &mut ShmPort, budget: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let count = port.receive(budget, &mut |frame| {
        assert_eq!(frame.start, Start::Ip);
        frames.push(frame.bytes.to_vec());
    });
    assert_eq!(count, frames.len());
    frames
}

/// Receives until nothing has arrived for a while.
fn receive_all(port: &mut ShmPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut quiet = 0;
    while quiet < 2000 {
        let more = receive(port, 16);
        quiet = if more.is_empty() { quiet + 1 } else { 0 };
        frames.extend(more);
    }
    frames
}

#[test]
fn frames_begin_at_ip_unsealed_and_the_largest_fits() {
    let port = ShmPort::new(GID, Limits::default()).unwrap();
    assert_eq!((port.start(Peer(0)), port.seals(Peer(0)), port.endpoint()), (Start::Ip, false, GID));
    // BTH, RETH, ImmDt, 4096 bytes, ICRC.
    assert!(port.max_transport_bytes() >= 12 + 16 + 4 + 4096 + 4);
}

#[test]
fn random_frames_cross_both_ways_as_through_queues() {
    let (mut a, mut b) = ports();
    let mut random = Random::new(1);
    let mut queues = [VecDeque::new(), VecDeque::new()];
    let mut crossed = 0;
    for step in 0..200_000u64 {
        let pick = random.bits();
        let way = (pick & 1) as usize;
        let (sender, receiver) = if way == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        if pick & 6 != 0 {
            let frame = vec![step as u8; 1 + (pick >> 8) as usize % 1000];
            if send(sender, Peer(0), &frame) {
                queues[way].push_back(frame);
            }
        } else {
            for frame in receive(receiver, 1 + (pick >> 8) as usize % 8) {
                assert_eq!(Some(frame), queues[way].pop_front());
                crossed += 1;
            }
        }
    }
    assert_eq!(receive_all(&mut b), Vec::from(std::mem::take(&mut queues[0])));
    assert_eq!(receive_all(&mut a), Vec::from(std::mem::take(&mut queues[1])));
    let a = a.counters();
    let b = b.counters();
    assert!(crossed > 10_000 && a.no_room > 0, "{crossed} crossed, {} refused", a.no_room);
    assert_eq!((a.frames_sent, a.bytes_sent), (b.frames_received, b.bytes_received));
    assert_eq!((b.frames_sent, b.bytes_sent), (a.frames_received, a.bytes_received));
    assert_eq!((a.malformed, a.send_dropped, a.peers_lost), (0, 0, 0));
}

#[test]
fn two_threads_race_over_a_small_ring() {
    let (mut sender, mut receiver) = ring(Geometry::new(64, 380).unwrap()).unwrap();
    let total = 60_000u64;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = Random::new(9);
            for number in 0..total {
                let len = 8 + random.bits() as usize % 373;
                let mut spins = 0;
                while !sender.reserve(len).unwrap() {
                    spin(&mut spins);
                }
                let bytes = sender.bytes();
                bytes.fill(number as u8);
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                sender.commit();
                if number % 5 == 0 {
                    sender.flush();
                }
            }
            sender.flush();
        });
        let mut random = Random::new(9);
        let mut number = 0u64;
        let mut spins = 0;
        while number < total {
            let took = receiver.receive(|bytes| {
                assert_eq!(bytes.len(), 8 + random.bits() as usize % 373);
                assert_eq!(bytes[..8], number.to_le_bytes());
                assert!(bytes[8..].iter().all(|&byte| byte == number as u8));
            });
            match took.unwrap() {
                Some(_) => number += 1,
                None => spin(&mut spins),
            }
        }
    });
}

#[test]
fn a_full_link_lends_nothing_then_recovers() {
    let (mut a, mut b) = ports();
    let mut sent = 0;
    while send(&mut a, Peer(0), &[7; 60]) {
        sent += 1;
    }
    assert_eq!((sent, a.counters().no_room), (64, 1));
    assert_eq!(receive_all(&mut b).len(), 64);
    assert!(send(&mut a, Peer(0), &[8; 60]));
    assert_eq!(receive_all(&mut b), [[8; 60]]);
}

#[test]
fn a_link_to_oneself_brings_back_what_was_sent() {
    let mut port = port(1);
    assert_eq!(port.add_link(Link::loopback(small()).unwrap()), Ok(Peer(0)));
    assert!(!port.arm());
    port.disarm();
    assert!(send(&mut port, Peer(0), b"to myself"));
    port.flush();
    assert!(port.arm(), "a frame is waiting");
    port.disarm();
    assert_eq!(receive_all(&mut port), [b"to myself"]);
    assert_eq!(port.counters().wakes_sent, 0);
}

#[test]
fn a_frame_for_everyone_goes_to_every_link_that_has_room() {
    let mut a = port(4);
    let mut others = [port(4), port(4), port(4)];
    for other in &mut others {
        let (near, far) = link(small());
        a.add_link(near).unwrap();
        other.add_link(far).unwrap();
    }
    assert!(send(&mut a, EVERYONE, b"to all three"));
    assert_eq!(a.counters().frames_sent, 3);
    others.iter_mut().for_each(|other| assert_eq!(receive_all(other), [b"to all three"]));
    // One ring is full and one peer is gone: the others must get the frame nevertheless, and the sender is
    // not delayed.
    while send(&mut a, Peer(1), &[7; 60]) {}
    a.remove_link(Peer(2));
    let before = a.counters().send_dropped;
    assert!(send(&mut a, EVERYONE, b"to one of three"));
    assert_eq!(a.counters().send_dropped - before, 1);
    let [first, second, third] = &mut others;
    assert_eq!(receive_all(first), [b"to one of three"]);
    assert!(receive_all(second).iter().all(|frame| frame == &[7; 60]) && receive_all(third).is_empty());
    // A frame that is too long for a link is lost; a frame longer than any possible one is not even lent.
    assert!(send(&mut a, EVERYONE, &[1; 1001]));
    assert!(a.lend(EVERYONE, Class::default(), 1 << 20).is_none());
    assert!(receive_all(first).is_empty());
    // An abandoned lease sends nothing.
    a.lend(EVERYONE, Class::default(), 100).unwrap().bytes.fill(0xff);
    assert!(send(&mut a, EVERYONE, b"kept"));
    a.commit();
    assert_eq!(receive_all(first), [b"kept"]);
}

#[test]
fn an_abandoned_lease_sends_nothing() {
    let (mut a, mut b) = ports();
    a.lend(Peer(0), Class::default(), 500).unwrap().bytes.fill(0xff);
    assert!(send(&mut a, Peer(0), b"kept"));
    a.commit();
    assert_eq!(receive_all(&mut b), [b"kept"]);
    assert_eq!(a.counters().frames_sent, 1);
}

#[test]
fn links_are_bounded_and_places_reused_only_when_given_up() {
    let mut port = port(2);
    let loopback = || Link::loopback(small()).unwrap();
    assert_eq!(port.add_link(loopback()), Ok(Peer(0)));
    assert_eq!(port.add_link(loopback()), Ok(Peer(1)));
    assert_eq!(port.add_link(loopback()), Err(SetupError::TooManyLinks));
    port.remove_link(Peer(0));
    assert!(!port.is_open(Peer(0)) && port.is_open(Peer(1)));
    assert_eq!(port.add_link(loopback()), Ok(Peer(0)));
    assert!(send(&mut port, Peer(0), b"new") && send(&mut port, Peer(1), b"old"));
    assert_eq!(receive_all(&mut port).len(), 2);
    assert_eq!(port.take_lost(), None);
    // A link for smaller frames than the port promises would have to drop frames, so it is refused.
    let narrow = Link::loopback(Geometry::new(64, 999).unwrap()).unwrap();
    port.remove_link(Peer(1));
    assert_eq!(port.add_link(narrow), Err(SetupError::BadOffer));
}

#[test]
fn frames_to_nobody_and_frames_too_long_are_dropped_and_counted() {
    let (mut a, mut b) = ports();
    assert!(send(&mut a, Peer(3), b"nobody there"));
    assert!(send(&mut a, Peer(u32::MAX), b"nor there"));
    assert_eq!(a.counters().send_dropped, 2);
    assert!(a.lend(Peer(0), Class::default(), 1001).is_none());
    assert!(a.lend(Peer(0), Class::default(), 0).is_none());
    assert!(a.lend(Peer(3), Class::default(), 1 << 20).is_none());
    assert!(receive_all(&mut b).is_empty());
}

#[test]
fn one_link_in_flood_does_not_hold_up_another() {
    let mut port = port(8);
    for _ in 0..3 {
        port.add_link(Link::loopback(Geometry::new(4096, 1000).unwrap()).unwrap()).unwrap();
    }
    while send(&mut port, Peer(0), b"flood") {}
    receive(&mut port, 1000);
    assert!(send(&mut port, Peer(2), b"lone"));
    let frames = receive(&mut port, 1000);
    assert!(
        frames.contains(&b"lone".to_vec()),
        "taken in the next turn, after at most a burst of the others"
    );
    assert!(frames.len() <= 33 && frames.len() > 2, "the flood goes on: {}", frames.len());
    // With a budget that the flood alone would use up, links take turns.
    assert!(send(&mut port, Peer(1), b"lone"));
    let frames: Vec<_> = (0..4).flat_map(|_| receive(&mut port, 4)).collect();
    assert!(frames.contains(&b"lone".to_vec()));
}

#[test]
fn idle_links_cool_and_are_still_heard() {
    let mut port = port(100);
    for _ in 0..100 {
        port.add_link(Link::loopback(small()).unwrap()).unwrap();
    }
    for _ in 0..10_000 {
        receive(&mut port, 64);
    }
    assert!(port.polled_each_turn() <= 8, "{} of 100 idle links stay hot", port.polled_each_turn());
    assert!(send(&mut port, Peer(77), b"I sent, so I expect"));
    assert_eq!(receive(&mut port, 64).len(), 1, "sending warms the link");
    for peer in (0..100).rev() {
        assert!(send(&mut port, Peer(peer), &[peer as u8]));
        port.cool_all();
        let received: Vec<_> = (0..25).flat_map(|_| receive(&mut port, 64)).collect();
        assert_eq!(received, [[peer as u8]], "a turn over all cool links takes 25 receives");
        assert_eq!(port.receives_to_silence(), 25);
    }
}

#[test]
fn a_broken_peer_is_cut_off_and_the_others_are_not() {
    for word in [u32::MAX, 1001, 65_536, u32::MAX - 7] {
        let geometry = small();
        let (map, _) = Map::create(geometry).unwrap();
        let mut port = port(4);
        let hostile = Half::new(&map, 1);
        assert_eq!(port.add_link(Link::new(&map, super::link::Side::Maker, None, false)), Ok(Peer(0)));
        assert_eq!(port.add_link(Link::loopback(geometry).unwrap()), Ok(Peer(1)));
        assert!(send(&mut port, Peer(1), b"fine"));
        hostile.publish(0, word);
        assert_eq!(receive_all(&mut port), [b"fine"]);
        assert_eq!((port.counters().malformed, port.counters().peers_lost), (1, 1), "word {word:#x}");
        assert_eq!((port.take_lost(), port.take_lost()), (Some(Peer(0)), None));
        assert!(send(&mut port, Peer(0), b"dropped") && send(&mut port, Peer(1), b"still fine"));
        assert_eq!(receive_all(&mut port), [b"still fine"]);
        assert_eq!(port.counters().send_dropped, 1);
    }
}

#[test]
fn credit_that_lies_cuts_the_link_off() {
    let (map, _) = Map::create(small()).unwrap();
    let mut port = port(4);
    port.add_link(Link::new(&map, super::link::Side::Maker, None, false)).unwrap();
    Half::new(&map, 0).return_credit(1 << 20);
    let sent = (0..65).filter(|_| send(&mut port, Peer(0), &[0; 60])).count();
    assert_eq!(
        (sent, port.counters().frames_sent),
        (65, 64),
        "the last is dropped: the credit made no sense"
    );
    assert_eq!((port.counters().malformed, port.counters().send_dropped), (1, 1));
    assert_eq!(port.take_lost(), Some(Peer(0)));
}

#[test]
fn frames_of_strangers_are_read_from_a_copy() {
    let (map, _) = Map::create(small()).unwrap();
    let ours = super::link::Side::Maker;
    let theirs = super::link::Side::Taker;
    let mut a = port(1);
    let mut b = port(1);
    a.add_link(Link::new(&map, ours, None, true)).unwrap();
    b.add_link(Link::new(&map, theirs, None, false)).unwrap();
    let ring = Half::new(&map, 1);
    for round in 0..200u8 {
        let frame = vec![round; 1 + usize::from(round) * 4];
        assert!(send(&mut b, Peer(0), &frame));
        let mut outside = 0;
        while a.receive(4, &mut |got| {
            assert_eq!(got.bytes, frame);
            let start = ring.slot(0).addr();
            outside += u32::from(!(start..start + 64 * SLOT).contains(&got.bytes.as_ptr().addr()));
        }) == 0
        {}
        assert_eq!(outside, 1, "not in the ring any more");
    }
}

#[test]
fn memory_that_could_be_truncated_or_is_too_short_is_refused() {
    let len = Map::len(small()) as u64;
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
    let unsealed = rustix::fs::memfd_create("unsealed", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, len).unwrap();
    assert!(Map::open(&unsealed, small()).unwrap().is_none());
    let short = rustix::fs::memfd_create("short", flags).unwrap();
    rustix::fs::ftruncate(&short, len - 1).unwrap();
    rustix::fs::fcntl_add_seals(&short, rustix::fs::SealFlags::SHRINK).unwrap();
    assert!(Map::open(&short, small()).unwrap().is_none());
    let (_, memory) = Map::create(small()).unwrap();
    assert!(rustix::fs::ftruncate(&memory, 0).is_err(), "ours cannot be truncated");
    assert!(Map::open(&memory, small()).unwrap().is_some());
}

#[test]
fn connecting_to_nobody_or_to_silence_fails() {
    let nobody = format!("remora-{:032x}", 0);
    let refused = connect(&nobody, Admit::SameUser, Duration::from_secs(1));
    assert_eq!(refused.err(), Some(SetupError::Os(rustix::io::Errno::CONNREFUSED)));
    let other = connect("remora-broker-of-somebody", Admit::SameUser, Duration::from_secs(1));
    assert_eq!(other.err(), Some(SetupError::BadOffer), "other sockets are not connected to");
    let silent = Listener::new(small(), Admit::SameUser).unwrap();
    let late = connect(silent.name(), Admit::SameUser, Duration::from_millis(20));
    assert_eq!(late.err(), Some(SetupError::Timeout));
    assert_ne!(silent.name(), Listener::new(small(), Admit::SameUser).unwrap().name());
}

#[test]
fn what_a_peer_sent_before_it_left_is_read_and_then_it_is_lost() {
    let (mut a, mut b) = ports();
    for number in 0..40u8 {
        assert!(send(&mut b, Peer(0), &[number; 30]));
    }
    drop(b);
    a.disarm(); // looks at the sockets
    assert!(!a.is_open(Peer(0)), "nothing is sent to it any more");
    assert!(send(&mut a, Peer(0), b"into the void"));
    assert_eq!(receive_all(&mut a), (0..40).map(|n| vec![n; 30]).collect::<Vec<_>>());
    assert_eq!((a.take_lost(), a.take_lost()), (Some(Peer(0)), None));
    assert_eq!((a.counters().peers_lost, a.counters().send_dropped), (1, 1));
    a.remove_link(Peer(0));
    assert_eq!(a.add_link(Link::loopback(small()).unwrap()), Ok(Peer(0)));
}

#[test]
fn a_dead_peer_is_noticed_by_receiving_and_by_sending_alone() {
    let (mut a, b) = ports();
    drop(b);
    let mut receives = 0;
    while a.is_open(Peer(0)) {
        assert!(receives < 1 << 13, "found after a bounded number of receives");
        receive(&mut a, 8);
        receives += 1;
    }
    let (mut a, b) = ports();
    drop(b);
    let mut sends = 0;
    while a.counters().send_dropped == 0 {
        assert!(sends < 1 << 8, "found after a bounded number of refusals");
        send(&mut a, Peer(0), &[0; 900]);
        sends += 1;
    }
}

fn readable(port: &ShmPort, millis: i64) -> bool {
    let mut fds = Vec::new();
    port.poll_fds(&mut fds);
    assert_eq!(fds.len(), 1);
    // SAFETY: the descriptor is open as long as `port`, which outlives this borrow.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fds[0]) };
    let wait = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], Some(&wait)).unwrap() > 0
}

#[test]
fn a_sleeper_is_woken_once_and_one_that_is_awake_never() {
    let (mut a, mut b) = ports();
    assert!(send(&mut b, Peer(0), b"awake"));
    b.flush();
    assert_eq!(b.counters().wakes_sent, 0);
    assert!(a.arm(), "a frame is waiting: do not sleep");
    a.disarm();
    receive_all(&mut a);
    assert!(!a.arm());
    assert!(!readable(&a, 0));
    for _ in 0..5 {
        assert!(send(&mut b, Peer(0), b"asleep"));
        b.flush();
    }
    assert_eq!(b.counters().wakes_sent, 1, "one wake for each sleep");
    assert!(readable(&a, 0));
    a.disarm();
    assert!(!readable(&a, 0), "disarming takes the wake");
    assert_eq!(receive_all(&mut a).len(), 5);
    assert!(!a.arm());
    drop(b);
    assert!(readable(&a, 1000), "a peer that leaves wakes too");
    a.disarm();
    assert!(a.arm(), "its end has to be received");
    a.disarm();
    receive_all(&mut a);
    assert!(!a.arm() && !readable(&a, 0));
}

/// Regression: a link that was added while its port was armed woke nobody, so the sleeper found its
/// frames only by the timer.
#[test]
fn a_link_that_is_added_while_somebody_sleeps_wakes_the_sleeper() {
    let (near, far) = link(small());
    let mut a = port(4);
    let mut b = port(4);
    assert!(!a.arm());
    assert_eq!((a.add_link(near), b.add_link(far)), (Ok(Peer(0)), Ok(Peer(0))));
    assert!(send(&mut b, Peer(0), b"good morning"));
    b.flush();
    assert_eq!(b.counters().wakes_sent, 1);
    assert!(readable(&a, 0));
    a.disarm();
    assert_eq!(receive_all(&mut a), [b"good morning"]);
}

/// Receives one frame, sleeping whenever there is none. Counts the sleeps, and those that only the timer
/// ended.
fn receive_asleep(port: &mut ShmPort, expected: u32, slept: &mut u64, timer: &mut u64) {
    while port.receive(8, &mut |frame| assert_eq!(frame.bytes, expected.to_le_bytes())) == 0 {
        if !port.arm() {
            *slept += 1;
            *timer += u64::from(!readable(port, 10_000));
        }
        port.disarm();
    }
}

#[test]
fn sleepers_hand_a_token_back_and_forth_without_losing_a_wake() {
    let turns = 1_000u32;
    let play = |mut port: ShmPort, begins: bool| {
        let mut slept = 0;
        let mut timer = 0;
        for turn in 0..turns {
            if !begins {
                receive_asleep(&mut port, turn, &mut slept, &mut timer);
            }
            assert!(send(&mut port, Peer(0), &turn.to_le_bytes()));
            port.flush();
            if begins {
                receive_asleep(&mut port, turn, &mut slept, &mut timer);
            }
        }
        // The port is returned, so that the other side does not see it close.
        (slept, timer, port)
    };
    let (a, b) = ports();
    let (a, b) = thread::scope(|scope| {
        let a = scope.spawn(|| play(a, true));
        let b = scope.spawn(|| play(b, false));
        (a.join().unwrap(), b.join().unwrap())
    });
    let slept = a.0 + b.0;
    let timer = a.1 + b.1;
    let wakes = a.2.counters().wakes_sent + b.2.counters().wakes_sent;
    assert!(slept > 100 && wakes > 100, "both sides must sleep: {slept} sleeps, {wakes} wakes");
    if a.2.sleeps_are_safe() {
        assert_eq!(timer, 0, "no sleep of {slept} had to be ended by the timer");
    }
}

/// Spins a little, and yields now and then: there may be fewer CPUs than threads.
fn spin(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(2000) {
        thread::yield_now();
    }
    std::hint::spin_loop();
}

/// Waits until both threads have arrived in this round.
fn meet(arrived: &AtomicU32, round: u32) {
    arrived.fetch_add(1, Ordering::AcqRel);
    let mut spins = 0;
    while arrived.load(Ordering::Acquire) < 2 * round {
        spin(&mut spins);
    }
}

/// The producer publishes and checks the flag without a fence. At the same moment the sleeper sets the flag
/// and checks the ring. One of them must see the other.
#[test]
fn either_the_sleeper_sees_the_frame_or_the_sender_sees_the_sleeper() {
    let rounds = 1_500;
    let (mut a, mut b) = ports();
    remora_netns::require!(a.sleeps_are_safe(), "the kernel has no expedited membarrier");
    let arrived = AtomicU32::new(0);
    let woken = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                meet(&arrived, 2 * round + 1);
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                assert!(send(&mut b, Peer(0), b"now"));
                b.flush();
                woken.store(b.counters().wakes_sent as u32, Ordering::Relaxed);
                meet(&arrived, 2 * round + 2);
            }
        });
        let mut before = 0;
        let mut missed = 0;
        for round in 0..rounds {
            meet(&arrived, 2 * round + 1);
            let seen = a.arm();
            meet(&arrived, 2 * round + 2);
            let wakes = woken.load(Ordering::Relaxed);
            missed += u32::from(!seen && wakes == before);
            before = wakes;
            a.disarm();
            assert_eq!(receive(&mut a, 8).len(), 1);
        }
        assert_eq!(missed, 0, "of {rounds} frames, so many would have waited for the timer");
    });
}
