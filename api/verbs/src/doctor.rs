//! Tests of what this machine can run, with a remedy for each fault. Each finding is the result of an
//! attempt.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use remora_port::shm::{Admit, Geometry, Listener};
use remora_port::udp::{Options, Socket};
use remora_port::xdp::{Candidate, Driver};
use rustix::event::epoll::CreateFlags;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::{Device, PortKind};

/// The result of one test.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The feature works.
    Good,
    /// The feature works, but slower or with less protection.
    Limited,
    /// The feature does not work on this machine.
    Missing,
}

/// A test and its result.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Subject of the test, in two or three words.
    pub what: &'static str,
    /// The degree to which the subject works.
    pub verdict: Verdict,
    /// The observation, as text.
    pub found: String,
    /// Advice for the user; empty if nothing is wrong.
    pub mend: &'static str,
}

impl Finding {
    fn good(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { what: subject, verdict: Verdict::Good, found: text.into(), mend: "" }
    }

    fn limited(subject: &'static str, text: impl Into<String>, mend: &'static str) -> Finding {
        Finding { what: subject, verdict: Verdict::Limited, found: text.into(), mend }
    }

    fn missing(subject: &'static str, text: impl Into<String>, mend: &'static str) -> Finding {
        Finding { what: subject, verdict: Verdict::Missing, found: text.into(), mend }
    }
}

/// Runs all tests, in the order in which a table shows them.
///
/// `udp(port)` is the address of the udp port with this port number. With an `interface`, the xdp port is
/// opened on it for a moment. Without one, the test of xdp reports only what can be determined without
/// touching an interface.
pub fn examine(udp: impl Fn(u16) -> SocketAddr, interface: Option<&str>) -> Vec<Finding> {
    let other = match udp(0) {
        SocketAddr::V4(_) => other_family("port udp, IPv6", Ipv6Addr::LOCALHOST.into()),
        SocketAddr::V6(_) => other_family("port udp, IPv4", Ipv4Addr::LOCALHOST.into()),
    };
    vec![
        cores(),
        clock(),
        system_calls(),
        file_size(),
        shared_memory(),
        page_faults(),
        shm_port(),
        udp_port("port udp", udp(0)),
        other,
        xdp_port(interface),
        standard_port(udp(4791)),
        receive_buffer(udp(0)),
        lockable(),
        descriptors(),
    ]
}

/// Describes how completely a port checks the ICRC of incoming packets.
pub fn icrc_check(kind: PortKind, is_ipv4: bool) -> &'static str {
    match (kind, is_ipv4) {
        (PortKind::Shm, _) => "ICRC skipped by agreement: frames never leave memory",
        (PortKind::Udp, true) => "ICRC checked but for the IP id (7 of its 32 bits)",
        (PortKind::Udp, false) => "ICRC checked exactly",
        (PortKind::Xdp, _) => "ICRC checked exactly, IP id and all",
    }
}

fn cores() -> Finding {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => Finding::limited(
            "cores",
            "1",
            "two processes that spin will share it: expect 10 times the latency, or give the machine a second core",
        ),
        n => Finding::good("cores", n.to_string()),
    }
}

fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(path).unwrap_or_default();
    match source.trim() {
        fast @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page") => {
            Finding::good("clock", fast)
        }
        "" => Finding::limited("clock", "unknown", "nothing to do if latencies look right"),
        slow => Finding::limited(
            "clock",
            slow,
            "each clock read is a system call: boot with clocksource=tsc if the machine allows",
        ),
    }
}

/// Tries the system calls that every NIC needs and that a sandbox may refuse. Returns those that fail, with
/// their errors.
fn refused_calls() -> Vec<(&'static str, io::Error)> {
    let thread = std::thread::Builder::new().spawn(|| ()).map(|thread| drop(thread.join()));
    let tried = [
        ("clone3", thread),
        ("epoll_create1", rustix::event::epoll::create(CreateFlags::CLOEXEC).map(drop).map_err(Into::into)),
        ("eventfd2", remora_host::packet::eventfd().map(drop)),
        ("getrandom", getrandom(&mut [0; 16], GetRandomFlags::empty()).map(drop).map_err(Into::into)),
        ("memfd_create", memfd_create("remora-doctor", MemfdFlags::CLOEXEC).map(drop).map_err(Into::into)),
    ];
    tried.into_iter().filter_map(|(call, outcome)| Some((call, outcome.err()?))).collect()
}

fn system_calls() -> Finding {
    let refused = refused_calls();
    if refused.is_empty() {
        return Finding::good("system calls", "none of those that a NIC needs is refused");
    }
    let refused: Vec<String> = refused.iter().map(|(call, error)| format!("{call}: {error}")).collect();
    Finding::missing(
        "system calls",
        refused.join("; "),
        "allow them in the seccomp profile of this sandbox, or update its runtime (Docker before 20.10.10 refuses clone3)",
    )
}

/// Shared memory in bytes that a link or a queue may take. It is a file, so the limit of a file's size
/// applies.
const LARGEST: u64 = 64 << 20;

fn file_size() -> Finding {
    match getrlimit(Resource::Fsize).current {
        Some(few) if few < LARGEST => Finding::limited(
            "file size",
            format!("{} KiB", few >> 10),
            "run `ulimit -f unlimited` before it: regions, queues and links are shared memory, which counts as files",
        ),
        limit => Finding::good(
            "file size",
            limit.map_or("no limit".to_owned(), |few| format!("{} MiB", few >> 20)),
        ),
    }
}

fn shared_memory() -> Finding {
    match remora_memory::Bytes::memfd("remora-doctor", 1 << 20) {
        Ok(_) => Finding::good("shared memory", "memfd works"),
        Err(error) => Finding::missing(
            "shared memory",
            error.to_string(),
            "allow memfd_create, and raise the memory limit of this container",
        ),
    }
}

fn page_faults() -> Finding {
    match remora_memory::page_fault::install() {
        Ok(()) => Finding::good("page faults", "an access to registered memory that is gone fails by itself"),
        Err(error) => Finding::limited(
            "page faults",
            format!("not handled: {error}"),
            "a page that goes away under a registered region ends the program: deregister memory before you unmap it",
        ),
    }
}

fn shm_port() -> Finding {
    let Some(geometry) = Geometry::new(1024, 4352) else { unreachable!("a ring of this shape is fine") };
    match Listener::new(geometry, Admit::SameUser) {
        Ok(_) => Finding::good("port shm", icrc_check(PortKind::Shm, true)),
        Err(error) => Finding::missing(
            "port shm",
            error.to_string(),
            "allow Unix sockets (abstract names) in this sandbox",
        ),
    }
}

/// Tests the other family of IP, whose absence is no fault.
fn other_family(subject: &'static str, loopback: IpAddr) -> Finding {
    match udp_port(subject, SocketAddr::new(loopback, 0)) {
        Finding { verdict: Verdict::Missing, found: text, .. } => {
            Finding::limited(subject, text, "nothing to do unless peers speak it")
        }
        finding => finding,
    }
}

fn udp_port(subject: &'static str, address: SocketAddr) -> Finding {
    let mut socket = match Socket::open(address, &Options::default()) {
        Ok(socket) => socket,
        Err(error) => {
            return Finding::missing(
                subject,
                error.to_string(),
                "as it says; --address has it tried with another address",
            );
        }
    };
    let icrc = icrc_check(PortKind::Udp, address.is_ipv4());
    let trains = match (socket.sends_trains(), socket.join(true).is_ok()) {
        (true, true) => return Finding::good(subject, format!("trains out and in; {icrc}")),
        (true, false) => "trains out only",
        (false, true) => "trains in only",
        (false, false) => "no trains",
    };
    let mend =
        "a kernel from 5.0 on has UDP_SEGMENT and UDP_GRO; without both, expect a tenth of the packet rate";
    Finding::limited(subject, format!("{trains}; {icrc}"), mend)
}

/// Tests port xdp on this interface or, without one, reports what can be determined without touching any.
fn xdp_port(interface: Option<&str>) -> Finding {
    let icrc = icrc_check(PortKind::Xdp, true);
    if let Some(name) = interface {
        return match Device::xdp(name, None).open() {
            Ok(context) => Finding::good("port xdp", format!("{name}: {}; {icrc}", context.port().manner)),
            Err(error) => {
                Finding::missing("port xdp", error.to_string(), "as it says; port udp needs no rights")
            }
        };
    }
    let candidates = match remora_port::xdp::probe() {
        Ok(candidates) => candidates,
        Err(error) => {
            return Finding::limited(
                "port xdp",
                error.to_string(),
                "nothing to do if shm and udp are enough",
            );
        }
    };
    let drivers: Vec<String> = candidates.iter().map(on_interface).collect();
    if drivers.is_empty() {
        let mend = "port xdp needs an Ethernet interface that is up and has an address";
        return Finding::limited("port xdp", format!("allowed, but on no interface; {icrc}"), mend);
    }
    Finding::good("port xdp", format!("allowed, on {}; {icrc}", drivers.join(", ")))
}

/// Describes the port that this interface would give.
fn on_interface(candidate: &Candidate) -> String {
    let manner = match candidate.driver {
        Some(Driver { zero_copy: true, .. }) => "zero copy",
        Some(Driver { native: true, .. }) => "in the driver, one copy",
        Some(_) => "after the driver, one copy",
        None => "--interface tells how",
    };
    format!("{} ({manner})", candidate.interface.name)
}

fn standard_port(address: SocketAddr) -> Finding {
    match Socket::open(address, &Options::default()) {
        Ok(_) => Finding::good("UDP port 4791", "free"),
        Err(error) => Finding::limited(
            "UDP port 4791",
            error.to_string(),
            "Remora takes any other port among its own; hardware RoCE NICs and Soft-RoCE need this one",
        ),
    }
}

fn receive_buffer(address: SocketAddr) -> Finding {
    let bytes = match Socket::open(address, &Options::default()) {
        Ok(socket) => socket.receive_buffer(),
        Err(_) => return Finding::limited("socket buffer", "unknown", "see to port udp first"),
    };
    let size = format!("{} KiB", bytes >> 10);
    if bytes < 4 << 20 {
        let mend = "run `sysctl -w net.core.rmem_max=33554432` as root, or give the program CAP_NET_ADMIN: large transfers lose \
                    fewer packets";
        return Finding::limited("socket buffer", size, mend);
    }
    Finding::good("socket buffer", size)
}

/// Reports the limit of locked memory, which RDMA hardware needs for all registered memory and Remora does
/// not.
fn lockable() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or("no limit".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    Finding::good(
        "lockable memory",
        format!("{limit}; it does not matter to ports shm and udp, which lock none"),
    )
}

/// Descriptors that suffice for a server with this many clients over shm, each of which needs some.
const DESCRIPTORS: u64 = 1024;

fn descriptors() -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(few) if few < DESCRIPTORS => {
            let mend =
                "run `ulimit -n 4096` before it: each engine takes a few, and so does each client over shm";
            Finding::limited("descriptors", few.to_string(), mend)
        }
        enough => {
            Finding::good("descriptors", enough.map_or("no limit".to_owned(), |count| count.to_string()))
        }
    }
}
