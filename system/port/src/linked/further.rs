//! Further addresses of a port: a UDP port for each. A frame leaves from the address by which its peer was
//! named.
//!
//! Each look at a socket is a system call. So the sockets of addresses with traffic are looked at in every
//! receive, and the others now and then.

use crate::udp::{GroupError, PeerError, UdpPort};
use crate::{Counters, Port};
use remora_wire::frame::{Egress, Endpoint, Ingress, Peer};
use std::os::fd::RawFd;

/// Further addresses at most.
pub(super) const MAX_FURTHER: usize = 63;
/// Bits of a peer's number that count the peers of one address.
const BITS: u32 = 24;
/// An address without traffic is looked at once in so many nanoseconds.
const QUIET_EVERY: u64 = 20_000;
/// An address has traffic until nothing came or left there for so many nanoseconds.
const BUSY: u64 = 200_000;

/// The number of the address that a peer of a UDP port was named by, 0 for the first, and the peer's number
/// there.
#[inline(always)]
pub(super) fn split(peer: Peer) -> (usize, Peer) {
    ((peer.0 >> BITS) as usize, Peer(peer.0 & ((1 << BITS) - 1)))
}

/// The number by which others know a peer of the address with this number.
#[inline(always)]
pub(super) fn join(address: usize, peer: Peer) -> Peer {
    debug_assert!(peer.0 >> BITS == 0, "a UDP port has fewer peers");
    Peer(peer.0 | (address as u32) << BITS)
}

/// One further address.
#[derive(Debug)]
struct FurtherAddress {
    port: UdpPort,
    /// The peer that stands for this address itself.
    own: Option<Peer>,
    /// A frame left from it since the last receive.
    used: bool,
    /// The end of the time in which it has traffic.
    busy_until: u64,
}

/// All of them, from number 1 on.
#[derive(Debug, Default)]
pub(super) struct FurtherAddresses {
    addresses: Vec<FurtherAddress>,
    /// The time of the next look at those without traffic.
    look_at: u64,
    /// The last receive has not looked at all of them.
    skipped: bool,
    /// Who is looked at first in the next receive.
    turn: usize,
}

impl FurtherAddresses {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Are there as many as there may be?
    pub fn is_full(&self) -> bool {
        self.addresses.len() >= MAX_FURTHER
    }

    /// Takes a port in; its number.
    pub fn add(&mut self, port: UdpPort) -> usize {
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

    /// The port of the address with this number.
    pub fn port(&self, number: usize) -> Option<&UdpPort> {
        self.get(number).map(|address| &address.port)
    }

    /// The same, for a frame that leaves there.
    #[inline]
    pub fn sending(&mut self, number: usize) -> Option<&mut UdpPort> {
        let address = self.get_mut(number)?;
        address.used = true;
        Some(&mut address.port)
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.addresses.iter().map(|address| &address.port)
    }

    /// All ports, to be changed.
    pub fn ports_mut(&mut self) -> impl Iterator<Item = &mut UdpPort> {
        self.addresses.iter_mut().map(|address| &mut address.port)
    }

    /// The peer of this name, as the address with this number reaches it. `None`: there is no such address.
    pub fn peer(&mut self, number: usize, endpoint: Endpoint) -> Option<Result<Peer, PeerError>> {
        let address = self.get_mut(number)?;
        let peer = address.port.peer(endpoint);
        if let Ok(peer) = peer
            && endpoint == address.port.endpoint()
        {
            address.own = Some(peer);
        }
        Some(peer.map(|peer| join(number, peer)))
    }

    /// As [`UdpPort::remove`], for a peer of the address with this number.
    pub fn remove(&mut self, number: usize, peer: Peer) {
        let Some(address) = self.get_mut(number) else { return };
        address.port.remove(peer);
        if address.own == Some(peer) {
            address.own = None;
        }
    }

    /// The same for a multicast group.
    pub fn group(&mut self, number: usize, group: Endpoint) -> Option<Result<Peer, GroupError>> {
        let grouped = self.get_mut(number)?.port.group(group);
        Some(grouped.map(|peer| join(number, peer)))
    }

    /// Is this the peer that stands for the address with this number?
    pub fn is_own(&self, number: usize, peer: Peer) -> bool {
        self.get(number).is_some_and(|address| address.own == Some(peer))
    }

    /// Receives on those with traffic, and on all of them if it is time.
    pub fn receive(&mut self, now: u64, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let (due, count) = (now >= self.look_at, self.addresses.len());
        if due {
            self.look_at = now + QUIET_EVERY;
        }
        (self.skipped, self.turn) = (!due, (self.turn + 1) % count.max(1));
        let mut taken = 0;
        for at in 0..count {
            let FurtherAddress { port, used, busy_until, .. } = &mut self.addresses[(self.turn + at) % count];
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

    /// Has the last receive left a socket out? Then it proves nothing.
    #[inline]
    pub fn has_skipped(&self) -> bool {
        !self.addresses.is_empty() && self.skipped
    }

    #[inline]
    pub fn flush(&mut self) {
        for address in &mut self.addresses {
            address.port.flush();
        }
    }

    /// As [`Port::show_ip_fields`].
    pub fn show_ip_fields(&mut self) {
        self.ports_mut().for_each(Port::show_ip_fields);
    }

    /// As [`Port::arm`].
    pub fn arm(&mut self) -> bool {
        // Each one is armed, whatever the others have.
        self.addresses.iter_mut().map(|address| address.port.arm()).fold(false, |any, work| any | work)
    }

    /// As [`Port::disarm`]: whatever woke the sleeper may lie in any socket.
    pub fn disarm(&mut self) {
        self.look_at = 0;
    }

    pub fn poll_fds(&self, out: &mut Vec<RawFd>) {
        self.ports().for_each(|port| port.poll_fds(out));
    }

    pub fn add_counters(&self, sum: &mut Counters) {
        self.ports().for_each(|port| sum.add(&port.counters()));
    }
}
