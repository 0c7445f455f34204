//! The host's needs of a port beyond frames: peers that come and go, in each kind of port's own way.

use remora_port::capture::Capture;
use remora_port::fault::Fault;
use remora_port::linked::LinkedPort;
use remora_port::shm::{Limits, Link, ShmPort};
use remora_port::udp::{SharedEndpoint, UdpPort};
use remora_port::xdp::{Mode, Resolver, XdpPort};
use remora_port::{Address, Counters, Endpoint, Peer, Port};
use std::fmt;
use std::sync::Arc;

/// The kind of port that a NIC has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Rings in shared memory.
    Shm,
    /// UDP sockets, one for each engine.
    Udp,
    /// A network interface by AF_XDP.
    Xdp,
}

impl PortKind {
    /// Do frames of one reach the other? All but shared memory send RoCE v2 on the network.
    pub fn reaches(self, other: PortKind) -> bool {
        (self == PortKind::Shm) == (other == PortKind::Shm)
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Shm => "shm",
            PortKind::Udp => "udp",
            PortKind::Xdp => "xdp",
        })
    }
}

/// Why a peer could not be made usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The port is of another kind.
    WrongKind(PortKind),
    /// The port's error, as a text.
    Port(String),
    /// This kind of port has no multicast groups.
    NoGroups(PortKind),
    /// The port has no such address, or can have no more.
    NoAddress(u8),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::WrongKind(kind) => {
                write!(f, "this NIC's port is {kind}: the peer needs one that it can reach")
            }
            AttachError::Port(words) => f.write_str(words),
            AttachError::NoGroups(kind) => {
                write!(f, "port {kind} has no multicast groups: open the device over udp")
            }
            AttachError::NoAddress(most) => {
                write!(f, "this NIC's port has one address, or {most} already: name the peer by one of them")
            }
        }
    }
}

impl std::error::Error for AttachError {}

/// A port whose peers come and go. Control path only, so it may be a trait object there.
pub trait Attach {
    /// The kind of this port.
    fn kind(&self) -> PortKind;

    /// The port's counters so far.
    fn port_counters(&self) -> Counters;

    /// Makes the peer at the other end of a shared-memory link usable.
    ///
    /// # Errors
    /// The port is no `shm`, or takes no more links.
    fn add_link(&mut self, _link: Link, _endpoint: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Makes a neighbour usable: a program with this QPN range of the same address, at the other end of a
    /// link.
    ///
    /// # Errors
    /// The port has no neighbours, or takes no more links.
    fn add_neighbour(&mut self, _range: u8, _link: Link) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// The neighbour with this QPN range, if a link leads there.
    fn neighbour(&self, _range: u8) -> Option<Peer> {
        None
    }

    /// How many links lead to neighbours, and what was counted of them; `None`: the port has no neighbours.
    fn neighbours(&self) -> Option<(usize, Counters)> {
        None
    }

    /// Makes the peer of this name usable.
    ///
    /// # Errors
    /// The port is `shm`, cannot reach it, or takes no more peers.
    fn add_endpoint(&mut self, _peer: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Makes a multicast group usable as a peer: a frame that is sent to it goes to all members.
    ///
    /// # Errors
    /// The port has none, cannot reach it, or takes no more peers.
    fn add_group(&mut self, _group: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::NoGroups(self.kind()))
    }

    /// Gives the port a share of a further address; the number of that address. The port's own is 0.
    ///
    /// # Errors
    /// `NoAddress`; the system gives no socket.
    fn add_address(&mut self, _share: &SharedEndpoint) -> Result<u8, AttachError> {
        Err(AttachError::NoAddress(1))
    }

    /// Learns which addresses this host has: neighbours send from them.
    fn learn_local(&mut self, _addresses: &[Address]) {}

    /// As [`Attach::add_endpoint`], for the address with this number.
    ///
    /// # Errors
    /// As there; `NoAddress`.
    fn add_endpoint_at(&mut self, address: u8, peer: Endpoint) -> Result<Peer, AttachError> {
        if address == 0 { self.add_endpoint(peer) } else { Err(AttachError::NoAddress(1)) }
    }

    /// As [`Attach::add_group`], for the address with this number.
    ///
    /// # Errors
    /// As there; `NoAddress`.
    fn add_group_at(&mut self, address: u8, group: Endpoint) -> Result<Peer, AttachError> {
        if address == 0 { self.add_group(group) } else { Err(AttachError::NoAddress(1)) }
    }

    /// Where frames come from that leave by the address with this number, and the bytes from BTH to ICRC that
    /// its interface takes. `None`: it is the port's own, or there is no such address.
    fn further_address(&self, _address: u8) -> Option<(Endpoint, usize)> {
        None
    }

    /// Joins a multicast group. Each call counts: the port leaves after as many calls of
    /// [`leave`](Attach::leave).
    ///
    /// # Errors
    /// The port has none, or can join no more.
    fn join(&mut self, _group: Endpoint) -> Result<(), AttachError> {
        Err(AttachError::NoGroups(self.kind()))
    }

    /// Takes one [`join`](Attach::join) of this group back.
    fn leave(&mut self, _group: Endpoint) {}

    /// Does the port receive its own frames to groups? If not, it must be its own peer for that.
    fn loops_back_multicast(&self) -> bool {
        true
    }

    /// Finds the way to a peer outside of the engine, if that can take time; before [`Attach::add_endpoint`].
    fn resolver(&self) -> Option<Arc<Resolver>> {
        None
    }

    /// The range of QP numbers that this NIC has on an address that it shares; `None`: all are its own.
    fn qpn_range(&self) -> Option<u8> {
        None
    }

    /// A few words on the method that the port has chosen, if it has a choice (zero-copy, say).
    fn manner(&self) -> &'static str {
        ""
    }

    /// As [`Port::show_ip_fields`].
    fn show_ip_fields(&mut self) {}

    /// Gives the number of a peer back that no queue pair names, nor will name. Frames to it are dropped,
    /// until the number means another peer.
    fn remove(&mut self, peer: Peer);

    /// A peer that died and was not reported yet; `None`: there is none.
    fn take_lost(&mut self) -> Option<Peer> {
        None
    }

    /// Peers that it can have at once.
    fn max_peers(&self) -> usize;

    /// Packets that a queue pair may have in flight without overflowing the receiving side of this port.
    fn window(&self) -> u32;

    /// The same for this peer, where it differs.
    fn window_to(&self, _peer: Peer) -> Option<u32> {
        None
    }
}

/// Packets in flight per queue pair over shared memory, where the rings themselves push back.
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

    /// A group is all peers that the port is linked with; their NICs know which are attached.
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

/// Bytes that the kernel counts for a frame of 4 KiB payload while it waits in a socket, by its own
/// reckoning.
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
        debug_assert!(left.is_ok(), "whoever leaves has joined");
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

    /// Our own socket's buffer stands for the peer's, which is most likely set up alike. Packets beyond it
    /// are lost and sent again.
    fn window(&self) -> u32 {
        (self.socket().receive_buffer() / KERNEL_FRAME).clamp(8, 4096) as u32
    }
}

/// By UDP to everybody, and by links to neighbours.
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
        debug_assert!(left.is_ok(), "whoever leaves has joined");
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

    /// Our own ring stands for the peer's, and a few queue pairs may send at once. Packets beyond it are lost
    /// and sent again.
    fn window(&self) -> u32 {
        remora_port::xdp::Options::default().receive_frames / 4
    }
}

/// A wrapped port has the peers of the port inside.
macro_rules! attach_inside {
    ($wrapper:ident) => {
        impl<P: Port + Attach> Attach for $wrapper<P> {
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
