//! Two network namespaces with a veth pair between them, which take root. A test that gets none prints that
//! and ends.
#![allow(dead_code, reason = "each test uses its part")]

use remora_netns::{Namespace, or_skip};
use remora_verbs::{Context, Device};
use std::process::{Command, Stdio};

/// Addresses of the two ends, MTU 1500.
pub const V4: [&str; 2] = ["10.213.7.1", "10.213.7.2"];
/// The same of IPv6.
pub const V6: [&str; 2] = ["fd00:7::1", "fd00:7::2"];

/// The interface in each namespace.
const INTERFACES: [&str; 2] = ["near0", "far0"];

/// The namespaces; they go away with this value.
pub struct Veth {
    spaces: [Namespace; 2],
}

impl Veth {
    /// Makes them. None: this process may not, and has printed that.
    pub fn new() -> Option<Veth> {
        or_skip(Veth::make())
    }

    fn make() -> Result<Veth, remora_netns::Error> {
        let spaces = [Namespace::new("near")?, Namespace::new("far")?];
        let [near, far] = &spaces;
        // New interfaces do not look for other machines that have their addresses, the link-local one among
        // them.
        near.check_addresses("default", false)?;
        far.check_addresses("default", false)?;
        near.add_veth(INTERFACES[0], far, INTERFACES[1], "")?;
        for (which, space) in spaces.iter().enumerate() {
            let interface = INTERFACES[which];
            space.ip(&format!("address add {}/24 dev {interface}", V4[which]))?;
            space.ip(&format!("address add {}/64 dev {interface} nodad", V6[which]))?;
            space.ip(&format!("link set {interface} up"))?;
        }
        near.wait_until_up(INTERFACES[0])?;
        far.wait_until_up(INTERFACES[1])?;
        Ok(Veth { spaces })
    }

    /// Runs `ip` in namespace `which`; what it prints.
    pub fn ip(&self, which: usize, arguments: &str) -> String {
        self.spaces[which].ip(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// From now on the interface in namespace `which` looks for other machines that have its addresses.
    pub fn checks_addresses(&self, which: usize) {
        self.spaces[which].check_addresses(INTERFACES[which], true).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The interface's name in namespace `which`.
    pub fn interface(&self, which: usize) -> &str {
        INTERFACES[which]
    }

    /// This binary, as `role` in namespace `which`: the test `acts_its_role` of `module` finds the role in
    /// the variable `variable`.
    pub fn run(&self, which: usize, module: &str, variable: &str, role: &str) -> Command {
        let mut command = self.spaces[which].command(std::env::current_exe().unwrap());
        let (_, inner) = module.split_once("::").unwrap();
        command.args(["--exact", &format!("{inner}::acts_its_role"), "--nocapture"]).env(variable, role);
        command.stdout(Stdio::piped());
        command
    }

    /// Opens a device in namespace `which`. The calling thread stays there; the device can be used from any
    /// thread.
    pub fn open(&self, which: usize, device: &Device) -> Context {
        self.spaces[which].enter().unwrap_or_else(|error| panic!("{error}"));
        device.open().unwrap_or_else(|error| panic!("{error}"))
    }
}
