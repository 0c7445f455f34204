//! Two network namespaces with veth pairs between them: one for the NICs over AF_XDP, one for their raw floor, and one for
//! whatever goes through the kernel's own network, which a program on an interface would slow down. Root may make them, and
//! they go away with their value.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Args, PortName};

/// One end of the pairs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bench's.
    Near,
    /// Its peer's.
    Far,
}

impl Side {
    fn number(self) -> u8 {
        match self {
            Side::Near => 1,
            Side::Far => 2,
        }
    }

    /// Its address on the pair of the NICs over AF_XDP.
    pub fn nic(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 7, self.number()).into()
    }

    /// Its address on the pair of the floor.
    pub fn raw(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 8, self.number()).into()
    }

    /// Its address on the pair of the kernel.
    pub fn kernel(self) -> IpAddr {
        Ipv4Addr::new(10, 214, 9, self.number()).into()
    }
}

/// The interface of the NICs over AF_XDP, that of the floor and that of the kernel; the same names on both sides.
pub const NIC: &str = "nic0";
/// See [`NIC`].
pub const RAW: &str = "raw0";
/// See [`NIC`].
pub const KERNEL: &str = "kernel0";

/// The namespaces.
pub struct Veth {
    names: [String; 2],
    /// Others beside the two sides.
    more: Vec<String>,
}

impl Veth {
    /// For a benchmark that runs over AF_XDP as well. Where none can be made, nothing is measured, unless it was asked for.
    pub fn wanted(args: &Args) -> Result<Option<Veth>> {
        if !args.wants(PortName::Xdp) {
            return Ok(None);
        }
        match Veth::create() {
            Ok(veth) => Ok(Some(veth)),
            Err(error) if args.port == Some(PortName::Xdp) => Err(error),
            Err(error) => {
                tracing::warn!("port xdp is left out: {error:#}");
                Ok(None)
            }
        }
    }

    /// Makes them.
    pub fn create() -> Result<Veth> {
        let names = ["near", "far"].map(|side| format!("remora-bench-{}-{side}", std::process::id()));
        let made = Veth { names, more: Vec::new() };
        let [near, far] = &made.names;
        for name in [near, far] {
            ip(&format!("netns add {name}"))?;
        }
        for interface in [NIC, RAW, KERNEL] {
            ip(&format!("link add {interface} netns {near} type veth peer name {interface} netns {far}"))?;
        }
        for (name, side) in [(near, Side::Near), (far, Side::Far)] {
            for (interface, address) in [(NIC, side.nic()), (RAW, side.raw()), (KERNEL, side.kernel())] {
                ip(&format!("-n {name} address add {address}/24 dev {interface}"))?;
                ip(&format!("-n {name} link set {interface} up"))?;
            }
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(made)
    }

    /// Adds a link between the two sides for a server's NIC over AF_XDP and its client's, with the same name on both.
    pub fn add_link(&self, link: usize) -> Result<()> {
        let [near, far] = &self.names;
        let name = Veth::link_name(link);
        ip(&format!("link add {name} netns {near} type veth peer name {name} netns {far}"))?;
        for (space, address) in [near, far].into_iter().zip(Veth::link_addresses(link)) {
            ip(&format!("-n {space} address add {address}/24 dev {name}"))?;
            ip(&format!("-n {space} link set {name} up"))?;
        }
        Ok(())
    }

    /// Adds a namespace for each replica, and a bridge for each of so many stores by which one NIC of ours reaches one NIC of every
    /// replica. The namespaces, by replica.
    pub fn add_bridges(&mut self, stores: usize, replicas: usize) -> Result<Vec<String>> {
        let name = |what: &str| format!("remora-bench-{}-{what}", std::process::id());
        let spaces: Vec<String> = (0..replicas).map(|replica| name(&format!("replica{replica}"))).collect();
        let hub = name("bridges");
        for space in spaces.iter().chain([&hub]) {
            ip(&format!("netns add {space}"))?;
            self.more.push(space.clone());
        }
        let near = &self.names[0];
        for store in 0..stores {
            let [bridge, interface] = [format!("bridge{store}"), Veth::store_name(store)];
            ip(&format!("-n {hub} link add {bridge} type bridge"))?;
            ip(&format!("-n {hub} link set {bridge} up"))?;
            for (host, space) in [near].into_iter().chain(&spaces).enumerate() {
                let plug = format!("plug{store}x{host}");
                ip(&format!("link add {interface} netns {space} type veth peer name {plug} netns {hub}"))?;
                ip(&format!("-n {hub} link set {plug} master {bridge} up"))?;
                let address = Veth::store_address(store, host);
                ip(&format!("-n {space} address add {address}/24 dev {interface}"))?;
                ip(&format!("-n {space} link set {interface} up"))?;
            }
        }
        Ok(spaces)
    }

    /// The name of a store's interfaces.
    pub fn store_name(store: usize) -> String {
        format!("store{store}")
    }

    /// An address in a store's network: 0 is ours, then come the replicas.
    pub fn store_address(store: usize, host: usize) -> IpAddr {
        Ipv4Addr::new(10, 214, 32 + store as u8, 1 + host as u8).into()
    }

    /// The name of a link's interfaces.
    pub fn link_name(link: usize) -> String {
        format!("link{link}")
    }

    /// A link's addresses, ours and the other.
    pub fn link_addresses(link: usize) -> [IpAddr; 2] {
        [Side::Near, Side::Far].map(|side| Ipv4Addr::new(10, 214, 16 + link as u8, side.number()).into())
    }

    /// Moves this thread, and the threads and processes that it will start, into the bench's side for good.
    pub fn enter(&self) -> Result<()> {
        self.enter_side(Side::Near)
    }

    /// The same, into one of both.
    pub fn enter_side(&self, side: Side) -> Result<()> {
        let [near, far] = &self.names;
        let path = format!("/run/netns/{}", if side == Side::Near { near } else { far });
        let space = File::open(&path).with_context(|| format!("opening {path}"))?;
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
            .context("moving into the benchmark's network namespace")
    }

    /// What a program of the bench's side is started with.
    pub fn near(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[0]]
    }

    /// What a program of the peer's side is started with.
    pub fn far(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[1]]
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for name in self.names.iter().chain(&self.more) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output =
        output.context("port xdp is measured between network namespaces, which needs iproute2 (`ip`)")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!(
            "port xdp is measured between network namespaces, which needs root (`ip {arguments}`: {})",
            words.trim()
        );
    }
    Ok(())
}
