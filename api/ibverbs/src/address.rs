//! The port and the address of this process: the one place that chooses them.
//!
//! Each process has an address of its own for now, and is an ordinary RoCE v2 endpoint there.
//! `REMORA_ADDRESS` names it; without it the first loopback address that is free is taken.

use remora_verbs::raw::ChannelAdapter;
use remora_verbs::{Device, MemoryConfig, OpenError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::attributes;

/// RoCE v2's UDP port.
pub const ROCE_PORT: u16 = 4791;
/// Random loopback addresses that are tried where nothing is said.
const TRIES: u32 = 16;

/// Opens the NIC of this process. A forked child of a process that has one cannot have its parent's address.
pub fn open(is_child: bool) -> Result<Arc<ChannelAdapter>, OpenError> {
    match std::env::var("REMORA_ADDRESS") {
        Ok(text) if !is_child => {
            let address = text.parse::<IpAddr>().map_err(|_| {
                OpenError::Port(format!(
                    "REMORA_ADDRESS={text}: not an address; choose one such as 127.0.0.2"
                ))
            })?;
            at(address)
        }
        _ => anywhere(),
    }
}

fn at(address: IpAddr) -> Result<Arc<ChannelAdapter>, OpenError> {
    let local = SocketAddr::new(address, ROCE_PORT);
    let memory = MemoryConfig { on_nic_bytes: attributes::DM_BYTES, ..MemoryConfig::default() };
    let device = Device::udp(local)?.nic_limits(attributes::limits()).memory_limits(memory);
    ChannelAdapter::open(&device)
}

fn anywhere() -> Result<Arc<ChannelAdapter>, OpenError> {
    let mut opened = at(Ipv4Addr::LOCALHOST.into());
    for _ in 0..TRIES {
        if !matches!(opened, Err(OpenError::Port(_))) {
            break;
        }
        let mut bytes = [0u8; 3];
        // SAFETY: the buffer has as many bytes.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if filled != bytes.len() as isize {
            break;
        }
        let [b, c, d] = bytes;
        opened = at(Ipv4Addr::new(127, b, c, d.clamp(2, 254)).into());
    }
    opened
}
