//! The cost of port `shm`, compared with lower bounds measured in the same run: `cargo bench -p remora-port
//! --bench shm`.
//!
//! Two pinned threads, interleaved rounds, medians; every round is printed. The lower bound of a round trip
//! is two cache lines, one for each direction: a poller keeps its line shared, so each hop is an
//! invalidation and a fetch. `rate/…/n` flushes after n frames. `nt` copies out with streaming stores, as a
//! long WRITE is placed. `one-core` sends and receives a frame on one core, so no line moves between cores.
//! `arm+disarm` is the cost of preparing a sleep that does not happen, beside a peer that spins.
#![allow(unsafe_code, reason = "streaming stores are intrinsics")]

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use remora_port::shm::{self, Admit, Limits, Link, Listener, Receiver, Sender, ShmPort};
use remora_port::{Address, Class, Egress, Endpoint, Peer, Port};

const TRIPS: u32 = 20_000;
const FRAMES: u64 = 500_000;
const BULK_FRAMES: u64 = 10_000;
/// Length of a READ request over IPv4: with the ring's word, one line.
const SMALL: usize = 60;
/// Length of a 64-byte WRITE over IPv4: two lines.
const MIDDLE: usize = 124;
const BULK: usize = 4096;

/// Name, unit, and a function that runs one round.
type Case = (&'static str, &'static str, fn() -> f64);

fn main() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(9);
    // `cargo test` runs benches too; one round then shows that they still work.
    let rounds = if std::env::args().any(|a| a == "--bench") { rounds } else { 1 };
    let only = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let cases: &[Case] = &[
        ("rtt/two-lines", "ns", two_lines),
        ("rtt/ring/60", "ns", || ring_rtt(SMALL)),
        ("rtt/port/60", "ns", || port_rtt(SMALL)),
        ("rtt/ring/124", "ns", || ring_rtt(MIDDLE)),
        ("rtt/port/124", "ns", || port_rtt(MIDDLE)),
        ("rate/ring/60/1", "M/s", || ring_rate(SMALL, 1)),
        ("rate/ring/60/16", "M/s", || ring_rate(SMALL, 16)),
        ("rate/port/60/1", "M/s", || port_rate(SMALL, 1)),
        ("rate/port/60/16", "M/s", || port_rate(SMALL, 16)),
        ("rate/ring/124/1", "M/s", || ring_rate(MIDDLE, 1)),
        ("rate/ring/124/16", "M/s", || ring_rate(MIDDLE, 16)),
        ("rate/port/124/1", "M/s", || port_rate(MIDDLE, 1)),
        ("rate/port/124/16", "M/s", || port_rate(MIDDLE, 16)),
        ("bulk/memcpy", "GB/s", memcpy_cold),
        ("bulk/ring/4096", "GB/s", || ring_bulk(<[u8]>::copy_from_slice)),
        ("bulk/ring/4096/nt", "GB/s", || ring_bulk(stream)),
        ("arm+disarm", "ns", arm_disarm),
        ("one-core/ring/60", "ns", || one_core_ring(SMALL)),
        ("one-core/port/60", "ns", || one_core_port(SMALL)),
        ("one-core/ring/124", "ns", || one_core_ring(MIDDLE)),
        ("one-core/port/124", "ns", || one_core_port(MIDDLE)),
    ];
    let mut seen = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (case, values) in cases.iter().zip(&mut seen) {
            if only.as_ref().is_none_or(|only| case.0.contains(only.as_str()) || case.0 == "rtt/two-lines") {
                values.push(case.2());
            }
        }
    }
    println!("{:16} {:>8} {:>8}  unit  rounds", "case", "median", "best");
    for ((name, unit, _), values) in cases.iter().zip(&seen) {
        if values.is_empty() {
            continue;
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let best = if *unit == "ns" { sorted[0] } else { sorted[sorted.len() - 1] };
        let all: Vec<String> = values.iter().map(|v| format!("{v:.1}")).collect();
        println!("{name:16} {:8.1} {best:8.1}  {unit:4}  {}", sorted[sorted.len() / 2], all.join(" "));
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Runs `other` on the second CPU while `this` runs on the first. Both threads run when `this` is called.
fn pair<T>(other: impl FnOnce() + Send, this: impl FnOnce() -> T) -> T {
    let ready = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            ready.store(true, Ordering::Release);
            other();
        });
        pin(0);
        // The new thread starts on this CPU, so this thread yields until the new one has moved to its own.
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        this()
    })
}

fn per(count: u64, time: Duration) -> f64 {
    time.as_nanos() as f64 / count as f64
}

#[repr(align(128))]
struct Line(AtomicU64);

fn two_lines() -> f64 {
    let there = Arc::new(Line(AtomicU64::new(0)));
    let back = Arc::new(Line(AtomicU64::new(0)));
    pair(
        || {
            for trip in 1..=TRIPS.into() {
                while there.0.load(Ordering::Acquire) != trip {}
                back.0.store(trip, Ordering::Release);
            }
        },
        || {
            let begin = Instant::now();
            for trip in 1..=TRIPS.into() {
                there.0.store(trip, Ordering::Release);
                while back.0.load(Ordering::Acquire) != trip {}
            }
            per(TRIPS.into(), begin.elapsed())
        },
    )
}

/// Returns both ends of a link, as two processes would have them.
fn link() -> (Apart<Link>, Apart<Link>) {
    let listener = Listener::new(shm::DEFAULT_GEOMETRY, Admit::SameUser).expect("listener");
    let name = listener.name().to_string();
    let far =
        thread::spawn(move || shm::connect(&name, Admit::SameUser, Duration::from_secs(5)).expect("link"));
    let near = loop {
        if let Some(near) = listener.accept().expect("accept") {
            break near;
        }
        thread::yield_now();
    };
    (Apart(near), Apart(far.join().expect("the connecting thread")))
}

/// Aligns the data of each thread to cache lines of its own, as in two processes.
#[repr(align(128))]
struct Apart<T>(T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for Apart<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

fn ports() -> (Apart<ShmPort>, Apart<ShmPort>) {
    let (near, far) = link();
    let port = |link| {
        let mut port = ShmPort::new(ENDPOINT, Limits::default()).expect("port");
        assert_eq!(port.add_link(link).expect("link"), PEER);
        port
    };
    (Apart(port(near.0)), Apart(port(far.0)))
}

const PEER: Peer = Peer(0);
const ENDPOINT: Endpoint = Endpoint { address: Address([0; 16]), udp_port: 4791 };

fn send(sender: &mut Sender, template: &[u8], value: u64) {
    while !sender.reserve(template.len()).expect("a sound ring") {
        spin_loop();
    }
    fill(sender.bytes(), template, value);
    sender.commit();
}

fn fill(bytes: &mut [u8], template: &[u8], value: u64) {
    bytes.copy_from_slice(template);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
}

/// Reads the bytes that a parser would read: the first ones and the last.
fn read(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    first + u64::from(bytes[bytes.len() - 1])
}

fn receive(receiver: &mut Receiver) -> u64 {
    loop {
        let mut got = 0;
        if receiver.receive(|bytes| got = read(bytes)).expect("a sound ring").is_some() {
            return got;
        }
    }
}

fn ring_rtt(len: usize) -> f64 {
    let (mut near, mut far) = link();
    let template = vec![1u8; len];
    pair(
        || {
            let (sender, receiver) = far.rings();
            for _ in 0..TRIPS {
                let got = receive(receiver);
                send(sender, &template, got);
                sender.flush();
            }
        },
        || {
            let (sender, receiver) = near.rings();
            let begin = Instant::now();
            for trip in 0..TRIPS.into() {
                send(sender, &template, trip);
                sender.flush();
                black_box(receive(receiver));
            }
            per(TRIPS.into(), begin.elapsed())
        },
    )
}

fn port_send(port: &mut ShmPort, template: &[u8], value: u64) {
    loop {
        if let Some(lease) = port.lend(PEER, Class::default(), template.len()) {
            fill(lease.bytes, template, value);
            break;
        }
        spin_loop();
    }
    port.commit();
}

fn port_receive(port: &mut ShmPort) -> u64 {
    let mut got = 0;
    while port.receive(64, &mut |frame| got = read(frame.bytes)) == 0 {}
    got
}

fn port_rtt(len: usize) -> f64 {
    let (mut near, mut far) = ports();
    let template = vec![1u8; len];
    pair(
        || {
            for _ in 0..TRIPS {
                let got = port_receive(&mut far);
                port_send(&mut far, &template, got);
                far.flush();
            }
        },
        || {
            let begin = Instant::now();
            for trip in 0..TRIPS.into() {
                port_send(&mut near, &template, trip);
                near.flush();
                black_box(port_receive(&mut near));
            }
            per(TRIPS.into(), begin.elapsed())
        },
    )
}

fn rate(frames: u64, time: Duration) -> f64 {
    frames as f64 / time.as_secs_f64() / 1e6
}

fn ring_rate(len: usize, train: u64) -> f64 {
    let (mut near, mut far) = link();
    let template = vec![1u8; len];
    pair(
        || {
            let sender = far.rings().0;
            for value in 0..FRAMES {
                send(sender, &template, value);
                if value % train == train - 1 {
                    sender.flush();
                }
            }
            sender.flush();
        },
        || {
            let receiver = near.rings().1;
            let begin = Instant::now();
            let mut frames = 0;
            while frames < FRAMES {
                let got = receiver.receive(|bytes| {
                    black_box(read(bytes));
                });
                frames += u64::from(got.expect("a sound ring").is_some());
            }
            rate(FRAMES, begin.elapsed())
        },
    )
}

fn port_rate(len: usize, train: u64) -> f64 {
    let (mut near, mut far) = ports();
    let template = vec![1u8; len];
    pair(
        || {
            for value in 0..FRAMES {
                port_send(&mut far, &template, value);
                if value % train == train - 1 {
                    far.flush();
                }
            }
            far.flush();
        },
        || {
            let begin = Instant::now();
            let mut frames = 0;
            while frames < FRAMES {
                frames += near.receive(64, &mut |frame| {
                    black_box(read(frame.bytes));
                }) as u64;
            }
            rate(FRAMES, begin.elapsed())
        },
    )
}

/// Returns buffers larger than any cache, written once so that their pages exist.
fn cold() -> (Vec<u8>, Vec<u8>) {
    (vec![1; BULK * BULK_FRAMES as usize], vec![2; BULK * BULK_FRAMES as usize])
}

fn bandwidth(time: Duration) -> f64 {
    (BULK as u64 * BULK_FRAMES) as f64 / time.as_nanos() as f64
}

fn memcpy_cold() -> f64 {
    let (source, mut target) = cold();
    pin(0);
    let begin = Instant::now();
    for (target, source) in target.chunks_mut(1 << 20).zip(source.chunks(1 << 20)) {
        target.copy_from_slice(source);
    }
    black_box(&target);
    bandwidth(begin.elapsed())
}

/// Copies past the caches. Both lengths are multiples of 64 bytes, and `target` is aligned to 64 bytes.
fn stream(target: &mut [u8], source: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        assert!(
            target.len() == source.len()
                && target.len().is_multiple_of(64)
                && target.as_ptr().addr().is_multiple_of(64)
        );
        for offset in (0..target.len()).step_by(16) {
            // SAFETY: 16 bytes from `offset` lie within both, and `target` is aligned.
            unsafe {
                let part = _mm_loadu_si128(source.as_ptr().add(offset).cast());
                _mm_stream_si128(target.as_mut_ptr().add(offset).cast(), part);
            }
        }
        // SAFETY: orders the stores above; touches nothing.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    target.copy_from_slice(source);
}

fn ring_bulk(out: fn(&mut [u8], &[u8])) -> f64 {
    let (mut near, mut far) = link();
    let (source, mut target) = cold();
    let aligned = target.as_ptr().align_offset(64);
    let target = &mut target[aligned..];
    let frames = target.len() / BULK;
    pair(
        || {
            let sender = far.rings().0;
            for chunk in source.chunks(BULK).take(frames) {
                while !sender.reserve(BULK).expect("a sound ring") {
                    spin_loop();
                }
                sender.bytes().copy_from_slice(chunk);
                sender.commit();
                sender.flush();
            }
        },
        || {
            let receiver = near.rings().1;
            let begin = Instant::now();
            for chunk in target.chunks_mut(BULK).take(frames) {
                while receiver.receive(|bytes| out(chunk, bytes)).expect("a sound ring").is_none() {}
            }
            bandwidth(begin.elapsed())
        },
    )
}

fn one_core_port(len: usize) -> f64 {
    let mut port = ShmPort::new(ENDPOINT, Limits::default()).expect("port");
    port.add_link(Link::loopback(shm::DEFAULT_GEOMETRY).expect("link")).expect("link");
    let template = vec![1u8; len];
    let begin = Instant::now();
    for value in 0..FRAMES {
        port_send(&mut port, &template, value);
        port.flush();
        black_box(port_receive(&mut port));
    }
    per(FRAMES, begin.elapsed())
}

fn one_core_ring(len: usize) -> f64 {
    let (mut sender, mut receiver) = shm::ring(shm::DEFAULT_GEOMETRY).expect("ring");
    let template = vec![1u8; len];
    let begin = Instant::now();
    for value in 0..FRAMES {
        send(&mut sender, &template, value);
        sender.flush();
        black_box(receive(&mut receiver));
    }
    per(FRAMES, begin.elapsed())
}

fn arm_disarm() -> f64 {
    let (mut near, mut far) = ports();
    let over = AtomicBool::new(false);
    let count = 2_000;
    pair(
        || {
            while !over.load(Ordering::Relaxed) {
                far.receive(64, &mut |_| {});
            }
        },
        || {
            let begin = Instant::now();
            for _ in 0..count {
                black_box(near.arm());
                near.disarm();
            }
            let time = begin.elapsed();
            over.store(true, Ordering::Relaxed);
            per(count, time)
        },
    )
}
