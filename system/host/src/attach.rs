//! The host's requirements on a port beyond frames: peers, which each kind of port creates in its own way.

use remora_port::capture::Capture;
use remora_port::fault::Fault;
use remora_port::linked::LinkedPort;
use remora_port::shm::{Limits, Link, ShmPort};
use remora_port::udp::{SharedEndpoint, UdpPort};
use remora_port::xdp::{Mode, Resolver, XdpPort};
use remora_port::{Address, Counters, Endpoint, Peer, Port};
use std::sync::Arc;

use crate::port_kind::PortKind;
use crate::recording::{Recorder, Tap};

/// The reason why a peer could not be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The port is of another kind.
    #[error("the port of this NIC is {0}, which cannot reach the peer: open both NICs with the same kind")]
    WrongKind(PortKind),
    /// The port's error, as text.
    #[error("{0}")]
    Port(String),
    /// This kind of port has no multicast groups.
    #[error("port {0} has no multicast groups: open the device over udp")]
    NoGroups(PortKind),
    /// The port has no such address, or can have no more.
    #[error("the port of this NIC cannot have another address (at most {0}): use one that it has")]
    NoAddress(u8),
}

/// A port with peers. Used on the control path only, where it may be a trait object.
pub trait Attach {
    /// Returns the kind of this port.
    fn kind(&self) -> PortKind;

    /// Returns the recorder of the NIC's calls; `None` if they are not recorded.
    #[inline(always)]
    fn recorder(&mut self) -> Option<&mut Recorder> {
        None
    }

    /// Returns the port's counters.
    fn port_counters(&self) -> Counters;

    /// Adds the peer at the other end of a shared-memory link.
    ///
    /// # Errors
    /// `WrongKind` if the port is not `shm`; `Port` if it cannot have more links.
    fn add_link(&mut self, _link: Link, _endpoint: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Adds a neighbour: a program with this QPN range of the same address, at the other end of a link.
    ///
    /// # Errors
    /// `WrongKind` if the port has no neighbours; `Port` if it cannot have more links.
    fn add_neighbour(&mut self, _range: u8, _link: Link) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Returns the neighbour with this QPN range; `None` if no link leads there.
    fn neighbour(&self, _range: u8) -> Option<Peer> {
        None
    }

    /// Returns the number of links to neighbours, and their counters; `None` if the port has no neighbours.
    fn neighbours(&self) -> Option<(usize, Counters)> {
        None
    }

    /// Adds the peer with this endpoint.
    ///
    /// # Errors
    /// `WrongKind` if the port is `shm`; `Port` if the peer is not reachable, or the port cannot have more
    /// peers.
    fn add_endpoint(&mut self, _peer: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Adds a multicast group as a peer: a frame that is sent to it reaches all members.
    ///
    /// # Errors
    /// `NoGroups` if the port has none; `Port` if the group is not reachable, or the port cannot have more
    /// peers.
    fn add_group(&mut self, _group: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::NoGroups(self.kind()))
    }

    /// Adds a share of a further address to the port, and returns the number of that address. The first
    /// address of the port has number 0.
    ///
    /// # Errors
    /// `NoAddress`; `Port` if the system cannot create a socket.
    fn add_address(&mut self, _share: &SharedEndpoint) -> Result<u8, AttachError> {
        Err(AttachError::NoAddress(1))
    }

    /// Informs the port of this host's addresses, from which neighbours send.
    fn learn_local(&mut self, _addresses: &[Address]) {}

    /// Adds a peer like [`Attach::add_endpoint`], for frames from the address with this number.
    ///
    /// # Errors
    /// The errors of [`Attach::add_endpoint`]; `NoAddress`.
    fn add_endpoint_at(&mut self, address: u8, peer: Endpoint) -> Result<Peer, AttachError> {
        if address == 0 { self.add_endpoint(peer) } else { Err(AttachError::NoAddress(1)) }
    }

    /// Adds a multicast group like [`Attach::add_group`], for frames from the address with this number.
    ///
    /// # Errors
    /// The errors of [`Attach::add_group`]; `NoAddress`.
    fn add_group_at(&mut self, address: u8, group: Endpoint) -> Result<Peer, AttachError> {
        if address == 0 { self.add_group(group) } else { Err(AttachError::NoAddress(1)) }
    }

    /// Returns the source of frames sent from the further address with this number, and the largest size in
    /// bytes from BTH to ICRC that its interface allows. `None` for number 0, or if there is no such
    /// address.
    fn further_address(&self, _address: u8) -> Option<(Endpoint, usize)> {
        None
    }

    /// Joins a multicast group. Calls are counted: the port leaves the group after as many calls of
    /// [`leave`](Attach::leave).
    ///
    /// # Errors
    /// `NoGroups` if the port has none; `Port` if it cannot join.
    fn join(&mut self, _group: Endpoint) -> Result<(), AttachError> {
        Err(AttachError::NoGroups(self.kind()))
    }

    /// Reverts one [`join`](Attach::join) of this group.
    fn leave(&mut self, _group: Endpoint) {}

    /// Returns whether the port receives its own frames to groups. If not, it must be its own peer for
    /// that.
    fn loops_back_multicast(&self) -> bool {
        true
    }

    /// Returns a resolver if finding the route to a peer can take time. The resolver is used outside the
    /// engine's lock, before [`Attach::add_endpoint`].
    fn resolver(&self) -> Option<Arc<Resolver>> {
        None
    }

    /// Returns the range of QP numbers of this NIC on a shared address; `None` if it may use all numbers.
    fn qpn_range(&self) -> Option<u8> {
        None
    }

    /// Returns a short description of the method that the port has chosen, such as zero-copy; empty if
    /// there is no choice.
    fn manner(&self) -> &'static str {
        ""
    }

    /// Makes the port report IP header fields of received frames, like [`Port::show_ip_fields`].
    fn show_ip_fields(&mut self) {}

    /// Frees the number of a peer that no queue pair uses or will use. Frames to the number are dropped
    /// until it stands for another peer.
    fn remove(&mut self, peer: Peer);

    /// Returns a peer that died and was not reported yet; `None` if there is none.
    fn take_lost(&mut self) -> Option<Peer> {
        None
    }

    /// Returns the maximum number of peers.
    fn max_peers(&self) -> usize;

    /// Returns the number of packets that a queue pair may have in flight without overflowing the receiving
    /// side of such a port.
    fn window(&self) -> u32;

    /// Returns the number of packets in flight for this peer; `None` if [`Attach::window`] applies.
    fn window_to(&self, _peer: Peer) -> Option<u32> {
        None
    }
}

/// Packets in flight per queue pair over shared memory, where the rings themselves apply back-pressure.
const SHM_WINDOW: u32 = 256;

impl Attach for ShmPort {
    fn kind(&self) -> PortKind {
        PortKind::Shm
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_link(&mut self, link: Link, endpoint: Endpoint) -> Result<Peer, AttachError> {
        let peer = ShmPort::add_link(self, link).map_err(|error| AttachError::Port(error.to_string()))?;
        self.name_peer(peer, endpoint);
        Ok(peer)
    }

    /// Returns the peer that stands for all groups: all peers that the port is linked with. Their NICs know
    /// which groups have attached queue pairs.
    fn add_group(&mut self, _group: Endpoint) -> Result<Peer, AttachError> {
        Ok(remora_port::shm::EVERYONE)
    }

    fn join(&mut self, _group: Endpoint) -> Result<(), AttachError> {
        Ok(())
    }

    fn loops_back_multicast(&self) -> bool {
        false
    }

    fn remove(&mut self, peer: Peer) {
        if peer != remora_port::shm::EVERYONE {
            self.remove_link(peer);
        }
    }

    fn take_lost(&mut self) -> Option<Peer> {
        ShmPort::take_lost(self)
    }

    fn max_peers(&self) -> usize {
        Limits::default().links as usize
    }

    fn window(&self) -> u32 {
        SHM_WINDOW
    }
}

/// Bytes of a socket buffer that the kernel accounts for a waiting frame with 4 KiB of payload.
const KERNEL_FRAME: usize = 8 << 10;

impl Attach for UdpPort {
    fn kind(&self) -> PortKind {
        PortKind::Udp
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
        self.peer(peer).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn add_group(&mut self, group: Endpoint) -> Result<Peer, AttachError> {
        UdpPort::group(self, group).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn join(&mut self, group: Endpoint) -> Result<(), AttachError> {
        UdpPort::join(self, group).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn leave(&mut self, group: Endpoint) {
        let left = UdpPort::leave(self, group);
        debug_assert!(left.is_ok(), "the caller had joined the group");
    }

    fn show_ip_fields(&mut self) {
        Port::show_ip_fields(self);
    }

    fn remove(&mut self, peer: Peer) {
        UdpPort::remove(self, peer);
    }

    fn max_peers(&self) -> usize {
        remora_port::udp::Options::default().max_peers as usize
    }

    fn qpn_range(&self) -> Option<u8> {
        UdpPort::qpn_range(self)
    }

    fn manner(&self) -> &'static str {
        if UdpPort::qpn_range(self).is_some() { "an address shared by a broker" } else { "" }
    }

    /// Computes the window from the receive buffer of this port's socket, because the peer's socket is most
    /// likely configured alike. Packets beyond it are lost and retransmitted.
    fn window(&self) -> u32 {
        (self.socket().receive_buffer() / KERNEL_FRAME).clamp(8, 4096) as u32
    }
}

/// Reaches all peers by UDP, and neighbours by links.
impl Attach for LinkedPort {
    fn kind(&self) -> PortKind {
        PortKind::Udp
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_neighbour(&mut self, range: u8, link: Link) -> Result<Peer, AttachError> {
        LinkedPort::add_neighbour(self, range, link).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn neighbour(&self, range: u8) -> Option<Peer> {
        LinkedPort::neighbour(self, range)
    }

    fn neighbours(&self) -> Option<(usize, Counters)> {
        Some((self.open_links(), self.link_counters()))
    }

    fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
        self.peer(peer).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn add_group(&mut self, group: Endpoint) -> Result<Peer, AttachError> {
        self.add_group_at(0, group)
    }

    fn add_address(&mut self, share: &SharedEndpoint) -> Result<u8, AttachError> {
        let udp = UdpPort::open_shared(share, &remora_port::udp::Options::default());
        let udp = udp.map_err(|error| AttachError::Port(error.to_string()))?;
        match LinkedPort::add_address(self, udp) {
            Ok(number) => Ok(number as u8),
            Err(_) => Err(AttachError::NoAddress(LinkedPort::MAX_ADDRESSES as u8)),
        }
    }

    fn learn_local(&mut self, addresses: &[Address]) {
        LinkedPort::learn_local(self, addresses);
    }

    fn add_endpoint_at(&mut self, address: u8, peer: Endpoint) -> Result<Peer, AttachError> {
        let peer = self.peer_at(address.into(), peer).ok_or(AttachError::NoAddress(1))?;
        peer.map_err(|error| AttachError::Port(error.to_string()))
    }

    fn add_group_at(&mut self, address: u8, group: Endpoint) -> Result<Peer, AttachError> {
        let peer = self.group_at(address.into(), group).ok_or(AttachError::NoAddress(1))?;
        peer.map_err(|error| AttachError::Port(error.to_string()))
    }

    fn further_address(&self, address: u8) -> Option<(Endpoint, usize)> {
        let port = self.further_port(address.into())?;
        Some((port.source(), port.max_transport_bytes()))
    }

    fn join(&mut self, group: Endpoint) -> Result<(), AttachError> {
        LinkedPort::join(self, group).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn leave(&mut self, group: Endpoint) {
        let left = LinkedPort::leave(self, group);
        debug_assert!(left.is_ok(), "the caller had joined the group");
    }

    fn qpn_range(&self) -> Option<u8> {
        self.udp().qpn_range()
    }

    fn manner(&self) -> &'static str {
        "an address shared by a broker, links to neighbours"
    }

    fn show_ip_fields(&mut self) {
        Port::show_ip_fields(self);
    }

    fn remove(&mut self, peer: Peer) {
        LinkedPort::remove(self, peer);
    }

    fn take_lost(&mut self) -> Option<Peer> {
        LinkedPort::take_lost(self)
    }

    fn max_peers(&self) -> usize {
        Attach::max_peers(self.udp())
    }

    fn window(&self) -> u32 {
        Attach::window(self.udp())
    }

    fn window_to(&self, peer: Peer) -> Option<u32> {
        self.is_link(peer).then_some(SHM_WINDOW)
    }
}

impl Attach for XdpPort {
    fn kind(&self) -> PortKind {
        PortKind::Xdp
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
        self.peer(peer).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn resolver(&self) -> Option<Arc<Resolver>> {
        Some(XdpPort::resolver(self))
    }

    fn manner(&self) -> &'static str {
        match (self.mode(), self.is_zero_copy()) {
            (_, true) => "in the driver, zero copy",
            (Mode::Native, false) => "in the driver, one copy",
            (Mode::Generic, false) => "after the driver, one copy",
        }
    }

    fn remove(&mut self, peer: Peer) {
        XdpPort::remove(self, peer);
    }

    fn max_peers(&self) -> usize {
        remora_port::xdp::Options::default().max_peers as usize
    }

    /// Computes the window from this port's receive ring, because the peer's ring is most likely of the
    /// same size, and a few queue pairs may send at once. Packets beyond it are lost and retransmitted.
    fn window(&self) -> u32 {
        remora_port::xdp::Options::default().receive_frames / 4
    }
}

/// Implements `Attach` for a wrapper, which has the peers of the wrapped port.
macro_rules! attach_inside {
    ($wrapper:ident $(, $recorder:item)?) => {
        impl<P: Port + Attach> Attach for $wrapper<P> {
            $($recorder)?

            fn kind(&self) -> PortKind {
                self.port().kind()
            }

            fn port_counters(&self) -> Counters {
                self.counters()
            }

            fn add_link(&mut self, link: Link, endpoint: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_link(link, endpoint)
            }

            fn add_neighbour(&mut self, range: u8, link: Link) -> Result<Peer, AttachError> {
                Attach::add_neighbour(self.port_mut(), range, link)
            }

            fn neighbour(&self, range: u8) -> Option<Peer> {
                Attach::neighbour(self.port(), range)
            }

            fn neighbours(&self) -> Option<(usize, Counters)> {
                Attach::neighbours(self.port())
            }

            fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_endpoint(peer)
            }

            fn add_group(&mut self, group: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_group(group)
            }

            fn add_address(&mut self, share: &SharedEndpoint) -> Result<u8, AttachError> {
                Attach::add_address(self.port_mut(), share)
            }

            fn learn_local(&mut self, addresses: &[Address]) {
                Attach::learn_local(self.port_mut(), addresses);
            }

            fn add_endpoint_at(&mut self, address: u8, peer: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_endpoint_at(address, peer)
            }

            fn add_group_at(&mut self, address: u8, group: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_group_at(address, group)
            }

            fn further_address(&self, address: u8) -> Option<(Endpoint, usize)> {
                self.port().further_address(address)
            }

            fn join(&mut self, group: Endpoint) -> Result<(), AttachError> {
                Attach::join(self.port_mut(), group)
            }

            fn leave(&mut self, group: Endpoint) {
                Attach::leave(self.port_mut(), group);
            }

            fn loops_back_multicast(&self) -> bool {
                self.port().loops_back_multicast()
            }

            fn resolver(&self) -> Option<Arc<Resolver>> {
                Attach::resolver(self.port())
            }

            fn qpn_range(&self) -> Option<u8> {
                self.port().qpn_range()
            }

            fn manner(&self) -> &'static str {
                self.port().manner()
            }

            fn show_ip_fields(&mut self) {
                Port::show_ip_fields(self);
            }

            fn remove(&mut self, peer: Peer) {
                Attach::remove(self.port_mut(), peer);
            }

            fn take_lost(&mut self) -> Option<Peer> {
                Attach::take_lost(self.port_mut())
            }

            fn max_peers(&self) -> usize {
                self.port().max_peers()
            }

            fn window(&self) -> u32 {
                Attach::window(self.port())
            }

            fn window_to(&self, peer: Peer) -> Option<u32> {
                Attach::window_to(self.port(), peer)
            }
        }
    };
}

attach_inside!(Capture);
attach_inside!(Fault);
attach_inside!(
    Tap,
    fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder_mut()
    }
);
