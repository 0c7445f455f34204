//! A host: its NIC, its memory, and what it knows of the far ends of its queue pairs.

use std::net::Ipv4Addr;

use remora_memory::{Biased, Key, Pd};
use remora_nic::{Nic, Poller};
use remora_wire::frame::{Address, Endpoint};

use crate::engine::Picos;

/// Queue pairs of a host at once, unless its NIC is configured for more.
pub const MAX_QPS: u32 = 1 << 12;
/// Address of the one region that all flows read and write.
pub const ADDRESS: u64 = 0x10_0000_0000;

/// One host.
pub struct Host {
    pub engine: Biased<Nic>,
    pub pd: Pd,
    /// Of the region of zeros.
    pub key: Key,
    pub cq: u32,
    pub poller: Poller,
    /// The earliest wish to run that stands.
    pub wake_at: Picos,
}

/// The host of an address; `None`: it is no host's.
pub fn number(address: Address) -> Option<u32> {
    let [.., 10, a, b, c] = address.0 else { return None };
    u32::from_be_bytes([0, a, b, c]).checked_sub(1)
}

/// The address of a host.
pub fn endpoint(host: u32) -> Endpoint {
    let [_, a, b, c] = (host + 1).to_be_bytes();
    Endpoint { address: Ipv4Addr::new(10, a, b, c).into(), udp_port: remora_wire::ROCE_PORT }
}
