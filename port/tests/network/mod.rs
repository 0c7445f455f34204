//! Networks for tests: a namespace of the test's own, `ip` in it, and a TUN device that shows every packet.

use rustix::thread::UnshareFlags;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

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

/// The same for another program of iproute2.
pub fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("this test needs iproute2 (`{program}`): {error}"));
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
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
