//! Sending and receiving trains is optional: with a kernel or device that refuses trains, with whatever
//! errno, frames must be sent one by one. This test binary runs itself under a preloaded library
//! (`shim/refuse.c`) that makes the calls fail.

use remora_port::udp::{Options, UdpPort};
use remora_port::{Egress, Peer, Port};
use remora_wire::frame::Class;
use remora_wire::icrc::{self, Flow};
use rustix::io::Errno;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Builds the library and returns its path.
fn shim() -> PathBuf {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/shim/refuse.c");
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("refuse{}.so", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    let status = cc.status().expect("a C compiler, which `make setup` installs");
    assert!(status.success(), "cc: {status}");
    library
}

/// Runs the test `name` of this file in another process, in which the calls named by `refuse` fail with
/// `errno`.
fn under_the_shim(name: &str, refuse: &str, errno: Errno, times: Option<u32>) {
    static LIBRARY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", name, "--nocapture"]).env("LD_PRELOAD", LIBRARY.get_or_init(shim));
    child.env("REMORA_REFUSE", refuse).env("REMORA_ERRNO", errno.raw_os_error().to_string());
    if let Some(times) = times {
        child.env("REMORA_TIMES", times.to_string());
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{refuse} {errno:?}:\n{text}");
}

/// Returns the errno with which calls fail in this process.
fn met() -> Errno {
    let raw = std::env::var("REMORA_ERRNO").expect("set by the test that starts this process");
    Errno::from_raw_os_error(raw.parse().unwrap())
}

/// A logger that counts warnings.
struct Warnings;

static WARNINGS: AtomicU64 = AtomicU64::new(0);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        WARNINGS.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const HOSTS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];
/// Number of frames of a batch: a train, and another one that ends with a shorter frame.
const BATCH: u32 = 40;
const LONG: usize = 1000;

fn len_of(number: u32) -> usize {
    if number % BATCH == BATCH - 1 { 300 } else { LONG }
}

fn pair(host: &str) -> (UdpPort, Peer, UdpPort) {
    let [mut one, two] =
        [(), ()].map(|()| UdpPort::open(host.parse().unwrap(), &Options::default()).unwrap());
    let peer = one.peer(two.endpoint()).unwrap();
    (one, peer, two)
}

/// Passes a batch of sealed frames to the port.
fn send_batch(port: &mut UdpPort, peer: Peer, batch: u32) {
    let flow = Flow::new(port.endpoint(), port.peer_endpoint(peer).unwrap());
    for number in batch * BATCH..(batch + 1) * BATCH {
        let lease = port.lend(peer, Class::default(), len_of(number)).expect("space");
        let ip_id = lease.ip_id;
        let covered = lease.bytes.len() - icrc::LEN;
        lease.bytes[..covered].fill(number as u8);
        lease.bytes[..4].copy_from_slice(&number.to_be_bytes());
        let seal = flow.seal(ip_id, &lease.bytes[..covered]);
        icrc::write(lease.bytes, seal);
        port.commit();
    }
    port.flush();
}

/// Returns the numbers of the received frames, each of which must be whole and sealed for identification 0,
/// as a single datagram is.
fn whole(port: &mut UdpPort, sender: &UdpPort) -> Vec<u32> {
    let flow = Flow::new(sender.endpoint(), port.endpoint());
    let mut numbers = Vec::new();
    while port.receive(16, &mut |frame| {
        let (covered, _) = frame.bytes.split_at(frame.bytes.len() - icrc::LEN);
        let number = u32::from_be_bytes(*frame.bytes.first_chunk().unwrap());
        if frame.bytes.len() == len_of(number) && flow.accepts(0, covered, icrc::read(frame.bytes).unwrap()) {
            numbers.push(number);
        }
    }) > 0
    {}
    numbers
}

/// Regression: a train of datagrams that the kernel refused by EINVAL was lost, and so was each
/// retransmission.
#[test]
fn a_train_that_is_refused_leaves_frame_by_frame_whatever_the_errno() {
    let errnos = [
        Errno::INVAL,
        Errno::IO,
        Errno::OPNOTSUPP,
        Errno::MSGSIZE,
        Errno::PERM,
        Errno::NOSYS,
        Errno::NOPROTOOPT,
    ];
    for errno in errnos {
        under_the_shim("in_the_child_trains_are_refused", "cut", errno, None);
    }
}

#[test]
#[ignore = "the entry point of a process that another test starts"]
fn in_the_child_trains_are_refused() {
    let errno = met();
    tracing::subscriber::set_global_default(Warnings).unwrap();
    for (host, warned) in HOSTS.into_iter().zip(1..) {
        let (mut one, peer, mut two) = pair(host);
        for batch in 0..5 {
            send_batch(&mut one, peer, batch);
            let expected: Vec<u32> = (batch * BATCH..(batch + 1) * BATCH).collect();
            assert_eq!(whole(&mut two, &one), expected, "batch {batch}, {host}");
        }
        let counters = one.counters();
        let udp = one.udp_counters();
        assert_eq!((counters.frames_sent, counters.send_dropped), (u64::from(5 * BATCH), 0));
        assert_eq!((udp.cannot_cut, udp.trains_sent, udp.too_long), (1, 0, 0));
        assert_eq!((counters.os_errors, udp.errnos.count(errno)), (1, 1));
        assert_eq!(WARNINGS.load(Ordering::Relaxed), warned, "once for each port");
    }
}

#[test]
fn a_train_that_finds_no_room_waits_and_stays_a_train() {
    for errno in [Errno::NOBUFS, Errno::AGAIN] {
        under_the_shim("in_the_child_there_is_no_room_for_a_while", "cut", errno, Some(3));
    }
}

#[test]
#[ignore = "the entry point of a process that another test starts"]
fn in_the_child_there_is_no_room_for_a_while() {
    let (mut one, peer, mut two) = pair(HOSTS[1]);
    send_batch(&mut one, peer, 0);
    assert_eq!((one.udp_counters().would_block, whole(&mut two, &one).len()), (1, 0));
    one.flush();
    one.flush();
    assert_eq!(one.udp_counters().would_block, 3);
    one.flush();
    assert_eq!(whole(&mut two, &one), (0..BATCH).collect::<Vec<_>>());
    let udp = one.udp_counters();
    assert_eq!((udp.trains_sent, udp.cannot_cut, one.counters().os_errors), (1, 0, 0));
}

#[test]
fn joining_that_is_refused_is_not_asked_for_again() {
    for errno in [Errno::INVAL, Errno::NOPROTOOPT, Errno::PERM] {
        under_the_shim("in_the_child_frames_are_read_one_by_one", "join", errno, None);
    }
}

#[test]
fn reading_joined_trains_that_fails_leads_to_reading_one_by_one() {
    for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::IO] {
        under_the_shim("in_the_child_frames_are_read_one_by_one", "joined", errno, None);
    }
}

#[test]
#[ignore = "the entry point of a process that another test starts"]
fn in_the_child_frames_are_read_one_by_one() {
    let errno = met();
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let (mut one, peer, mut two) = pair(HOSTS[1]);
    let lost = std::env::var("REMORA_REFUSE").unwrap() == "joined";
    for batch in 0..8 {
        send_batch(&mut one, peer, batch);
        let came = whole(&mut two, &one);
        // Frames that the kernel had joined before reading failed are read as one long frame.
        if batch != 1 || !lost {
            assert_eq!(came, (batch * BATCH..(batch + 1) * BATCH).collect::<Vec<_>>(), "batch {batch}");
        }
    }
    let udp = two.udp_counters();
    assert_eq!((udp.cannot_join, udp.trains_received, two.counters().os_errors), (1, 0, 1));
    assert_eq!(WARNINGS.load(Ordering::Relaxed), 1);
    assert!(!lost || udp.errnos.count(errno) == 1);
}
