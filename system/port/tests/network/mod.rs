//! Networks for tests: a namespace of the test's own, `ip` in it, a TUN device that shows every packet, and veth pairs
//! between two namespaces.
#![allow(dead_code, reason = "each test uses its part")]

use rustix::thread::UnshareFlags;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Can this process have networks of its own? If not, says why, also where the test harness keeps what tests print: a test
/// that cannot see then ends, and nobody takes it for one that saw.
#[must_use]
pub fn possible() -> bool {
    let tried = std::thread::spawn(|| {
        // SAFETY: as in `own_namespace`, and the thread ends here.
        let entered = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        entered
            .map_err(|errno| format!("a network namespace of its own: {errno}; it takes CAP_SYS_ADMIN"))?;
        File::open("/dev/net/tun").map_err(|error| format!("/dev/net/tun: {error}"))?;
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).output();
        match up {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("`ip link set lo up`: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(format!("`ip` (iproute2): {error}")),
        }
    });
    let tried = tried.join().expect("no panic");
    if let Err(reason) = &tried {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr(), "{name}: not run, because it needs {}", reason.trim_end());
    }
    tried.is_ok()
}

/// Moves the calling thread (and what it will start) into a network namespace of its own, with loopback up.
///
/// Panics without root, saying so: a test that cannot see must not pass.
pub fn own_namespace() {
    // SAFETY: a network namespace of its own shares no memory or descriptor table with anybody, so nothing that other
    // threads rely on changes.
    let entered = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    entered.unwrap_or_else(|errno| {
        panic!("this test needs root (CAP_NET_ADMIN) for a network namespace of its own: {errno}; run it with sudo")
    });
    ip("link set lo up");
}

/// Runs `ip` with these arguments in the calling thread's namespace; panics with what it said if it fails.
pub fn ip(arguments: &str) {
    run("ip", arguments);
}

/// The same for another program of iproute2; returns what it said.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("this test needs iproute2 (`{program}`): {error}"));
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A point-to-point network device whose other end is this value: it gets every packet sent there, cut as on a wire.
pub struct Tun(File);

impl Tun {
    /// Makes device `name`, up, with these addresses (each with its prefix length).
    pub fn new(name: &str, addresses: &[&str]) -> Tun {
        let file = File::options().read(true).write(true).open("/dev/net/tun");
        let file = file.unwrap_or_else(|error| panic!("this test needs /dev/net/tun: {error}"));
        // SAFETY: an ifreq is plain old data for which all zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes `request`, which lives through the call.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        assert_eq!(status, 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
        rustix::io::ioctl_fionbio(&file, true).expect("non-blocking");
        for address in addresses {
            ip(&format!("address add {address} dev {name} nodad"));
        }
        ip(&format!("link set {name} up mtu 9000"));
        Tun(file)
    }

    /// The next packet, from its IP header, that is UDP; `None`: nothing is there.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        loop {
            let len = self.0.read(&mut buffer).ok()?;
            // Neighbour discovery and the like are not of interest.
            let protocol = if buffer[0] >> 4 == 4 { buffer[9] } else { buffer[6] };
            if protocol == 17 {
                return Some(buffer[..len].to_vec());
            }
        }
    }

    /// A packet comes from the network, from its IP header.
    pub fn inject(&mut self, packet: &[u8]) {
        self.0.write_all(packet).expect("write to tun");
    }
}

/// One test at a time: a program that another test starts has, for a moment, all of this process's descriptors, and with
/// them the sockets and programs that a test has just closed.
static ALONE: Mutex<()> = Mutex::new(());

/// A network namespace that a thread can move into, gone when the value and everything in it is.
pub struct Namespace {
    file: File,
    /// Of the namespaces of a pair, one.
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Namespace {
    /// Makes one, with loopback up, and moves the calling thread into it.
    pub fn new() -> Namespace {
        own_namespace();
        let file = File::open("/proc/thread-self/ns/net").expect("the thread's own namespace");
        Namespace { file, _alone: None }
    }

    /// Moves the calling thread into it.
    pub fn enter(&self) {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.file.as_fd(), kind).expect("setns");
    }

    /// A name for it that other programs can open while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Does an interface of the calling thread's namespace (or `default`: one that will be) look for other machines that have its
/// addresses (duplicate address detection)? While it looks, neighbours are not asked for.
pub fn checks_addresses(interface: &str, checks: bool) {
    for (name, value) in [("accept_dad", u8::from(checks)), ("dad_transmits", u8::from(checks))] {
        let file = format!("/proc/sys/net/ipv6/conf/{interface}/{name}");
        std::fs::write(&file, value.to_string()).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// Two namespaces with a veth pair `near0`-`far0` between them, addresses 10.90.0.1 and .2, fd90::1 and ::2, and this
/// MTU. The calling thread is in the first. Only one test of a process has such a pair at a time.
pub fn veth_pair(mtu: usize, options: &str) -> [Namespace; 2] {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let far = Namespace::new();
    let near = Namespace { _alone: Some(alone), ..Namespace::new() };
    for namespace in [&far, &near] {
        namespace.enter();
        checks_addresses("default", false);
    }
    let far_end = format!("peer name far0 mtu {mtu} {options} netns {}", far.path());
    ip(&format!("link add near0 mtu {mtu} {options} type veth {far_end}"));
    for (namespace, name, number) in [(&far, "far0", 2), (&near, "near0", 1)] {
        namespace.enter();
        ip(&format!("address add 10.90.0.{number}/24 dev {name}"));
        ip(&format!("address add fd90::{number}/64 dev {name} nodad"));
        ip(&format!("link set {name} up"));
    }
    [near, far]
}
