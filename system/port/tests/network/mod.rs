//! Networks for tests: a namespace of the test's own, `ip` inside it, a TUN device that shows every packet,
//! and veth pairs between two namespaces.
#![allow(dead_code, reason = "each test uses its part")]

use remora_netns::{Error, Namespace};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Checks that this process can create networks.
///
/// # Errors
/// Fails if the process may not create network namespaces or open `/dev/net/tun`.
pub(crate) fn possible() -> Result<(), Error> {
    Namespace::new("tried")?;
    let tun = |error| Error::System("opening /dev/net/tun".to_owned(), error);
    File::open("/dev/net/tun").map(drop).map_err(tun)
}

/// Creates a network namespace with loopback up, and moves the calling thread into it, with all processes
/// that the thread starts.
///
/// Panics with an explanation without root: a test that cannot run must not pass.
#[must_use = "it goes away with this value"]
pub(crate) fn own_namespace() -> Namespace {
    let own = Namespace::new("own").unwrap_or_else(|error| panic!("{error}"));
    own.enter().unwrap_or_else(|error| panic!("{error}"));
    own
}

/// Runs `ip` with these arguments in the calling thread's namespace. If `ip` fails, panics with its output.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs another program of iproute2 like [`ip`], and returns its output.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    remora_netns::run(program, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// A point-to-point network device whose other end is this value. It receives every packet that is sent to
/// the device, cut into packets as on a wire.
pub(crate) struct Tun(File);

impl Tun {
    /// Creates the device `name`, brings it up, and adds these addresses (each with its prefix length).
    pub(crate) fn new(name: &str, addresses: &[&str]) -> Tun {
        let file = File::options().read(true).write(true).open("/dev/net/tun");
        let file = file.unwrap_or_else(|error| panic!("this test needs /dev/net/tun: {error}"));
        // SAFETY: an ifreq is plain old data for which all zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (target, source) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *target = source as libc::c_char;
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

    /// Returns the next UDP packet, from its IP header on; `None` if none is waiting.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        loop {
            let len = self.0.read(&mut buffer).ok()?;
            // Neighbour discovery and similar packets are skipped.
            let protocol = if buffer[0] >> 4 == 4 { buffer[9] } else { buffer[6] };
            if protocol == 17 {
                return Some(buffer[..len].to_vec());
            }
        }
    }

    /// Makes a packet, given from its IP header on, arrive from the network.
    pub(crate) fn inject(&mut self, packet: &[u8]) {
        self.0.write_all(packet).expect("write to tun");
    }
}

/// Lets only one of these tests run at a time. A program that another test starts holds, for a moment, all
/// descriptors of this process, including sockets and programs that a test has just closed.
static ALONE: Mutex<()> = Mutex::new(());

/// A host of a pair, which is a namespace.
pub(crate) struct Host {
    space: Namespace,
    /// The guard, held by one host of a pair.
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Host {
    /// Moves the calling thread to the host.
    pub(crate) fn enter(&self) {
        self.space.enter().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Turns duplicate address detection on one of the host's interfaces on or off.
    pub(crate) fn check_addresses(&self, interface: &str, checks: bool) {
        self.space.check_addresses(interface, checks).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Returns two hosts with a veth pair `near0`-`far0` between them, addresses 10.90.0.1 and .2, fd90::1 and
/// ::2, and this MTU. The calling thread is in the first. Only one test of a process has such a pair at a
/// time.
pub(crate) fn veth_pair(mtu: usize, options: &str) -> [Host; 2] {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = make_pair(mtu, options).unwrap_or_else(|error| panic!("{error}"));
    let [near, far] = made.map(|space| Host { space, _alone: None });
    near.enter();
    [Host { _alone: Some(alone), ..near }, far]
}

fn make_pair(mtu: usize, options: &str) -> Result<[Namespace; 2], remora_netns::Error> {
    let spaces = [Namespace::new("near")?, Namespace::new("far")?];
    let [near, far] = &spaces;
    near.check_addresses("default", false)?;
    far.check_addresses("default", false)?;
    near.add_veth("near0", far, "far0", &format!("mtu {mtu} {options}"))?;
    for (space, name, number) in [(far, "far0", 2), (near, "near0", 1)] {
        space.ip(&format!("address add 10.90.0.{number}/24 dev {name}"))?;
        space.ip(&format!("address add fd90::{number}/64 dev {name} nodad"))?;
        space.ip(&format!("link set {name} up"))?;
    }
    Ok(spaces)
}
