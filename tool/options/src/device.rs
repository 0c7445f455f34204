//! Opening the NIC of a command: which port, which address.

use std::fs::{OpenOptions, read_to_string};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use remora_verbs::{Context, Device};
use serde::{Deserialize, Serialize};

/// Which port a NIC has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum PortName {
    /// Shared memory between processes of this host.
    Shm,
    /// UDP: anywhere.
    Udp,
    /// A network interface by AF_XDP.
    Xdp,
}

impl PortName {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PortName::Shm => "shm",
            PortName::Udp => "udp",
            PortName::Xdp => "xdp",
        }
    }

    /// A device of this kind, with this address where it has one, on this interface where it is bound to one.
    pub fn device_on(self, address: IpAddr, interface: &str) -> Result<Device> {
        captured(match self {
            PortName::Shm => Device::shm(),
            PortName::Udp => Device::udp((address, 0))?,
            PortName::Xdp => Device::xdp(interface, Some(address)),
        })
    }
}

/// The loopback address of this host.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An IP address of this machine, as people write it: a link-local one with its interface, `fe80::1%eth0`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address; IPv4 in its own form.
    pub ip: IpAddr,
    /// The number of the interface, or 0.
    interface: u32,
}

impl OwnAddress {
    /// Of this machine's loopback interface.
    pub fn loopback() -> OwnAddress {
        remora_port::address::loopback().unwrap_or(LOOPBACK).into()
    }

    /// Returns the address with a port.
    pub fn at(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.interface).into(),
        }
    }
}

impl From<IpAddr> for OwnAddress {
    fn from(ip: IpAddr) -> OwnAddress {
        OwnAddress { ip: ip.to_canonical(), interface: 0 }
    }
}

impl FromStr for OwnAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<OwnAddress, String> {
        let Some((ip, zone)) = text.split_once('%') else {
            let ip = text.parse::<IpAddr>().map_err(|_| "not an IP address".to_owned())?;
            return Ok(ip.into());
        };
        let interface = || format!("there is no interface {zone} here: choose one that `ip link` lists");
        match (text, 0).to_socket_addrs().ok().and_then(|mut found| found.next()) {
            Some(SocketAddr::V6(v6)) => Ok(OwnAddress { ip: (*v6.ip()).into(), interface: v6.scope_id() }),
            _ if ip.parse::<std::net::Ipv6Addr>().is_ok() => Err(interface()),
            _ => Err("not an IPv6 address before the interface".to_owned()),
        }
    }
}

/// Environment variable by which `remora capture` makes every NIC record its packets. The value is a file; if
/// it exists, the next free numbered name is used.
pub const CAPTURE: &str = "REMORA_CAPTURE";

/// The device, recorded if the environment asks for that.
fn captured(device: Device) -> Result<Device> {
    Ok(match std::env::var_os(CAPTURE) {
        Some(path) => device.capture(claim(Path::new(&path))?),
        None => device,
    })
}

/// The variable of the bytes that a capture has at most.
pub const CAPTURE_LIMIT: &str = "REMORA_CAPTURE_LIMIT";

/// The limit of captures that the environment has.
fn limit() -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(CAPTURE_LIMIT).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let bytes = remora_host::parse_bytes(&text);
    Ok(Some(bytes.map_err(|error| anyhow::anyhow!("{CAPTURE_LIMIT}={text}: {error}"))?))
}

/// Files of one `remora capture` at most.
const CAPTURES: u32 = 1000;

/// Makes an empty file: of this name, or with a number, if other NICs record too.
fn claim(path: &Path) -> Result<PathBuf> {
    // A link leads to a pipe or device. One NIC takes it: packets of two would be no capture.
    let taken = taken(path);
    if std::fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
        && std::fs::rename(path, &taken).is_ok()
    {
        return Ok(taken);
    }
    let first = if std::fs::symlink_metadata(&taken).is_ok() { 2 } else { 1 };
    for number in first..=CAPTURES {
        let free = numbered(path, number);
        match OpenOptions::new().write(true).create_new(true).open(&free) {
            Ok(_) => return Ok(free),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("creating the capture {}", free.display()));
            }
        }
    }
    anyhow::bail!("{CAPTURES} captures beside {} are enough: remove them", path.display())
}

/// The name of a NIC's file: the first has this one.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    match (number, path.extension()) {
        (1, _) => path.to_owned(),
        (_, Some(extension)) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
        (_, None) => path.with_extension(number.to_string()),
    }
}

/// Returns the name to which a NIC renames the link to a pipe or device, so that no other NIC takes it.
pub fn taken(path: &Path) -> PathBuf {
    path.with_extension("taken")
}

/// The port of a command.
#[derive(Args, Clone, Debug)]
pub struct PortArgs {
    /// Port of the NIC: shm reaches processes of this host, udp anything, xdp (for root) the network of an
    /// interface.
    #[arg(long, default_value = "shm")]
    pub port: PortName,
    /// Own IP address of a udp port [default: the loopback interface's] or an xdp port [default: its
    /// interface's first]; peers must reach it. A link-local one is said with its interface: fe80::1%eth0.
    #[arg(long)]
    pub address: Option<OwnAddress>,
    /// Network interface of an xdp port.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Record everything that passes the port in this pcapng file.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Bytes of that file at most, with k, m or g for multiples of 1024; frames beyond are counted [default:
    /// that of REMORA_CAPTURE_LIMIT, or 1g].
    #[arg(long, value_name = "SIZE", requires = "capture", value_parser = remora_host::parse_bytes)]
    pub capture_limit: Option<u64>,
    /// Lose, double, delay, reorder or break frames by the rules of this TOML file.
    #[arg(long, value_name = "RULES")]
    pub fault: Option<PathBuf>,
}

/// A NIC of one's own, or a daemon's.
#[derive(Args, Clone, Debug)]
pub struct LentArgs {
    #[command(flatten)]
    /// The port of a NIC that is not a daemon's.
    pub port: PortArgs,
    /// Use the NIC of the daemon that listens at this socket (`remora nicd`), whose port it is then.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
}

impl LentArgs {
    /// Returns the daemon's default socket path, in a folder that only this user may write.
    pub fn default_socket() -> PathBuf {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let own = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
        folder.unwrap_or_else(own).join("remora-nicd.sock")
    }

    /// Opens the NIC or, with `--nicd`, attaches to the daemon's.
    pub fn open(&self) -> Result<Context> {
        match &self.nicd {
            None => self.port.open(),
            Some(path) => Device::nicd(path).open().context("attaching to a NIC"),
        }
    }
}

impl PortArgs {
    /// Returns the options of a port on the loopback address without any shaping or recording.
    pub fn plain(port: PortName) -> PortArgs {
        PortArgs { port, address: None, interface: None, capture: None, capture_limit: None, fault: None }
    }

    fn bare(&self) -> Result<Device> {
        anyhow::ensure!(
            self.port != PortName::Shm || self.address.is_none(),
            "--address is for ports udp and xdp: add --port udp, or leave it out"
        );
        Ok(match (self.port, &self.interface) {
            (PortName::Shm, None) => Device::shm(),
            (PortName::Udp, None) => Device::udp(self.address.unwrap_or_else(OwnAddress::loopback).at(0))?,
            (PortName::Xdp, Some(interface)) => Device::xdp(interface, self.address.map(|own| own.ip)),
            (PortName::Xdp, None) => {
                anyhow::bail!("port xdp needs --interface with an Ethernet interface that `ip link` lists")
            }
            (_, Some(_)) => anyhow::bail!("--interface is for port xdp: add --port xdp, or leave it out"),
        })
    }

    /// Returns the device with the options applied.
    pub fn device(&self) -> Result<Device> {
        let mut device = self.bare()?;
        device = match &self.capture {
            Some(file) => device.capture(file),
            None => captured(device)?,
        };
        if let Some(bytes) = self.capture_limit.map_or_else(limit, |bytes| Ok(Some(bytes)))? {
            device = device.capture_limit(bytes);
        }
        if let Some(path) = &self.fault {
            let text = read_to_string(path).with_context(|| format!("opening {}", path.display()))?;
            let rules = remora_host::Rules::parse(&text).map_err(|error| {
                let words: Vec<String> =
                    error.to_string().lines().map(|line| line.trim().to_owned()).collect();
                anyhow::anyhow!("{}: {}", path.display(), words.join(" "))
            })?;
            device = device.fault(rules);
        }
        Ok(device)
    }

    /// Opens the NIC.
    pub fn open(&self) -> Result<Context> {
        self.device()?.open().with_context(|| format!("opening a NIC with port {}", self.port.name()))
    }
}
