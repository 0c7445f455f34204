//! The packets that arrive out of the order of their link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::packet::PacketId;
use super::port_id::PortId;
use crate::engine::Picos;

/// Time, port, sequence number and packet of an arrival. The sequence number orders arrivals at the same time
/// and port.
pub(super) type Arrival = (Picos, PortId, u64, PacketId);

/// The packets that arrive out of order.
#[derive(Default)]
pub(crate) struct OutOfOrder {
    pub(super) waiting: BinaryHeap<Reverse<Arrival>>,
    pub(super) count: u64,
}
