//! Opening the NIC of a command: which port, which address.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use verbs::{Context, Device};

/// Which port a NIC has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum PortName {
    /// Shared memory between processes of this host.
    Shm,
    /// UDP: anywhere.
    Udp,
}

impl PortName {
    /// Both, in the order in which tables show them.
    pub const ALL: [PortName; 2] = [PortName::Shm, PortName::Udp];

    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            PortName::Shm => "shm",
            PortName::Udp => "udp",
        }
    }

    /// A device of this kind, on this host's loopback where it has an address.
    pub fn device(self) -> Result<Device> {
        self.device_at(IpAddr::from([127, 0, 0, 1]))
    }

    fn device_at(self, address: IpAddr) -> Result<Device> {
        Ok(match self {
            PortName::Shm => Device::shm(),
            PortName::Udp => Device::udp((address, 0))?,
        })
    }
}

/// The port of a command.
#[derive(Args, Clone, Debug)]
pub struct PortArgs {
    /// Port of the NIC: shm reaches processes of this host, udp anything.
    #[arg(long, default_value = "shm")]
    pub port: PortName,
    /// Own IP address of a udp port [default: 127.0.0.1]; peers must reach it.
    #[arg(long)]
    pub address: Option<IpAddr>,
}

impl PortArgs {
    /// Opens the NIC.
    pub fn open(&self) -> Result<Context> {
        let device = match self.address {
            Some(address) => self.port.device_at(address)?,
            None => self.port.device()?,
        };
        device.open().with_context(|| format!("opening a NIC with port {}", self.port.name()))
    }
}
