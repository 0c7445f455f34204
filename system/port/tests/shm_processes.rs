//! Links between processes: this test binary starts itself as the peer.
#![allow(unsafe_code, reason = "poll(2) on the port's descriptor")]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use remora_netns::Process;
use remora_port::shm::{Admit, DEFAULT_GEOMETRY, Limits, Link, Listener, ShmPort, connect};
use remora_port::{Address, Class, Egress, Endpoint, Peer, Port};

/// Environment variable with the listener's name; it makes `peer_process` act as the peer.
const NAME: &str = "REMORA_TEST_SHM_NAME";
const PEER: Peer = Peer(0);

fn port(link: Link) -> ShmPort {
    let endpoint = Endpoint { address: Address([0; 16]), udp_port: 4791 };
    let mut port = ShmPort::new(endpoint, Limits::default()).unwrap();
    assert_eq!(port.add_link(link), Ok(PEER));
    port
}

/// Environment variable that makes the peer fork a child.
const FORKS: &str = "REMORA_TEST_SHM_FORKS";

/// Starts a peer and creates a link to it.
fn with_peer() -> (ShmPort, Process) {
    with_peer_that(false)
}

fn with_peer_that(forks: bool) -> (ShmPort, Process) {
    let listener = Listener::new(DEFAULT_GEOMETRY, Admit::SameUser).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "peer_process", "--nocapture"])
        .env(NAME, listener.name())
        .stdout(Stdio::null());
    if forks {
        command.env(FORKS, "").stdin(Stdio::piped());
    }
    let child = Process::start(&mut command);
    loop {
        if let Some(link) = listener.accept().unwrap() {
            return (port(link), child);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The peer process. It sends each frame back with its bytes reversed, until it receives "bye".
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn peer_process() {
    let name = std::env::var(NAME).expect("set by the test that starts this process");
    let mut port = port(connect(&name, Admit::SameUser, Duration::from_secs(10)).unwrap());
    if std::env::var(FORKS).is_ok() {
        // SAFETY: the child calls only read and _exit. It lives until the test closes the pipe.
        unsafe {
            if libc::fork() == 0 {
                libc::read(0, [0u8; 1].as_mut_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
    }
    let mut over = false;
    while !over && port.is_open(PEER) {
        let mut back: Vec<Vec<u8>> = Vec::new();
        if port.receive(16, &mut |frame| back.push(frame.bytes.iter().rev().copied().collect())) == 0 {
            thread::yield_now();
        }
        for frame in &back {
            over |= frame == b"eyb";
            send(&mut port, frame);
        }
    }
}

fn send(port: &mut ShmPort, frame: &[u8]) {
    loop {
        if let Some(lease) = port.lend(PEER, Class::default(), frame.len()) {
            lease.bytes.copy_from_slice(frame);
            break;
        }
        thread::yield_now();
    }
    port.commit();
    port.flush();
}

fn frame(number: u32) -> Vec<u8> {
    let len = 4 + number.wrapping_mul(2_654_435_761) as usize % 4200;
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn frames_cross_between_processes_in_order_and_whole() {
    let (mut port, mut child) = with_peer();
    // The window fits into each ring, so that neither side can wait for the other to free slots.
    let total = 5_000u32;
    let window = 40;
    let mut sent = 0;
    let mut back = 0;
    while back < total {
        while sent < total && sent < back + window {
            send(&mut port, &frame(sent));
            sent += 1;
        }
        if port.receive(16, &mut |got| {
            let bytes: Vec<u8> = got.bytes.iter().rev().copied().collect();
            assert_eq!(bytes, frame(back));
            back += 1;
        }) == 0
        {
            thread::yield_now();
        }
    }
    send(&mut port, b"bye");
    assert!(child.wait().unwrap().success());
    let counters = port.counters();
    assert_eq!((counters.frames_sent, counters.malformed), (u64::from(total) + 1, 0));
}

#[test]
fn a_killed_peer_is_lost_and_its_frames_are_dropped() {
    let (mut port, mut child) = with_peer();
    send(&mut port, &frame(1));
    while port.receive(1, &mut |_| {}) == 0 {}
    child.kill();
    // The ring is not read any more: it fills up, and then frames are dropped instead of blocking the
    // sender forever.
    while port.counters().send_dropped == 0 {
        send(&mut port, &frame(2));
    }
    assert!(!port.is_open(PEER));
    assert_eq!(port.counters().peers_lost, 1);
    assert_eq!(port.take_lost(), Some(PEER));
    while port.receive(16, &mut |_| {}) > 0 {}
    port.remove_link(PEER);
    assert_eq!(port.take_lost(), None);
}

/// The child has inherited the link's socket and memory, so the socket does not hang up when the peer dies.
#[test]
fn a_killed_peer_is_lost_though_a_child_of_it_lives() {
    remora_netns::require!(peers_processes_can_be_watched(), "the kernel has no SO_PEERPIDFD");
    let (mut port, mut child) = with_peer_that(true);
    send(&mut port, &frame(1));
    while port.receive(1, &mut |_| {}) == 0 {}
    child.kill();
    let mut fds = Vec::new();
    port.poll_fds(&mut fds);
    assert!(wait(fds[0]), "its end wakes us");
    port.disarm();
    assert_eq!(port.take_lost(), Some(PEER));
    drop(child);
}

#[test]
fn a_sleeper_is_woken_by_another_process_and_by_its_death() {
    let (mut port, mut child) = with_peer();
    let mut fds = Vec::new();
    port.poll_fds(&mut fds);
    let mut received = 0;
    for number in 0..50 {
        send(&mut port, &frame(number));
        while port.receive(1, &mut |_| received += 1) == 0 {
            if !port.arm() {
                assert!(wait(fds[0]), "the peer woke us, not the timer");
            }
            port.disarm();
        }
    }
    assert_eq!(received, 50);
    assert!(!port.arm());
    child.kill();
    assert!(wait(fds[0]));
    port.disarm();
    assert!(!port.is_open(PEER));
}

/// Returns whether the kernel can report the end of a peer's process (since Linux 6.5).
fn peers_processes_can_be_watched() -> bool {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut fd = -1i32;
    let mut len = 4;
    // SAFETY: the kernel writes one int.
    let done = unsafe {
        let optval = (&raw mut fd).cast();
        libc::getsockopt(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERPIDFD, optval, &mut len)
    };
    done == 0
}

fn wait(fd: i32) -> bool {
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: one pollfd, on the stack.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, 10_000) == 1 }
}
