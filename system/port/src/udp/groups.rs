//! Multicast groups. A port receives each group through a socket of its own, because a socket that is bound
//! to one unicast address receives nothing else.
//!
//! Several NICs of one host may be members of one group: each of their sockets gets a copy
//! (`SO_REUSEADDR`). A frame that a port sends to a group leaves by the interface that has the port's
//! address. Its reach is the system's default (a TTL of 1: this link), and it is looped back to the members
//! on this host.

use super::options::Options;
use super::socket::{Socket, set};
use super::{Arrival, PeerError, address, mtu};
use remora_wire::frame::Endpoint;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The reason why a port cannot join a group, or send to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The address is not a multicast group's, or belongs to another address family than the port, or its
    /// UDP port is 0.
    #[error("{0} is not a multicast group of this port's address family with a UDP port")]
    NotAGroup(SocketAddr),
    /// The port is a member of the maximum number of groups.
    #[error("this port is a member of {0} groups, its maximum: leave one, or open another device")]
    Full(u32),
    /// The group cannot become a peer because the port's table of peers is full.
    #[error("{0}")]
    NoPeer(PeerError),
    /// The port is not a member of this group.
    #[error("this port is not a member of {0}")]
    NotAMember(SocketAddr),
    /// Another failure: the system call and its errno.
    #[error("joining the group failed in {0}: {1}")]
    Os(&'static str, Errno),
}

/// A group that the port is a member of.
#[derive(Debug)]
struct Membership {
    group: Endpoint,
    socket: Socket,
    users: u32,
}

/// The groups that a port is a member of.
#[derive(Debug)]
pub(super) struct Groups {
    members: Vec<Membership>,
    max: u32,
    /// Index of the group that was read last; the next turn begins after it.
    turn: usize,
    /// A buffer for one datagram; empty until the port joins a group.
    buffer: Vec<u8>,
    /// True once the kernel must report the IP header fields of received frames.
    shows_fields: bool,
}

/// Checks that `group` is a multicast group that a port at `local` may join and send to.
pub(super) fn check(group: SocketAddr, local: SocketAddr) -> Result<(), GroupError> {
    if group.is_ipv4() == local.is_ipv4() && group.ip().is_multicast() && group.port() != 0 {
        return Ok(());
    }
    Err(GroupError::NotAGroup(group))
}

/// Returns the index of the interface that has a port's IPv6 address. Returns 0 (the system's choice) for
/// IPv4, where the address selects the interface.
fn interface(socket: &Socket) -> u32 {
    let local = socket.local();
    if local.is_ipv4() { 0 } else { mtu::interface_of(local.ip()).unwrap_or_else(|| address::scope(local)) }
}

/// Makes the socket send multicast frames by the interface that has its address.
pub(super) fn send_by_own_interface(socket: &Socket) -> Result<(), GroupError> {
    match socket.local().ip() {
        IpAddr::V4(ip) => sockopt::set_ip_multicast_if(socket.as_fd(), &ip)
            .map_err(|errno| GroupError::Os("IP_MULTICAST_IF", errno)),
        IpAddr::V6(_) => sockopt::set_ipv6_multicast_if(socket.as_fd(), interface(socket))
            .map_err(|errno| GroupError::Os("IPV6_MULTICAST_IF", errno)),
    }
}

impl Groups {
    pub(super) fn new(max: u32) -> Groups {
        Groups { members: Vec::new(), max, turn: 0, buffer: Vec::new(), shows_fields: false }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Joins a group on the interface of `own`, or counts one more user if the port is already a member.
    pub(super) fn join(&mut self, group: SocketAddr, own: &Socket) -> Result<(), GroupError> {
        check(group, own.local())?;
        let name = address::endpoint(group);
        if let Some(known) = self.members.iter_mut().find(|known| known.group == name) {
            known.users += 1;
            return Ok(());
        }
        if self.members.len() >= self.max as usize {
            return Err(GroupError::Full(self.max));
        }
        let socket = hear(group, own)?;
        if self.shows_fields {
            socket.show_ip_fields().map_err(|errno| GroupError::Os("IP_RECVTOS", errno))?;
        }
        self.buffer.resize(usize::from(u16::MAX), 0);
        self.members.push(Membership { group: name, socket, users: 1 });
        Ok(())
    }

    /// Counts one user of a group less; the last one leaves the group.
    pub(super) fn leave(&mut self, group: SocketAddr) -> Result<(), GroupError> {
        let name = address::endpoint(group);
        let place = self.members.iter().position(|known| known.group == name);
        let place = place.ok_or(GroupError::NotAMember(group))?;
        self.members[place].users -= 1;
        if self.members[place].users == 0 {
            self.members.swap_remove(place);
        }
        Ok(())
    }

    /// Polls each group once for a datagram, beginning with another group each time. Returns the first
    /// datagram, with its group; `None` if there is none.
    pub(super) fn receive(&mut self) -> Option<(Result<Arrival, Errno>, Endpoint, &[u8])> {
        for _ in 0..self.members.len() {
            self.turn = (self.turn + 1) % self.members.len();
            let Membership { group, socket, .. } = &self.members[self.turn];
            // The sockets of groups do not join trains, but only this call reads the IP header fields.
            let arrival = match self.shows_fields {
                true => socket.recv_train(&mut self.buffer),
                false => socket.recv_from(&mut self.buffer),
            };
            match arrival {
                Ok(None) => {}
                Ok(Some(arrival)) => return Some((Ok(arrival), *group, &self.buffer[..arrival.len])),
                Err(errno) => return Some((Err(errno), *group, &[])),
            }
        }
        None
    }

    /// Makes the kernel report the IP header fields of frames to all groups.
    pub(super) fn show_ip_fields(&mut self) {
        self.shows_fields = true;
        for member in &self.members {
            let _ = member.socket.show_ip_fields();
        }
    }

    pub(super) fn poll_fds(&self, out: &mut Vec<RawFd>) {
        out.extend(self.members.iter().map(|member| member.socket.as_fd().as_raw_fd()));
    }
}

/// Opens a socket that receives a group on the interface of `own`.
fn hear(group: SocketAddr, own: &Socket) -> Result<Socket, GroupError> {
    let os = |call| move |errno| GroupError::Os(call, errno);
    let family = if group.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).map_err(os("socket"))?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(os("SO_REUSEADDR"))?;
    sockopt::set_socket_recv_buffer_size(&fd, Options::default().receive_buffer).map_err(os("SO_RCVBUF"))?;
    let index = interface(own);
    let address = match (group.ip(), own.local().ip()) {
        (IpAddr::V4(ip), IpAddr::V4(local)) => {
            // Only this group: not the groups that other programs of this host have joined.
            set(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0).map_err(os("IP_MULTICAST_ALL"))?;
            sockopt::set_ip_add_membership(&fd, &ip, &local).map_err(os("IP_ADD_MEMBERSHIP"))?;
            group
        }
        (IpAddr::V6(ip), _) => {
            set(&fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1).map_err(os("UDP_NO_CHECK6_RX"))?;
            sockopt::set_ipv6_v6only(&fd, true).map_err(os("IPV6_V6ONLY"))?;
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0).map_err(os("IPV6_MULTICAST_ALL"))?;
            sockopt::set_ipv6_add_membership(&fd, &ip, index).map_err(os("IPV6_ADD_MEMBERSHIP"))?;
            std::net::SocketAddrV6::new(ip, group.port(), 0, index).into()
        }
        _ => return Err(GroupError::NotAGroup(group)),
    };
    rustix::net::bind(&fd, &address).map_err(os("bind"))?;
    Ok(Socket::of_group(fd, address))
}

#[cfg(test)]
mod tests {
    use super::super::UdpPort;
    use super::*;
    use crate::{Class, Egress, Port, Start};
    use std::time::{Duration, Instant};

    /// Fails if the system lacks options of multicast, as QEMU's emulation of user programs does.
    fn multicast_options() -> Result<(), String> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = sockopt::set_ip_multicast_if(&socket, &std::net::Ipv4Addr::LOCALHOST);
        let receiver = set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        let lacks = |result| result == Err(Errno::NOPROTOOPT);
        if lacks(sender) || lacks(receiver) {
            return Err("this system has no IP_MULTICAST_IF or IP_MULTICAST_ALL".to_owned());
        }
        Ok(())
    }

    fn open(max_groups: u32) -> UdpPort {
        let options = Options { max_groups, ..Options::default() };
        UdpPort::open("127.0.0.1:0".parse().unwrap(), &options).unwrap()
    }

    fn group(text: &str) -> Endpoint {
        address::endpoint(text.parse().unwrap())
    }

    fn send(port: &mut UdpPort, peer: remora_wire::frame::Peer, bytes: &[u8]) {
        port.lend(peer, Class::default(), bytes.len()).unwrap().bytes.copy_from_slice(bytes);
        port.commit();
        port.flush();
    }

    /// Receives until `count` frames have come. Returns their bytes, and the groups that they were sent to.
    fn receive(port: &mut UdpPort, budget: usize, count: usize) -> Vec<(Vec<u8>, Option<Endpoint>)> {
        let mut came = Vec::new();
        let limit = Instant::now() + Duration::from_secs(60);
        while came.len() < count {
            assert!(Instant::now() < limit, "{count} frames were sent, {} came", came.len());
            port.receive(budget, &mut |frame| {
                assert_eq!(frame.start, Start::Bth);
                came.push((frame.bytes.to_vec(), frame.destination));
            });
        }
        came
    }

    #[test]
    fn memberships_are_bounded_counted_and_end() {
        remora_netns::require!(multicast_options());
        let mut port = open(2);
        let [a, b, c] = ["239.255.70.1:4791", "239.255.70.2:4791", "239.255.70.3:4791"].map(group);
        port.join(a).unwrap();
        port.join(a).unwrap();
        port.join(b).unwrap();
        assert_eq!(port.join(c), Err(GroupError::Full(2)));
        port.leave(a).unwrap();
        assert_eq!(port.join(c), Err(GroupError::Full(2)), "one user remains");
        port.leave(a).unwrap();
        assert_eq!(port.leave(a), Err(GroupError::NotAMember("239.255.70.1:4791".parse().unwrap())));
        port.join(c).unwrap();
        for wrong in ["10.0.0.1:4791", "239.255.70.1:0", "[ff12::1]:4791", "255.255.255.255:4791"] {
            let refused = Err(GroupError::NotAGroup(wrong.parse().unwrap()));
            assert_eq!(port.join(group(wrong)), refused);
            assert_eq!(port.group(group(wrong)).map(|_| ()), refused);
        }
        let words = GroupError::Full(2).to_string();
        assert!(words.contains("leave one"), "{words}");
    }

    #[test]
    fn a_group_to_send_to_takes_a_place_among_the_peers() {
        remora_netns::require!(multicast_options());
        let options = Options { max_peers: 1, ..Options::default() };
        let mut port = UdpPort::open("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let first = port.group(group("239.255.70.7:4791")).unwrap();
        let full = GroupError::NoPeer(PeerError::Full(1));
        assert_eq!(port.group(group("239.255.70.8:4791")), Err(full));
        assert!(full.to_string().contains("all 1 peers"), "{full}");
        assert_eq!(port.group(group("239.255.70.7:4791")), Ok(first));
    }

    #[test]
    fn every_member_on_this_host_hears_the_group_and_nobody_else() {
        remora_netns::require!(multicast_options());
        let mut sender = open(4);
        let mut one = open(4);
        let mut two = open(4);
        let mut stranger = open(4);
        let here = group("239.255.70.4:47911");
        let other = group("239.255.70.5:47911");
        one.join(here).unwrap();
        two.join(here).unwrap();
        stranger.join(other).unwrap();
        let all = sender.group(here).unwrap();
        assert_eq!(sender.group(here), Ok(all), "the same number again");
        send(&mut sender, all, b"to both");
        for port in [&mut one, &mut two] {
            assert_eq!(receive(port, 8, 1), [(b"to both".to_vec(), Some(here))]);
        }
        let others = sender.group(other).unwrap();
        send(&mut sender, others, b"to the third");
        assert_eq!(receive(&mut stranger, 8, 1), [(b"to the third".to_vec(), Some(other))]);
        assert_eq!(one.receive(8, &mut |_| panic!("a frame of another group arrived")), 0);
        // A NIC that has left receives nothing. The sender may itself be a member.
        one.leave(here).unwrap();
        sender.join(here).unwrap();
        send(&mut sender, all, b"again");
        assert_eq!(receive(&mut sender, 8, 1), [(b"again".to_vec(), Some(here))]);
        assert_eq!(receive(&mut two, 8, 1), [(b"again".to_vec(), Some(here))]);
        assert_eq!(one.receive(8, &mut |_| panic!("a frame arrived after leaving the group")), 0);
    }

    #[test]
    fn neither_a_busy_group_nor_a_busy_peer_starves_the_other() {
        remora_netns::require!(multicast_options());
        let mut sender = open(4);
        let mut port = open(4);
        let name = group("239.255.70.6:47911");
        port.join(name).unwrap();
        let all = sender.group(name).unwrap();
        let alone = sender.peer(port.endpoint()).unwrap();
        for number in 0..40 {
            send(&mut sender, all, &[number; 5]);
            send(&mut sender, alone, &[number; 6]);
        }
        for budget in [1, 2, 8] {
            let came = receive(&mut port, budget, 20);
            let of_group = came.iter().filter(|(_, group)| group.is_some()).count();
            if budget > 1 {
                assert!(of_group >= 5 && of_group <= came.len() - 5, "{of_group} of {}", came.len());
            }
        }
    }
}
