//! Two network namespaces with a veth pair between them, which take root.
#![allow(dead_code, reason = "each test uses its part")]

use remora_netns::Namespace;
use remora_verbs::{Context, Device};
use std::process::{Command, Stdio};

/// IPv4 addresses of the two ends, with an MTU of 1500.
pub(crate) const V4: [&str; 2] = ["10.213.7.1", "10.213.7.2"];
/// IPv6 addresses of the two ends.
pub(crate) const V6: [&str; 2] = ["fd00:7::1", "fd00:7::2"];

/// The interface in each namespace.
const INTERFACES: [&str; 2] = ["near0", "far0"];

/// Two network namespaces, which are removed when this value is dropped.
pub(crate) struct Veth {
    spaces: [Namespace; 2],
}

impl Veth {
    /// Creates the namespaces.
    ///
    /// # Errors
    /// This process may not.
    pub(crate) fn new() -> Result<Veth, remora_netns::Error> {
        let spaces = [Namespace::new("near")?, Namespace::new("far")?];
        let [near, far] = &spaces;
        // Turns duplicate address detection off for new interfaces, link-local addresses included.
        near.check_addresses("default", false)?;
        far.check_addresses("default", false)?;
        near.add_veth(INTERFACES[0], far, INTERFACES[1], "")?;
        for (side, space) in spaces.iter().enumerate() {
            let interface = INTERFACES[side];
            space.ip(&format!("address add {}/24 dev {interface}", V4[side]))?;
            space.ip(&format!("address add {}/64 dev {interface} nodad", V6[side]))?;
            space.ip(&format!("link set {interface} up"))?;
        }
        near.wait_until_up(INTERFACES[0])?;
        far.wait_until_up(INTERFACES[1])?;
        Ok(Veth { spaces })
    }

    /// Runs `ip` in namespace `side`, and returns its output.
    pub(crate) fn ip(&self, side: usize, arguments: &str) -> String {
        self.spaces[side].ip(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Turns duplicate address detection on for the interface in namespace `side`.
    pub(crate) fn checks_addresses(&self, side: usize) {
        self.spaces[side].check_addresses(INTERFACES[side], true).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The name of the interface in namespace `side`.
    pub(crate) fn interface(&self, side: usize) -> &str {
        INTERFACES[side]
    }

    /// A command that runs this binary as `role` in namespace `side`: the test `acts_its_role` of `module`
    /// finds the role in the environment variable `variable`.
    pub(crate) fn run(&self, side: usize, module: &str, variable: &str, role: &str) -> Command {
        let mut command = self.spaces[side].command(std::env::current_exe().unwrap());
        let (_, inner) = module.split_once("::").unwrap();
        command
            .args(["--ignored", "--exact", &format!("{inner}::acts_its_role"), "--nocapture"])
            .env(variable, role);
        command.stdout(Stdio::piped());
        command
    }

    /// Moves the calling thread to namespace `side`.
    pub(crate) fn enter(&self, side: usize) {
        self.spaces[side].enter().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Opens a device in namespace `side`. The calling thread stays there; the device can be used from any
    /// thread.
    pub(crate) fn open(&self, side: usize, device: &Device) -> Context {
        self.enter(side);
        device.open().unwrap_or_else(|error| panic!("{error}"))
    }
}
