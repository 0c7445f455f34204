//! Hosts: network namespaces, each with one link to a bridge that stands in another one.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Some hosts on one network; they go away with this value.
pub struct Hosts {
    names: Vec<String>,
    switch: String,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let Output { status, stderr, .. } = output.map_err(|error| format!("`ip` (iproute2): {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&stderr).trim()))
}

impl Hosts {
    /// Makes them. None: this process may not, and that has been said.
    pub fn new(count: usize) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("a test");
            // Past the test harness, which keeps what tests print.
            let _ = writeln!(
                std::io::stderr(),
                "{test}: not run, because making network namespaces needs root and iproute2"
            );
            return None;
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let id = format!("remora-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let names = (0..count).map(|host| format!("{id}-{host}")).collect();
        let hosts = Hosts { names, switch: format!("{id}-switch") };
        hosts.make().unwrap_or_else(|error| panic!("{error}"));
        Some(hosts)
    }

    fn make(&self) -> Result<(), String> {
        let switch = &self.switch;
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for (host, name) in self.names.iter().enumerate() {
            let port = port_of(host);
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {port} netns {switch} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {switch} link set {port} master bridge up"))?;
            ip(&format!("-n {name} address add {}/24 dev eth0", self.address(host)))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(())
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> String {
        format!("10.214.8.{}", host + 1)
    }

    /// The command `remora` with these words on a host. It stays the same process.
    pub fn remora(&self, host: usize, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], env!("CARGO_BIN_EXE_remora")]).args(words);
        command.env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    /// Cuts a host off, or joins it to the others again. Frames that the bridge has taken may still get through to others.
    pub fn cut(&self, host: usize, cut: bool) {
        let state = if cut { "down" } else { "up" };
        ip(&format!("-n {} link set {} {state}", self.switch, port_of(host)))
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

fn port_of(host: usize) -> String {
    format!("port{host}")
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.switch]) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}
