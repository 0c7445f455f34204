//! Further addresses of a port: one UDP port for each. A frame is sent from the address at which its peer
//! was created.
//!
//! Each poll of a socket is a system call. Therefore the sockets of addresses with traffic are polled in
//! every receive, and the others less often.

use crate::udp::{GroupError, PeerError, UdpPort};
use crate::{Counters, Port};
use remora_wire::frame::{Egress, Endpoint, Ingress, Peer};
use std::os::fd::RawFd;

/// Maximum number of further addresses.
pub(super) const MAX_FURTHER: usize = 63;
/// Number of low bits of a peer's number that identify the peer at one address.
const BITS: u32 = 24;
/// Interval in nanoseconds at which an address without traffic is polled.
const QUIET_EVERY: u64 = 20_000;
/// Time in nanoseconds after the last frame during which an address counts as having traffic.
const BUSY: u64 = 200_000;

/// Splits the number of a peer into the number of its local address (0 for the first) and the peer's number
/// at that address.
#[inline(always)]
pub(super) fn split(peer: Peer) -> (usize, Peer) {
    ((peer.0 >> BITS) as usize, Peer(peer.0 & ((1 << BITS) - 1)))
}

/// Returns the number by which callers know a peer of the address with this number.
#[inline(always)]
pub(super) fn join(address: usize, peer: Peer) -> Peer {
    debug_assert!(peer.0 >> BITS == 0, "a UDP port has fewer peers");
    Peer(peer.0 | (address as u32) << BITS)
}

/// A further address.
#[derive(Debug)]
struct FurtherAddress {
    port: UdpPort,
    /// The peer that stands for this address itself.
    own: Option<Peer>,
    /// True if a frame was sent from this address since the last receive.
    used: bool,
    /// Time until which the address counts as having traffic.
    busy_until: u64,
}

/// All further addresses; the first one has number 1.
#[derive(Debug, Default)]
pub(super) struct FurtherAddresses {
    addresses: Vec<FurtherAddress>,
    /// Time of the next poll of addresses without traffic.
    look_at: u64,
    /// True if the last receive did not poll all addresses.
    skipped: bool,
    /// Index of the address that the next receive polls first.
    turn: usize,
}

impl FurtherAddresses {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns whether the maximum number of addresses is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.addresses.len() >= MAX_FURTHER
    }

    /// Adds a port and returns its number.
    pub(crate) fn add(&mut self, port: UdpPort) -> usize {
        self.addresses.push(FurtherAddress { port, own: None, used: false, busy_until: 0 });
        self.look_at = 0;
        self.addresses.len()
    }

    fn get(&self, number: usize) -> Option<&FurtherAddress> {
        self.addresses.get(number.checked_sub(1)?)
    }

    #[inline]
    fn get_mut(&mut self, number: usize) -> Option<&mut FurtherAddress> {
        self.addresses.get_mut(number.checked_sub(1)?)
    }

    /// Returns the port of the address with this number.
    pub(crate) fn port(&self, number: usize) -> Option<&UdpPort> {
        self.get(number).map(|address| &address.port)
    }

    /// Returns the port of the address with this number in order to send, and marks the address as used.
    #[inline]
    pub(crate) fn sending(&mut self, number: usize) -> Option<&mut UdpPort> {
        let address = self.get_mut(number)?;
        address.used = true;
        Some(&mut address.port)
    }

    /// Iterates over all ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.addresses.iter().map(|address| &address.port)
    }

    /// Iterates over all ports, mutably.
    pub(crate) fn ports_mut(&mut self) -> impl Iterator<Item = &mut UdpPort> {
        self.addresses.iter_mut().map(|address| &mut address.port)
    }

    /// Returns the peer with this endpoint, as reached from the address with this number; creates it if it
    /// is new. `None` if there is no such address.
    pub(crate) fn peer(&mut self, number: usize, endpoint: Endpoint) -> Option<Result<Peer, PeerError>> {
        let address = self.get_mut(number)?;
        let peer = address.port.peer(endpoint);
        if let Ok(peer) = peer
            && endpoint == address.port.endpoint()
        {
            address.own = Some(peer);
        }
        Some(peer.map(|peer| join(number, peer)))
    }

    /// Removes a peer of the address with this number, like [`UdpPort::remove`].
    pub(crate) fn remove(&mut self, number: usize, peer: Peer) {
        let Some(address) = self.get_mut(number) else { return };
        address.port.remove(peer);
        if address.own == Some(peer) {
            address.own = None;
        }
    }

    /// Returns the peer of a multicast group, as reached from the address with this number. `None` if there
    /// is no such address.
    pub(crate) fn group(&mut self, number: usize, group: Endpoint) -> Option<Result<Peer, GroupError>> {
        let grouped = self.get_mut(number)?.port.group(group);
        Some(grouped.map(|peer| join(number, peer)))
    }

    /// Returns whether this peer stands for the address with this number itself.
    pub(crate) fn is_own(&self, number: usize, peer: Peer) -> bool {
        self.get(number).is_some_and(|address| address.own == Some(peer))
    }

    /// Receives on the addresses with traffic, and on all addresses if that is due.
    pub(crate) fn receive(&mut self, now: u64, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let due = now >= self.look_at;
        let count = self.addresses.len();
        if due {
            self.look_at = now + QUIET_EVERY;
        }
        (self.skipped, self.turn) = (!due, (self.turn + 1) % count.max(1));
        let mut taken = 0;
        for step in 0..count {
            let FurtherAddress { port, used, busy_until, .. } =
                &mut self.addresses[(self.turn + step) % count];
            if std::mem::take(used) {
                *busy_until = now + BUSY;
            }
            if !due && now >= *busy_until {
                continue;
            }
            if taken >= budget {
                self.skipped = true;
                break;
            }
            let here = port.endpoint();
            let got = port.receive(budget - taken, &mut |frame| {
                take(Ingress { destination: frame.destination.or(Some(here)), ..frame });
            });
            if got > 0 {
                *busy_until = now + BUSY;
            }
            taken += got;
        }
        taken
    }

    /// Returns whether the last receive left a socket out, so that it does not prove silence.
    #[inline]
    pub(crate) fn has_skipped(&self) -> bool {
        !self.addresses.is_empty() && self.skipped
    }

    #[inline]
    pub(crate) fn flush(&mut self) {
        for address in &mut self.addresses {
            address.port.flush();
        }
    }

    /// Calls [`Port::show_ip_fields`] on all ports.
    pub(crate) fn show_ip_fields(&mut self) {
        self.ports_mut().for_each(Port::show_ip_fields);
    }

    /// Calls [`Port::arm`] on all ports.
    pub(crate) fn arm(&mut self) -> bool {
        // `fold` does not stop early: every port must be armed, whatever the others return.
        self.addresses.iter_mut().map(|address| address.port.arm()).fold(false, |any, work| any | work)
    }

    /// Makes the next receive poll all sockets, because any of them may have woken the sleeper.
    pub(crate) fn disarm(&mut self) {
        self.look_at = 0;
    }

    pub(crate) fn poll_fds(&self, out: &mut Vec<RawFd>) {
        self.ports().for_each(|port| port.poll_fds(out));
    }

    pub(crate) fn add_counters(&self, sum: &mut Counters) {
        self.ports().for_each(|port| sum.add(&port.counters()));
    }
}
