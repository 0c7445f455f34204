//! The next hop of a peer's frames, from the kernel's routes and its table of neighbours (ARP, ND):
//! look-ups and notifications.
//!
//! The kernel resolves neighbours itself. A request with `NTF_USE` makes it send ARP or ND requests. It
//! receives the answers, which the XDP program passes, and notifies all listeners. Nothing is written into
//! its tables.

use super::netlink::{Ask, Netlink};
use super::rtnetlink::Message;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use rustix::io::Errno;
use std::net::IpAddr;

/// The multicast group of the kernel's notifications about neighbours (`RTNLGRP_NEIGH`).
const NEIGHBOURS: u32 = 3;

/// A MAC address.
pub(super) type Mac = [u8; 6];

/// The state of a neighbour in the kernel's table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Reachability {
    /// Reachable at this address, confirmed recently.
    Fresh(Mac),
    /// Was reachable at this address, but not confirmed recently.
    Stale(Mac),
    /// The kernel has sent a request and waits for the answer.
    Asking,
    /// The neighbour does not answer, or is not in the table.
    No,
}

/// The next hop of the route to an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NextHop {
    /// To a neighbour on the interface with this index.
    Out {
        /// Index of the interface that the frames are sent on.
        interface: u32,
        /// The gateway, or the destination address itself.
        hop: IpAddr,
    },
    /// The destination is an address of this machine.
    Local,
    /// The destination is the broadcast address of a network.
    Broadcast,
    /// There is no route.
    Nowhere,
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn route_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Returns the next hop of a packet from `source` to `destination`. A link-local address is on the network of
/// `interface`.
///
/// # Errors
/// The errno if the kernel does not answer.
pub(super) fn next_hop(
    netlink: &mut Netlink,
    source: IpAddr,
    destination: IpAddr,
    interface: u32,
) -> Result<NextHop, Errno> {
    let mut question = RouteMessage::default();
    question.header.address_family = family(destination);
    question.header.destination_prefix_length = prefix(destination);
    question.header.source_prefix_length = prefix(destination);
    question.attributes.push(RouteAttribute::Destination(destination.into()));
    question.attributes.push(RouteAttribute::Source(source.into()));
    if matches!(destination, IpAddr::V6(destination) if destination.is_unicast_link_local()) {
        question.attributes.push(RouteAttribute::Oif(interface));
    }
    let mut hop = NextHop::Nowhere;
    let asked = netlink.ask(Message::GetRoute(question), Ask::One, |answer| {
        if let Message::NewRoute(route) = answer {
            hop = of_route(&route, destination);
        }
    });
    match asked {
        Ok(()) => Ok(hop),
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => Ok(NextHop::Nowhere),
        Err(errno) => Err(errno),
    }
}

fn of_route(route: &RouteMessage, destination: IpAddr) -> NextHop {
    match route.header.kind {
        RouteType::Local => return NextHop::Local,
        RouteType::Unicast => {}
        RouteType::Broadcast => return NextHop::Broadcast,
        _ => return NextHop::Nowhere,
    }
    let mut interface = None;
    let mut hop = destination;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(gateway) => hop = route_address(gateway).unwrap_or(hop),
            // An IPv4 route through an IPv6 gateway (RFC 5549).
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => hop = (*gateway).into(),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => hop = (*gateway).into(),
            _ => {}
        }
    }
    interface.map_or(NextHop::Nowhere, |interface| NextHop::Out { interface, hop })
}

fn message(interface: u32, hop: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(hop);
    message.header.ifindex = interface;
    let hop = match hop {
        IpAddr::V4(hop) => NeighbourAddress::Inet(hop),
        IpAddr::V6(hop) => NeighbourAddress::Inet6(hop),
    };
    message.attributes.push(NeighbourAttribute::Destination(hop));
    message
}

/// Looks up a neighbour in the kernel's table.
///
/// # Errors
/// The errno if the kernel does not answer.
pub(super) fn known(netlink: &mut Netlink, interface: u32, hop: IpAddr) -> Result<Reachability, Errno> {
    let question = Message::GetNeighbour(message(interface, hop));
    let mut known = Reachability::No;
    let asked = netlink.ask(question, Ask::One, |answer| {
        if let Message::NewNeighbour(entry) = answer {
            known = of_entry(&entry);
        }
    });
    match asked {
        Ok(()) => Ok(known),
        Err(Errno::NOENT) => Ok(Reachability::No),
        Err(errno) => Err(errno),
    }
}

/// Makes the kernel resolve a neighbour, or check that it is still reachable.
///
/// # Errors
/// The errno if the kernel does not answer, or refuses (`PERM`).
pub(super) fn want(netlink: &mut Netlink, interface: u32, hop: IpAddr) -> Result<(), Errno> {
    let mut wish = message(interface, hop);
    wish.header.flags = NeighbourFlags::Use;
    netlink.ask(Message::NewNeighbour(wish), Ask::Make, |_| ())
}

fn of_entry(entry: &NeighbourMessage) -> Reachability {
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    match (entry.header.state, mac) {
        (NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp, Some(mac)) => {
            Reachability::Fresh(mac)
        }
        // The kernel is checking whether the neighbour is still reachable; the address is valid until it
        // finds otherwise.
        (NeighbourState::Delay | NeighbourState::Probe, Some(mac)) => Reachability::Fresh(mac),
        (NeighbourState::Stale, Some(mac)) => Reachability::Stale(mac),
        (NeighbourState::Incomplete, _) => Reachability::Asking,
        _ => Reachability::No,
    }
}

/// The kernel's notifications about the neighbours of one interface.
#[derive(Debug)]
pub(super) struct Notices {
    netlink: Netlink,
    interface: u32,
}

impl Notices {
    /// Subscribes to the notifications about an interface.
    ///
    /// # Errors
    /// The errno of the system call that failed.
    pub(super) fn of(interface: u32) -> Result<Notices, Errno> {
        Ok(Notices { netlink: Netlink::open(&[NEIGHBOURS])?, interface })
    }

    /// Passes the changes to `each`. Returns false if notifications were lost, so that all neighbours must
    /// be looked up anew.
    pub(super) fn take(&mut self, mut each: impl FnMut(IpAddr, Reachability)) -> bool {
        let interface = self.interface;
        let listened = self.netlink.listen(|message| {
            let (entry, gone) = match &message {
                Message::NewNeighbour(entry) => (entry, false),
                Message::DelNeighbour(entry) => (entry, true),
                _ => return,
            };
            if entry.header.ifindex != interface {
                return;
            }
            let hop = entry.attributes.iter().find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(hop)) => Some(IpAddr::V4(*hop)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(hop)) => Some(IpAddr::V6(*hop)),
                _ => None,
            });
            if let Some(hop) = hop {
                each(hop, if gone { Reachability::No } else { of_entry(entry) });
            }
        });
        listened.is_ok()
    }
}
