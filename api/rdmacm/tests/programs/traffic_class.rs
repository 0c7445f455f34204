//! The type of service of an id, as a packet socket sees it on the link.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use remora_netns::Namespace;
use remora_wire::ROCE_PORT;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

use crate::connections::CmServer;
use crate::gids::{hosts, on};

/// The type of service that the programs set: AF31 without ECN.
const CLASS: u8 = 0x68;
/// Length of a UDP header in bytes.
const UDP: usize = 8;

/// A socket that receives each packet of a host, from its IP header on.
fn packet_socket(host: &Namespace) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(eth::ALL));
    host.inside(open).unwrap().unwrap()
}

/// Returns the traffic class of a RoCE v2 frame, and before it whether the frame goes to queue pair 1, as
/// MADs do.
fn class_of(packet: &[u8]) -> Option<(bool, u8)> {
    let is_ipv4 = packet.first()? >> 4 == 4;
    let header = if is_ipv4 { 20 } else { 40 };
    let protocol = packet[if is_ipv4 { 9 } else { 6 }];
    let class = if is_ipv4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 };
    let port = u16::from_be_bytes(*packet.get(header + 2..)?.first_chunk()?);
    let qpn = packet.get(header + UDP + 5..)?.first_chunk::<3>()?;
    (protocol == 17 && port == ROCE_PORT).then_some((*qpn == [0, 0, 1], class))
}

/// Returns the number of frames of each class that a socket has received.
fn seen(packets: &OwnedFd) -> BTreeMap<(bool, u8), u32> {
    let mut seen = BTreeMap::new();
    let mut packet = [0; 128];
    while let Ok((len, _)) = recv(packets, &mut packet[..], RecvFlags::empty()) {
        if let Some(class) = class_of(&packet[..len]) {
            *seen.entry(class).or_default() += 1;
        }
    }
    seen
}

/// Regression: MADs left over `udp` with traffic class 0, whatever `rdma_set_option` had set.
#[test]
fn mads_and_data_of_an_id_carry_its_type_of_service_on_the_wire() {
    let [near, far] = remora_netns::require!(hosts());
    for address in ["10.93.0.1", "fd93::1"] {
        let packets = packet_socket(&near);
        let over_udp = |host, line: &str| {
            let mut command = on(host, line);
            command.env("REMORA_PORT", "udp");
            command
        };
        let mut server = CmServer::start(over_udp(&near, &format!("ucmatose -b {address} -c 2 -C 8")));
        server.serves(over_udp(&far, &format!("ucmatose -s {address} -c 2 -C 8 -t {CLASS}")));
        server.succeeds();
        let seen = seen(&packets);
        assert!(seen.keys().all(|frame| frame.1 == CLASS), "{address}: {seen:?}");
        let [mads, data] = [true, false].map(|is_mad| seen.get(&(is_mad, CLASS)).copied().unwrap_or(0));
        assert!(mads >= 2 * 5 && data >= 2 * 2 * 8, "{address}: {seen:?}");
    }
}
