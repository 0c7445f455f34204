//! The next hops of an XDP port's frames: the kernel's routes and neighbours are requested when they are
//! missing, and followed when they change.
#![allow(unsafe_code, reason = "namespaces are system calls")]

mod network;

use network::{Host, ip, run, veth_pair};
use remora_port::xdp::{Options, PeerError, XdpPort};
use remora_port::{Egress, Peer, Port};
use remora_wire::frame::{Class, Endpoint};
use std::net::IpAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// A MAC address that no interface has.
const MOVED: &str = "02:00:00:00:be:ef";

fn at(address: &str) -> Endpoint {
    Endpoint { address: address.parse::<IpAddr>().unwrap().into(), udp_port: 4791 }
}

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Opens a port on `near0`, and returns it with the MAC address of `far0`.
fn near(spaces: &[Host; 2], own: &str) -> (XdpPort, [u8; 6]) {
    spaces[1].enter();
    let link = run("ip", "-oneline link show far0");
    let far = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned();
    spaces[0].enter();
    let port = XdpPort::open("near0", Some(own.parse().unwrap()), &Options::default());
    (port.unwrap_or_else(|error| panic!("{error}")), mac(&far))
}

/// Sends frames until their destination is this MAC address.
fn until_sent_to(port: &mut XdpPort, peer: Peer, expected: [u8; 6]) {
    let started = Instant::now();
    while port.ethernet_addresses(peer).map(|(_, destination)| destination) != Some(expected) {
        port.lend(peer, Class::default(), 100).expect("space").bytes.fill(1);
        port.commit();
        port.flush();
        port.receive(9, &mut |_| ());
        assert!(started.elapsed() < PATIENCE, "{:?} {:?}", port.xdp_counters(), port.counters());
    }
}

#[test]
fn a_neighbour_nobody_has_asked_for_is_asked_for_by_the_first_frame() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    for [own, far] in [["10.90.0.1", "10.90.0.2"], ["fd90::1", "fd90::2"]] {
        let (mut port, far_mac) = near(&spaces, own);
        let peer = port.peer(at(far)).unwrap();
        assert_eq!(port.ethernet_addresses(peer), None);
        until_sent_to(&mut port, peer, far_mac);
        let xdp = port.xdp_counters();
        let counters = port.counters();
        assert!(xdp.asked == 1 && xdp.unresolved >= 1, "{xdp:?}");
        assert_eq!(counters.send_dropped, xdp.unresolved, "frames before the address resolution are dropped");
        assert_eq!(counters.os_errors, 0);
        assert_eq!(port.peer(at(far)), Ok(peer));
    }
}

#[test]
fn whoever_waits_for_the_way_loses_nothing() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let (mut port, far_mac) = near(&spaces, "10.90.0.1");
    port.resolver().wait(at("10.90.0.2"), PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    let peer = port.peer(at("10.90.0.2")).unwrap();
    assert_eq!(port.ethernet_addresses(peer), Some((port.attachment().interface().mac, far_mac)));
    port.lend(peer, Class::default(), 100).expect("space").bytes.fill(1);
    port.commit();
    assert_eq!((port.counters().frames_sent, port.xdp_counters().unresolved), (1, 0));
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let (mut port, far_mac) = near(&spaces, "10.90.0.1");
    let peer = port.peer(at("10.90.0.2")).unwrap();
    until_sent_to(&mut port, peer, far_mac);
    ip(&format!("neighbour replace 10.90.0.2 lladdr {MOVED} dev near0"));
    until_sent_to(&mut port, peer, mac(MOVED));
    // A formerly valid address is used until a better one is known, and the kernel is asked to check it.
    let asked = port.xdp_counters().asked;
    ip("neighbour delete 10.90.0.2 dev near0");
    until_sent_to(&mut port, peer, far_mac);
    assert_eq!(port.xdp_counters().asked, asked + 1);
    assert!(run("ip", "neighbour show dev near0").contains("10.90.0.2 lladdr"));
}

#[test]
fn a_stale_neighbour_is_used_and_the_kernel_asks_whether_it_is_there() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    // Makes the kernel ask at once instead of after five seconds.
    std::fs::write("/proc/sys/net/ipv4/neigh/near0/delay_first_probe_time", "0").unwrap();
    ip(&format!("neighbour replace 10.90.0.2 lladdr {MOVED} nud stale dev near0"));
    let (mut port, far_mac) = near(&spaces, "10.90.0.1");
    let peer = port.peer(at("10.90.0.2")).unwrap();
    assert_eq!(port.ethernet_addresses(peer).unwrap().1, mac(MOVED));
    until_sent_to(&mut port, peer, far_mac);
    assert_eq!((port.xdp_counters().unresolved, port.counters().send_dropped), (0, 0));
    assert!(port.xdp_counters().asked >= 1);
}

#[test]
fn frames_to_other_networks_go_to_the_gateway() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let (mut port, far_mac) = near(&spaces, "10.90.0.1");
    assert_eq!(port.peer(at("10.91.7.7")), Err(PeerError::NoRoute(at("10.91.7.7"))));
    ip("route add 10.91.0.0/16 via 10.90.0.2");
    let peers = ["10.91.7.7", "10.91.7.8"].map(|address| port.peer(at(address)).unwrap());
    for peer in peers {
        until_sent_to(&mut port, peer, far_mac);
    }
    assert_eq!(port.xdp_counters().asked, 1, "one gateway");
    // An IPv4 route through an IPv6 gateway (RFC 5549).
    ip("route add 10.92.0.0/16 via inet6 fd90::2 dev near0");
    let peer = port.peer(at("10.92.7.7")).unwrap();
    until_sent_to(&mut port, peer, far_mac);
    assert!(!run("ip", "neighbour show dev near0").contains("10.91"));
}

#[test]
fn what_cannot_be_reached_by_this_interface_is_told() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    ip("link add side0 type veth peer name side1");
    ip("address add 10.95.0.1/24 dev side0");
    ip("link set side0 up");
    ip("route add unreachable 10.96.0.0/16");
    let (mut port, _) = near(&spaces, "10.90.0.1");
    let other = PeerError::OtherWay { peer: at("10.95.0.9"), interface: "near0".to_owned() };
    let refused = [
        ("10.95.0.9", other),
        ("10.96.0.9", PeerError::NoRoute(at("10.96.0.9"))),
        ("10.95.0.1", PeerError::OwnMachine(at("10.95.0.1"))),
        ("127.0.0.1", PeerError::OwnMachine(at("127.0.0.1"))),
        ("224.0.0.1", PeerError::NotAHost(at("224.0.0.1"))),
        ("fd90::2", PeerError::OtherFamily(at("fd90::2"))),
    ];
    for (address, error) in refused {
        assert!(!error.to_string().contains('\n'), "{error}");
        assert_eq!(port.peer(at(address)), Err(error.clone()));
        assert_eq!(port.resolver().wait(at(address), PATIENCE), Err(error));
    }
    let silent = port.resolver().wait(at("10.90.0.77"), Duration::from_millis(50)).unwrap_err();
    let PeerError::Silent { hop, waited, asked, .. } = &silent else { panic!("{silent}") };
    assert_eq!((hop.to_string(), *asked), ("10.90.0.77".to_owned(), 1));
    assert!(*waited >= Duration::from_millis(50));
    let words = silent.to_string();
    assert!(
        words.starts_with("10.90.0.77 did not answer on near0 in ") && words.contains("asked for"),
        "{words}"
    );
}

/// Adds an address whose duplicate address detection takes time, and opens a port with it at once.
#[test]
fn an_own_address_that_is_still_checked_is_waited_for() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    spaces[0].enter();
    spaces[0].check_addresses("near0", true);
    ip("address add fd91::1/64 dev near0");
    let own: IpAddr = "fd91::1".parse().unwrap();
    let port =
        XdpPort::open("near0", Some(own), &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(port.attachment().endpoint(), at("fd91::1"));
    drop(port);
    ip("address add fd91::3/64 dev near0");
    let udp =
        remora_port::udp::UdpPort::open((own_of("fd91::3"), 0).into(), &remora_port::udp::Options::default());
    assert_eq!(udp.unwrap_or_else(|error| panic!("{error}")).endpoint().address, own_of("fd91::3").into());
}

fn own_of(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_own_address_that_another_machine_has_is_told() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    spaces[1].enter();
    ip("address add fd91::1/64 dev far0 nodad");
    spaces[0].enter();
    spaces[0].check_addresses("near0", true);
    ip("address add fd91::1/64 dev near0");
    let words = XdpPort::open("near0", Some(own_of("fd91::1")), &Options::default()).unwrap_err().to_string();
    assert!(words.contains("fd91::1 belongs to another machine, too"), "{words}");
    let udp =
        remora_port::udp::UdpPort::open((own_of("fd91::1"), 0).into(), &remora_port::udp::Options::default());
    assert_eq!(udp.unwrap_err().to_string(), words);
}

/// The link is down when the route is requested. Then it comes up, and the peer's address is checked before
/// the peer answers.
#[test]
fn a_peer_whose_link_comes_up_late_and_whose_address_is_still_checked_is_waited_for() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    spaces[1].enter();
    spaces[1].check_addresses("far0", true);
    for [own, far] in [["10.90.0.1", "10.90.0.2/24"], ["fd90::1", "fd90::2/64"]] {
        let (port, far_mac) = near(&spaces, own);
        let (peer, _) = far.split_once('/').unwrap();
        spaces[1].enter();
        ip("link set far0 down");
        let resolver = port.resolver();
        let waiting = std::thread::spawn(move || resolver.mac(at(peer), Duration::from_secs(60)));
        // By now the kernel has given up once.
        std::thread::sleep(Duration::from_secs(4));
        ip("link set far0 up");
        if own.contains(':') {
            // The address was removed with the link, and is checked anew.
            ip(&format!("address add {far} dev far0"));
        }
        assert_eq!(waiting.join().unwrap(), Ok(far_mac), "{far}");
    }
}

#[test]
fn a_full_table_of_peers_refuses_only_new_ones() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    spaces[0].enter();
    let mut port = XdpPort::open("near0", None, &Options { max_peers: 2, ..Options::default() }).unwrap();
    let first = port.peer(at("10.90.0.2")).unwrap();
    assert_eq!(port.peer(at("10.90.0.3")), Ok(Peer(1)));
    assert_eq!(port.peer(at("10.90.0.4")), Err(PeerError::Full(2)));
    assert_eq!(port.peer(at("10.90.0.2")), Ok(first));
    assert_eq!(port.peer_endpoint(first), Some(at("10.90.0.2")));
}

#[test]
fn link_local_addresses_are_reached_on_the_ports_own_interface() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    for (space, name, number) in [(&spaces[1], "far0", 2), (&spaces[0], "near0", 1)] {
        space.enter();
        ip(&format!("address add fe80::90:{number}/64 dev {name} nodad"));
    }
    let (mut port, far_mac) = near(&spaces, "fe80::90:1");
    let peer = port.peer(at("fe80::90:2")).unwrap();
    until_sent_to(&mut port, peer, far_mac);
}
