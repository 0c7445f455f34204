//! Options that choose the NIC of a command, and the code that opens the NIC.

use std::fs::{OpenOptions, read_to_string};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use remora_verbs::{Context, Device};
use serde::{Deserialize, Serialize};

/// The kind of port that a NIC uses.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum PortName {
    /// Shared memory between the processes of this host.
    Shm,
    /// UDP datagrams to any reachable host.
    Udp,
    /// Ethernet frames on a network interface, through AF_XDP.
    Xdp,
}

impl PortName {
    /// Returns the name of the port on the command line: `shm`, `udp` or `xdp`.
    pub fn name(self) -> &'static str {
        match self {
            PortName::Shm => "shm",
            PortName::Udp => "udp",
            PortName::Xdp => "xdp",
        }
    }

    /// Returns a device with this kind of port: UDP ports use `address`, XDP ports `address` and
    /// `interface`, shared-memory ports neither. The device records its packets if [`CAPTURE`] is set.
    pub fn device_on(self, address: IpAddr, interface: &str) -> Result<Device> {
        captured(match self {
            PortName::Shm => Device::shm(),
            PortName::Udp => Device::udp((address, 0))?,
            PortName::Xdp => Device::xdp(interface, Some(address)),
        })
    }
}

/// The IPv4 loopback address.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An IP address of this machine as given on the command line. A link-local address includes its interface:
/// `fe80::1%eth0`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The IP address. An IPv4-mapped IPv6 address is stored as IPv4.
    pub ip: IpAddr,
    /// The interface index of a link-local address, otherwise 0.
    interface: u32,
}

impl OwnAddress {
    /// Returns the address of this machine's loopback interface.
    pub fn loopback() -> OwnAddress {
        remora_port::address::loopback().unwrap_or(LOOPBACK).into()
    }

    /// Returns the socket address with this port number.
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
        match (text, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next()) {
            Some(SocketAddr::V6(v6)) => Ok(OwnAddress { ip: (*v6.ip()).into(), interface: v6.scope_id() }),
            _ if ip.parse::<std::net::Ipv6Addr>().is_ok() => Err(interface()),
            _ => Err("the text before % is not an IPv6 address".to_owned()),
        }
    }
}

/// The environment variable through which `remora capture` makes every NIC record its packets. The value is
/// a file name; if the file exists, the next free numbered name is used.
pub const CAPTURE: &str = "REMORA_CAPTURE";

/// Returns the device, which records its packets if [`CAPTURE`] is set.
fn captured(device: Device) -> Result<Device> {
    Ok(match std::env::var_os(CAPTURE) {
        Some(path) => device.capture(claim(Path::new(&path))?),
        None => device,
    })
}

/// The environment variable with the maximum number of bytes per capture file.
pub const CAPTURE_LIMIT: &str = "REMORA_CAPTURE_LIMIT";

/// The environment variable with the path of the file in which the NIC of a verbs program is recorded.
pub const RECORD: &str = "REMORA_RECORD";

/// The environment variable with the maximum number of bytes of that file.
pub const RECORD_LIMIT: &str = "REMORA_RECORD_LIMIT";

/// Environment variable with the path of the file to which faults of verbs are appended.
pub const FAULT_LOG: &str = "REMORA_FAULT_LOG";

/// Environment variable with the socket of the NIC daemon that lends a program its NIC.
pub const NICD: &str = "REMORA_NICD";

/// Environment variable with the name under which the daemon keeps the program's objects.
pub const KEEP: &str = "REMORA_KEEP";

/// Returns the value of [`CAPTURE_LIMIT`], or `None` if it is unset or empty.
fn limit() -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(CAPTURE_LIMIT).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let bytes = remora_host::parse_bytes(&text);
    Ok(Some(bytes.map_err(|error| anyhow::anyhow!("{CAPTURE_LIMIT}={text}: {error}"))?))
}

/// Maximum number of capture files with the same base name.
const CAPTURES: u32 = 1000;

/// Creates an empty capture file and returns its path: `path` itself or, if other NICs record too, the next
/// free numbered name.
fn claim(path: &Path) -> Result<PathBuf> {
    // A symbolic link leads to a pipe or a device. Only one NIC may write to it: interleaved packets of two
    // NICs would not be a valid capture.
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
                return Err(error).with_context(|| format!("creating the capture file {}", free.display()));
            }
        }
    }
    anyhow::bail!("cannot create a capture beside {}: {CAPTURES} captures exist; remove some", path.display())
}

/// Returns the name of the capture file of the NIC with this number. NIC 1 uses `path` itself.
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

/// Options of a command that opens a NIC with a port.
#[derive(Args, Clone, Debug)]
pub struct PortArgs {
    /// Port of the NIC: shm connects processes of this host, udp any hosts, xdp (as root) the hosts on the
    /// network of an interface.
    #[arg(long, default_value = "shm")]
    pub port: PortName,
    /// IP address of this NIC; its peers must be able to reach it. A link-local address names its interface:
    /// fe80::1%eth0 [default: the loopback address for udp, the interface's first address for xdp].
    #[arg(long)]
    pub address: Option<OwnAddress>,
    /// Network interface of an xdp port, for example eth0.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Record all packets of the NIC in this pcapng file [default: no recording].
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Maximum size of the capture file in bytes, or with suffix k, m or g (multiples of 1024). Later
    /// frames are counted and not recorded [default: the value of REMORA_CAPTURE_LIMIT, or 1g].
    #[arg(long, value_name = "SIZE", requires = "capture", value_parser = remora_host::parse_bytes)]
    pub capture_limit: Option<u64>,
    /// Drop, duplicate, delay, reorder or corrupt frames by the rules in this TOML file [default: none].
    #[arg(long, value_name = "RULES")]
    pub fault: Option<PathBuf>,
}

/// Options of a command that opens a NIC or uses the NIC of a daemon.
#[derive(Args, Clone, Debug)]
pub struct LentArgs {
    #[command(flatten)]
    /// Port of a NIC that this process opens itself.
    pub port: PortArgs,
    /// Use the NIC and the port of the daemon (`remora serve nic`) that listens at this socket [default: open
    /// a NIC in this process].
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
}

impl LentArgs {
    /// Returns the default socket path of the daemon: a file in `$XDG_RUNTIME_DIR`, or in `/run/user/UID`
    /// if the variable is unset.
    pub fn default_socket() -> PathBuf {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let own = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
        folder.unwrap_or_else(own).join("remora-nicd.sock")
    }

    /// Opens a NIC or, with `--nicd`, attaches to the NIC of the daemon.
    pub fn open(&self) -> Result<Context> {
        match &self.nicd {
            None => self.port.open(),
            Some(path) => Device::nicd(path).open().context("attaching to a NIC"),
        }
    }
}

impl PortArgs {
    /// Returns the options of a port with default address and without capture or fault rules.
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

    /// Returns the device, not yet opened, with all options applied.
    pub fn device(&self) -> Result<Device> {
        self.complete(self.bare()?)
    }

    /// Applies the options for recording and faults to a device.
    pub fn complete(&self, mut device: Device) -> Result<Device> {
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

    /// Opens the NIC with all options applied.
    pub fn open(&self) -> Result<Context> {
        self.device()?.open().with_context(|| format!("opening a NIC with port {}", self.port.name()))
    }
}
