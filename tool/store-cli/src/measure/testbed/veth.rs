//! Two network namespaces with veth pairs between them: one pair for the NICs over AF_XDP, one for their raw
//! lower bound, and one for the kernel's own network, which a program on an interface would slow down. Only
//! root can create them, and they are removed when the value is dropped.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result};
use remora_netns::Namespace;

/// A side of the veth pairs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bench's side.
    Near,
    /// The peer's side.
    Far,
}

impl Side {
    fn number(self) -> u8 {
        match self {
            Side::Near => 1,
            Side::Far => 2,
        }
    }

    /// Returns the address on the veth pair of the NICs over AF_XDP.
    pub fn nic(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 7, self.number()).into()
    }

    /// Returns the address on the veth pair of the raw AF_XDP floor.
    pub fn raw(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 8, self.number()).into()
    }

    /// Returns the address on the veth pair of the kernel's sockets.
    pub fn kernel(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 9, self.number()).into()
    }
}

/// Name of the interface of the NICs over AF_XDP, on both sides.
pub const NIC: &str = "nic0";
/// Name of the interface of the raw AF_XDP floor, on both sides.
pub const RAW: &str = "raw0";
/// Name of the interface of the kernel's sockets, on both sides.
pub const KERNEL: &str = "kernel0";

/// The network namespaces of a test bed, connected by veth pairs.
pub struct Veth {
    near: Namespace,
    far: Namespace,
    /// Namespaces of the replicas.
    replicas: Vec<Namespace>,
    /// The namespace of the bridges between the replicas and the bench.
    more: Vec<Namespace>,
}

impl Veth {
    /// Creates the namespaces and their veth pairs.
    pub fn create() -> Result<Veth> {
        Veth::make().context("port xdp is measured between network namespaces, which needs root")
    }

    fn make() -> Result<Veth> {
        let made = Veth {
            near: Namespace::new("near")?,
            far: Namespace::new("far")?,
            replicas: Vec::new(),
            more: Vec::new(),
        };
        for interface in [NIC, RAW, KERNEL] {
            made.near.add_veth(interface, &made.far, interface, "")?;
        }
        for (space, side) in [(&made.near, Side::Near), (&made.far, Side::Far)] {
            for (interface, address) in [(NIC, side.nic()), (RAW, side.raw()), (KERNEL, side.kernel())] {
                set_up(space, interface, address)?;
            }
        }
        // UCX ignores interfaces that the kernel does not report as running yet, which takes up to a second.
        for space in [&made.near, &made.far] {
            [NIC, RAW, KERNEL].iter().try_for_each(|interface| space.wait_until_up(interface))?;
        }
        Ok(made)
    }

    /// Adds a link between the two sides for a server's NIC over AF_XDP and its client's, with the same name
    /// on both.
    pub fn add_link(&self, link: usize) -> Result<()> {
        let name = Veth::link_name(link);
        self.near.add_veth(&name, &self.far, &name, "")?;
        for (space, address) in [&self.near, &self.far].into_iter().zip(Veth::link_addresses(link)) {
            set_up(space, &name, address)?;
        }
        Ok(())
    }

    /// Adds a namespace for each replica, and for each store a bridge that connects one NIC of the bench with
    /// one NIC of every replica.
    pub fn add_bridges(&mut self, stores: usize, replicas: usize) -> Result<()> {
        let new = |replica| Namespace::new(&format!("replica{replica}"));
        let spaces = (0..replicas).map(new).collect::<Result<Vec<Namespace>, _>>()?;
        let hub = Namespace::new("bridges")?;
        for store in 0..stores {
            let [bridge, interface] = [format!("bridge{store}"), Veth::store_name(store)];
            hub.add_bridge(&bridge)?;
            for (host, space) in [&self.near].into_iter().chain(&spaces).enumerate() {
                hub.plug(&bridge, &format!("plug{store}x{host}"), space, &interface)?;
                set_up(space, &interface, Veth::store_address(store, host))?;
            }
        }
        self.replicas = spaces;
        self.more.push(hub);
        Ok(())
    }

    /// Returns the name of a store's interfaces.
    pub fn store_name(store: usize) -> String {
        format!("store{store}")
    }

    /// Returns an address in a store's network: 0 is the bench's, and the replicas follow.
    pub fn store_address(store: usize, host: usize) -> IpAddr {
        Ipv4Addr::new(10, 214, 32 + store as u8, 1 + host as u8).into()
    }

    /// Returns the name of a link's interfaces.
    pub fn link_name(link: usize) -> String {
        format!("link{link}")
    }

    /// Returns the addresses of a link: the bench's and the peer's.
    pub fn link_addresses(link: usize) -> [IpAddr; 2] {
        [Side::Near, Side::Far].map(|side| Ipv4Addr::new(10, 214, 16 + link as u8, side.number()).into())
    }

    /// Moves this thread, and the threads and processes that it starts later, to the bench's side for good.
    pub fn enter(&self) -> Result<()> {
        self.enter_side(Side::Near)
    }

    /// Moves this thread into the namespace of a side.
    pub fn enter_side(&self, side: Side) -> Result<()> {
        Ok(self.side(side).enter()?)
    }

    /// Returns the names of the replicas' namespaces.
    pub fn replicas(&self) -> impl Iterator<Item = &str> {
        self.replicas.iter().map(Namespace::name)
    }

    /// Returns a command that starts a program at a side.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        self.side(side).command(program)
    }

    fn side(&self, side: Side) -> &Namespace {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

fn set_up(space: &Namespace, interface: &str, address: IpAddr) -> Result<()> {
    space.ip(&format!("address add {address}/24 dev {interface}"))?;
    space.ip(&format!("link set {interface} up"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: every round of UCX in `remora bench dropin` ended by SIGPIPE, because the kernel
    /// reports an interface of a new veth pair as running up to a second later.
    #[test]
    fn all_interfaces_are_running_when_they_are_made() {
        remora_netns::require!(Namespace::new("near"));
        let veth = Veth::create().unwrap();
        for space in [&veth.near, &veth.far] {
            for interface in [NIC, RAW, KERNEL] {
                let shown = space.ip(&format!("-brief link show {interface}")).unwrap();
                assert_eq!(shown.split_whitespace().nth(1), Some("UP"), "{shown}");
            }
        }
    }
}
