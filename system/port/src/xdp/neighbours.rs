//! Where a peer's frames go next: the kernel's routes and its table of neighbours (ARP, ND), asked for and followed.
//!
//! The kernel does the resolving: it is told that an entry is wanted (`NTF_USE`), sends its own requests, takes the
//! answers (which the XDP program lets through) and tells whoever listens. Nothing is written into its tables.

use super::netlink::{Ask, Netlink};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use std::net::IpAddr;

/// The multicast group in which the kernel tells of its neighbours (`RTNLGRP_NEIGH`).
const NEIGHBOURS: u32 = 3;

/// A MAC address.
pub(super) type Mac = [u8; 6];

/// What the kernel's table says of a neighbour.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Here it is, confirmed not long ago.
    Fresh(Mac),
    /// Here it was; nobody has asked lately.
    Stale(Mac),
    /// The kernel is asking.
    Asking,
    /// It does not answer, or the table does not know it.
    No,
}

/// How the route to an address leaves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the interface with this number, to this neighbour there.
    Out {
        /// The interface.
        interface: u32,
        /// The gateway, or the address itself.
        hop: IpAddr,
    },
    /// It is an address of this machine.
    Local,
    /// To all hosts of a network.
    Broadcast,
    /// There is none.
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

/// How a packet from `source` to `to` leaves. A link-local address is one of `interface`'s own network.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn way(netlink: &mut Netlink, source: IpAddr, to: IpAddr, interface: u32) -> Result<Way, Errno> {
    let mut question = RouteMessage::default();
    question.header.address_family = family(to);
    question.header.destination_prefix_length = prefix(to);
    question.header.source_prefix_length = prefix(to);
    question.attributes.push(RouteAttribute::Destination(to.into()));
    question.attributes.push(RouteAttribute::Source(source.into()));
    if matches!(to, IpAddr::V6(to) if to.is_unicast_link_local()) {
        question.attributes.push(RouteAttribute::Oif(interface));
    }
    let mut way = Way::Nowhere;
    let asked = netlink.ask(RouteNetlinkMessage::GetRoute(question), Ask::One, |answer| {
        if let RouteNetlinkMessage::NewRoute(route) = answer {
            way = of_route(&route, to);
        }
    });
    match asked {
        Ok(()) => Ok(way),
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => Ok(Way::Nowhere),
        Err(errno) => Err(errno),
    }
}

fn of_route(route: &RouteMessage, to: IpAddr) -> Way {
    match route.header.kind {
        RouteType::Local => return Way::Local,
        RouteType::Unicast => {}
        RouteType::Broadcast => return Way::Broadcast,
        _ => return Way::Nowhere,
    }
    let (mut interface, mut hop) = (None, to);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(gateway) => hop = route_address(gateway).unwrap_or(hop),
            // An IPv4 route by an IPv6 gateway (RFC 5549).
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => hop = (*gateway).into(),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => hop = (*gateway).into(),
            _ => {}
        }
    }
    interface.map_or(Way::Nowhere, |interface| Way::Out { interface, hop })
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

/// What the table says of a neighbour.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn known(netlink: &mut Netlink, interface: u32, hop: IpAddr) -> Result<Known, Errno> {
    let question = RouteNetlinkMessage::GetNeighbour(message(interface, hop));
    let mut known = Known::No;
    let asked = netlink.ask(question, Ask::One, |answer| {
        if let RouteNetlinkMessage::NewNeighbour(entry) = answer {
            known = of_entry(&entry);
        }
    });
    match asked {
        Ok(()) => Ok(known),
        Err(Errno::NOENT) => Ok(Known::No),
        Err(errno) => Err(errno),
    }
}

/// Tells the kernel that a neighbour is wanted: it asks for it, or asks whether it is still there.
///
/// # Errors
/// The kernel does not answer, or the process may not (`PERM`).
pub(super) fn want(netlink: &mut Netlink, interface: u32, hop: IpAddr) -> Result<(), Errno> {
    let mut wish = message(interface, hop);
    wish.header.flags = NeighbourFlags::Use;
    netlink.ask(RouteNetlinkMessage::NewNeighbour(wish), Ask::Make, |_| ())
}

fn of_entry(entry: &NeighbourMessage) -> Known {
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    match (entry.header.state, mac) {
        (NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp, Some(mac)) => {
            Known::Fresh(mac)
        }
        // Being asked whether it is still there: good until it turns out not to be.
        (NeighbourState::Delay | NeighbourState::Probe, Some(mac)) => Known::Fresh(mac),
        (NeighbourState::Stale, Some(mac)) => Known::Stale(mac),
        (NeighbourState::Incomplete, _) => Known::Asking,
        _ => Known::No,
    }
}

/// The kernel's news about the neighbours of one interface.
#[derive(Debug)]
pub(super) struct News {
    netlink: Netlink,
    interface: u32,
}

impl News {
    /// Subscribes to them.
    ///
    /// # Errors
    /// The errno of the call that failed.
    pub(super) fn of(interface: u32) -> Result<News, Errno> {
        Ok(News { netlink: Netlink::open(&[NEIGHBOURS])?, interface })
    }

    /// Hands on what has changed. `false`: some news is lost, so everything must be asked for anew.
    pub(super) fn take(&mut self, mut each: impl FnMut(IpAddr, Known)) -> bool {
        let interface = self.interface;
        let heard = self.netlink.listen(|told| {
            let (entry, gone) = match &told {
                RouteNetlinkMessage::NewNeighbour(entry) => (entry, false),
                RouteNetlinkMessage::DelNeighbour(entry) => (entry, true),
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
                each(hop, if gone { Known::No } else { of_entry(entry) });
            }
        });
        heard.is_ok()
    }
}
