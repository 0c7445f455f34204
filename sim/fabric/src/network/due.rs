//! Events of a network: their kinds, and those that a host must handle.

use super::packet::PacketId;

/// An event that a host, or the caller that runs the network, must handle.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A packet has arrived at a host. The host removes it from the network by
    /// [`Network::take`](super::Network::take).
    Arrived(u32, PacketId),
    /// A port of the host can send.
    Free(u32),
    /// A time that the host requested by [`Network::wake`](super::Network::wake).
    Wake(u32),
    /// An observed event; [`Network::take_observations`](super::Network::take_observations) returns it.
    Observed,
}

/// Kinds of events. Events of one port at the same time happen in the order of these numbers.
pub(super) const ARRIVE: u32 = 0;
pub(super) const REACT: u32 = 1;
pub(super) const EXPIRE: u32 = 2;
pub(super) const FREE: u32 = 3;
pub(super) const REFRESH: u32 = 4;
pub(super) const WAKE: u32 = 5;
pub(super) const WATCH: u32 = 6;
pub(super) const FAIL: u32 = 7;
pub(super) const OUT_OF_ORDER: u32 = 8;
pub(super) const KIND_BITS: u32 = 4;
