//! Network namespaces and veth pairs for tests and benchmarks, which act as separate hosts on one machine;
//! TCP ports that no other test uses, and processes that end with their test.
//!
//! A [`Namespace`] is deleted when its value is dropped. Creating one requires root (CAP_SYS_ADMIN) and
//! iproute2; a test that cannot create one is reported by [`require!`]. If a process is
//! killed, its namespaces stay until another process creates one.
//!
//! ```no_run
//! let [near, far] = [remora_netns::Namespace::new("near")?, remora_netns::Namespace::new("far")?];
//! near.add_veth("eth0", &far, "eth0", "")?;
//! for (host, address) in [(&near, "10.0.0.1/24"), (&far, "10.0.0.2/24")] {
//!     host.ip(&format!("address add {address} dev eth0"))?;
//!     host.ip("link set eth0 up")?;
//! }
//! near.command("ping").args(["-c", "1", "10.0.0.2"]).status().expect("ping");
//! # Ok::<(), remora_netns::Error>(())
//! ```

mod error;
mod iproute;
mod process;
mod requirement;
mod stale;
mod tcp_port;

pub use error::Error;
pub use iproute::{ip, run};
pub use process::Process;
pub use requirement::{LIST, REQUIRE, not_run};
pub use tcp_port::free_port;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Moves the calling thread into the namespace of this name, with all threads and processes that it starts
/// later.
///
/// # Errors
/// [`Error::System`] if there is no such namespace, or the system refuses.
pub fn enter(name: &str) -> Result<(), Error> {
    let refused = |error| Error::System(format!("entering the network namespace {name}"), error);
    let space = File::open(format!("/run/netns/{name}")).map_err(refused)?;
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| refused(errno.into()))
}

/// A named network namespace with loopback up. It is deleted when the value is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace whose name ends with `label`.
    ///
    /// # Errors
    /// [`Error`] if this process is not allowed to, or there is no `ip`.
    pub fn new(label: &str) -> Result<Namespace, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        stale::delete_once();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}-{label}", stale::PREFIX, std::process::id());
        ip(&format!("netns add {name}"))?;
        let made = Namespace { name };
        made.ip("link set lo up")?;
        Ok(made)
    }

    /// Returns the name of the namespace, as used by `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into the namespace, with all threads and processes that it starts later.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    pub fn enter(&self) -> Result<(), Error> {
        enter(&self.name)
    }

    /// Runs `body` in a new thread inside this namespace.
    ///
    /// # Errors
    /// [`Error::System`] if the thread cannot enter the namespace.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| body()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` with these arguments in this namespace, and returns its standard output.
    ///
    /// # Errors
    /// [`Error`] if `ip` fails.
    pub fn ip(&self, arguments: &str) -> Result<String, Error> {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// Returns the command words that start a program in this namespace; the process becomes the program's
    /// own.
    pub fn exec(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Returns a command for a program in this namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let [ip, words @ ..] = self.exec();
        let mut command = Command::new(ip);
        command.args(words).arg(program);
        command
    }

    /// Turns duplicate address detection on `interface` on or off (`default` for interfaces that are
    /// created later). During detection the kernel does not resolve neighbours.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    pub fn check_addresses(&self, interface: &str, checks: bool) -> Result<(), Error> {
        let value = u8::from(checks).to_string();
        let write = |name: &str| {
            let file = format!("/proc/sys/net/ipv6/conf/{interface}/{name}");
            std::fs::write(&file, &value).map_err(|error| Error::System(file, error))
        };
        self.inside(|| ["accept_dad", "dad_transmits"].iter().try_for_each(|name| write(name)))?
    }

    /// Waits until the kernel has noticed that the link is up; frames sent before are lost.
    ///
    /// # Errors
    /// [`Error`] if there is no such interface.
    pub fn wait_until_up(&self, interface: &str) -> Result<(), Error> {
        let show = format!("-brief link show {interface}");
        while self.ip(&show)?.split_whitespace().nth(1) != Some("UP") {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Creates a bridge in this namespace and brings it up.
    ///
    /// # Errors
    /// [`Error`] if the system refuses.
    pub fn add_bridge(&self, bridge: &str) -> Result<(), Error> {
        self.ip(&format!("link add {bridge} type bridge"))?;
        self.ip(&format!("link set {bridge} up")).map(drop)
    }

    /// Connects `host` to a bridge of this namespace by a veth pair: `interface` in `host`, and `port`
    /// here, which is brought up.
    ///
    /// # Errors
    /// [`Error`] if the system refuses.
    pub fn plug(&self, bridge: &str, port: &str, host: &Namespace, interface: &str) -> Result<(), Error> {
        self.add_veth(port, host, interface, "")?;
        self.ip(&format!("link set {port} master {bridge} up")).map(drop)
    }

    /// Creates a veth pair: `interface` in this namespace and `peer_interface` in `peer`, both down.
    /// `options` are options of `ip link add` for each end, such as `mtu 9000`.
    ///
    /// # Errors
    /// [`Error`] if the system refuses.
    pub fn add_veth(
        &self,
        interface: &str,
        peer: &Namespace,
        peer_interface: &str,
        options: &str,
    ) -> Result<(), Error> {
        let end = format!("peer name {peer_interface} {options} netns {}", peer.name);
        self.ip(&format!("link add {interface} {options} type veth {end}")).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.name));
    }
}
