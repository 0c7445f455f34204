//! Remora's host and a guest's tap on one bridge, in namespaces of their own.

use remora_netns::{Error, Namespace};

/// The addresses of Remora and of the guest, IPv4 and IPv6.
pub(crate) const OWN: [&str; 2] = ["10.77.0.1", "fd77::1"];
pub(crate) const GUEST: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// The interface of Remora's host, and the guest's tap.
pub(crate) const INTERFACE: &str = "eth0";
pub(crate) const TAP: &str = "guest0";

/// Two namespaces: the one of the bridge, where QEMU runs, and the one of Remora's host.
pub(crate) struct Network {
    pub wire: Namespace,
    pub host: Namespace,
}

impl Network {
    pub(crate) fn new() -> Result<Network, Error> {
        let [wire, host] = [Namespace::new("wire")?, Namespace::new("host")?];
        wire.check_addresses("default", false)?;
        host.check_addresses("default", false)?;
        wire.add_bridge("br0")?;
        wire.plug("br0", "host0", &host, INTERFACE)?;
        host.ip(&format!("address add {}/24 dev {INTERFACE}", OWN[0]))?;
        host.ip(&format!("address add {}/64 dev {INTERFACE} nodad", OWN[1]))?;
        host.ip(&format!("link set {INTERFACE} up"))?;
        wire.ip(&format!("tuntap add {TAP} mode tap"))?;
        wire.ip(&format!("link set {TAP} master br0 up"))?;
        Ok(Network { wire, host })
    }
}
