//! A host: its NIC with memory and completion queue.

use std::net::Ipv4Addr;

use remora_memory::{Biased, Key, Pd};
use remora_nic::{CompletionPoller, Nic};
use remora_wire::frame::{Address, Endpoint};

use crate::engine::Picos;

/// Largest number of queue pairs of a host at the same time, unless the NIC is configured for more.
pub const MAX_QPS: u32 = 1 << 12;
/// Address of the memory region that all flows read and write.
pub(crate) const ADDRESS: u64 = 0x10_0000_0000;

pub(crate) struct Host {
    pub engine: Biased<Nic>,
    pub pd: Pd,
    /// Key of the region, which consists of zeros.
    pub key: Key,
    pub cq: u32,
    pub poller: CompletionPoller,
    /// Time of the earliest scheduled wake-up.
    pub wake_at: Picos,
}

/// Returns the number of the host with this address, or `None` if the address is not one of [`endpoint`].
pub(crate) fn number(address: Address) -> Option<u32> {
    let [.., 10, a, b, c] = address.0 else { return None };
    u32::from_be_bytes([0, a, b, c]).checked_sub(1)
}

/// Returns the address of a host.
pub(crate) fn endpoint(host: u32) -> Endpoint {
    let [_, a, b, c] = (host + 1).to_be_bytes();
    Endpoint { address: Ipv4Addr::new(10, a, b, c).into(), udp_port: remora_wire::ROCE_PORT }
}
