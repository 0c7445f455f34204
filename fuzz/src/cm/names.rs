//! The addresses and service IDs of the test.

use std::net::Ipv4Addr;

use remora_wire::Address;
use remora_wire::mad::{PortSpace, ServiceId};

/// Returns the address of the `n`-th node. The manager has the nodes 0 and 1.
pub(super) fn address(n: u8) -> Address {
    Ipv4Addr::new(10, 0, 0, 1 + n % 4).into()
}

/// The service IDs of the test.
pub(super) const PORTS: [ServiceId; 4] = [
    ServiceId::rdma_ip(PortSpace::Tcp, 1),
    ServiceId::rdma_ip(PortSpace::Udp, 1),
    ServiceId::rdma_ip(PortSpace::Ib, 1),
    ServiceId(1),
];
