//! The messages of rtnetlink that a port sends and reads.
//!
//! The enum of `netlink-packet-route` holds every message of the kernel's network configuration. Its parsers
//! of link attributes, filters and queueing disciplines alone would be a twentieth of the `remora` command.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, NlasIterator, Parseable as _, parse_string, parse_u32,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;

/// Length in bytes of `struct ifinfomsg`, which begins each message about a link.
const LINK_HEADER: usize = 16;

/// A message of rtnetlink. The kernel sends others, too; nothing asks for them.
#[derive(Debug)]
pub(super) enum Message {
    GetLink(Link),
    NewLink(Link),
    GetAddress(AddressMessage),
    NewAddress(AddressMessage),
    GetNeighbour(NeighbourMessage),
    NewNeighbour(NeighbourMessage),
    DelNeighbour(NeighbourMessage),
    GetRoute(RouteMessage),
    NewRoute(RouteMessage),
    Other(u16),
}

/// An interface: in a request, its index or its name; in an answer, what a port needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub index: u32,
    pub name: Option<String>,
    /// Kind of the interface: `ARPHRD_ETHER` for Ethernet.
    pub kind: u16,
    /// Flags of the interface, such as `IFF_UP`.
    pub flags: u32,
    pub mac: Option<[u8; 6]>,
    pub mtu: Option<usize>,
}

impl Link {
    /// Returns whether the interface has any of these flags.
    pub(super) fn has_any(&self, flags: i32) -> bool {
        self.flags & flags as u32 != 0
    }

    fn name_attribute(&self) -> Option<DefaultNla> {
        let name = self.name.as_ref()?;
        Some(DefaultNla::new(libc::IFLA_IFNAME, [name.as_bytes(), &[0]].concat()))
    }

    fn buffer_len(&self) -> usize {
        LINK_HEADER + self.name_attribute().map_or(0, |attribute| attribute.buffer_len())
    }

    /// Writes a request. Fields that a request leaves empty are zero.
    fn emit(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(LINK_HEADER);
        header.fill(0);
        header[4..8].copy_from_slice(&self.index.to_ne_bytes());
        if let Some(attribute) = self.name_attribute() {
            attribute.emit(attributes);
        }
    }

    fn parse(payload: &[u8]) -> Result<Link, DecodeError> {
        let Some((header, attributes)) = payload.split_first_chunk::<LINK_HEADER>() else {
            return Err(DecodeError::from("a message about a link has no header"));
        };
        let [_, _, kind0, kind1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
        let mut link = Link {
            kind: u16::from_ne_bytes([kind0, kind1]),
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            ..Link::default()
        };
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            match attribute.kind() {
                libc::IFLA_IFNAME => link.name = Some(parse_string(attribute.value())?),
                libc::IFLA_ADDRESS => link.mac = attribute.value().try_into().ok(),
                libc::IFLA_MTU => link.mtu = Some(parse_u32(attribute.value())? as usize),
                _ => {}
            }
        }
        Ok(link)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Message::GetLink(_) => libc::RTM_GETLINK,
            Message::NewLink(_) => libc::RTM_NEWLINK,
            Message::GetAddress(_) => libc::RTM_GETADDR,
            Message::NewAddress(_) => libc::RTM_NEWADDR,
            Message::GetNeighbour(_) => libc::RTM_GETNEIGH,
            Message::NewNeighbour(_) => libc::RTM_NEWNEIGH,
            Message::DelNeighbour(_) => libc::RTM_DELNEIGH,
            Message::GetRoute(_) => libc::RTM_GETROUTE,
            Message::NewRoute(_) => libc::RTM_NEWROUTE,
            Message::Other(kind) => *kind,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Message::GetLink(link) | Message::NewLink(link) => link.buffer_len(),
            Message::GetAddress(inner) | Message::NewAddress(inner) => inner.buffer_len(),
            Message::GetNeighbour(inner) | Message::NewNeighbour(inner) | Message::DelNeighbour(inner) => {
                inner.buffer_len()
            }
            Message::GetRoute(inner) | Message::NewRoute(inner) => inner.buffer_len(),
            Message::Other(_) => 0,
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Message::GetLink(link) | Message::NewLink(link) => link.emit(buffer),
            Message::GetAddress(inner) | Message::NewAddress(inner) => inner.emit(buffer),
            Message::GetNeighbour(inner) | Message::NewNeighbour(inner) | Message::DelNeighbour(inner) => {
                inner.emit(buffer);
            }
            Message::GetRoute(inner) | Message::NewRoute(inner) => inner.emit(buffer),
            Message::Other(_) => {}
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Message, DecodeError> {
        Ok(match header.message_type {
            libc::RTM_NEWLINK => Message::NewLink(Link::parse(payload)?),
            libc::RTM_NEWADDR => Message::NewAddress(AddressMessage::parse(payload)?),
            libc::RTM_NEWNEIGH => Message::NewNeighbour(NeighbourMessage::parse(payload)?),
            libc::RTM_DELNEIGH => Message::DelNeighbour(NeighbourMessage::parse(payload)?),
            libc::RTM_NEWROUTE => Message::NewRoute(RouteMessage::parse(payload)?),
            kind => Message::Other(kind),
        })
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> NetlinkPayload<Message> {
        NetlinkPayload::InnerMessage(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_message_that_is_cut_or_has_a_false_length_is_an_error_and_never_a_panic() {
        let mut answer = vec![0; LINK_HEADER];
        answer[2..4].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        answer[4..8].copy_from_slice(&9u32.to_ne_bytes());
        answer.extend([8, 0, libc::IFLA_MTU as u8, 0, 0xdc, 5, 0, 0]);
        let link = Link { index: 9, kind: libc::ARPHRD_ETHER, mtu: Some(1500), ..Link::default() };
        assert_eq!(Link::parse(&answer).unwrap(), link);
        for len in 0..LINK_HEADER {
            assert!(Link::parse(&answer[..len]).is_err(), "{len}");
        }
        for len in LINK_HEADER + 1..answer.len() {
            assert!(Link::parse(&answer[..len]).is_err(), "{len}");
        }
        answer[LINK_HEADER] = 200;
        assert!(Link::parse(&answer).is_err());
    }
}
