//! Hosts of a test: network namespaces, each with one link to a bridge in another namespace.

use remora_netns::{Error, Namespace};
use std::process::{Command, Stdio};

/// Hosts on one network. They are removed when this value is dropped.
pub(crate) struct Hosts {
    spaces: Vec<Namespace>,
    switch: Namespace,
}

impl Hosts {
    /// Creates this many hosts.
    ///
    /// # Errors
    /// This process may not.
    pub(crate) fn new(count: usize) -> Result<Hosts, Error> {
        let switch = Namespace::new("switch")?;
        switch.add_bridge("bridge")?;
        let new = |host| Namespace::new(&format!("host{host}"));
        let hosts = Hosts { spaces: (0..count).map(new).collect::<Result<_, _>>()?, switch };
        for (host, space) in hosts.spaces.iter().enumerate() {
            hosts.switch.plug("bridge", &port_of(host), space, "eth0")?;
            space.ip(&format!("address add {}/24 dev eth0", hosts.address(host)))?;
            space.ip("link set eth0 up")?;
        }
        Ok(hosts)
    }

    /// Returns the address of a host.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.214.8.{}", host + 1)
    }

    /// Returns the command `remora` with these arguments on a host. Signals to its child process reach
    /// `remora` itself, not a wrapper.
    pub(crate) fn remora(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.spaces[host].command(crate::running::binary());
        command.args(words).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    /// Cuts a host off, or connects it again. Frames that the bridge holds may still arrive.
    pub(crate) fn cut(&self, host: usize, cut: bool) {
        let state = if cut { "down" } else { "up" };
        let done = self.switch.ip(&format!("link set {} {state}", port_of(host)));
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}

fn port_of(host: usize) -> String {
    format!("port{host}")
}
