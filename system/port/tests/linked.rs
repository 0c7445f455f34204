//! Port `linked` with real sockets and real links: each frame uses one of them.
#![allow(unsafe_code, reason = "descriptors that a port names are borrowed")]

use remora_port::linked::{LinkedPort, Wanted};
use remora_port::shm::{self, DEFAULT_GEOMETRY, Link, SMALL_GEOMETRY};
use remora_port::udp::{Options, UdpPort};
use remora_port::{Egress, Endpoint, Origin, Peer, Port, Start};
use remora_wire::Qpn;
use remora_wire::frame::{Class, Route};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn open(wanted: Option<Arc<Wanted>>) -> LinkedPort {
    let udp = UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    LinkedPort::new(udp, wanted).unwrap()
}

/// Returns the two ends of a link, as two programs get them from a third that introduces them.
fn ends() -> [Link; 2] {
    shm::introduce(SMALL_GEOMETRY).unwrap().map(|socket| shm::take(socket, None, false).unwrap())
}

/// Sends 40 bytes from BTH to ICRC, with `source` as the IP source.
fn send(port: &mut LinkedPort, peer: Peer, source: Endpoint, mark: u8) {
    let start = port.start(peer);
    let below = start.overhead(true);
    let lease = port.lend(peer, Class::default(), below + 40).expect("space");
    Route::new(source, source).emit(start, lease.ip_id, 40, lease.bytes);
    lease.bytes[below..].fill(mark);
    port.commit();
    port.flush();
}

/// Receives the next frame: its last byte, whether it is sealed, and whether it arrived over a link.
fn receive(port: &mut LinkedPort) -> (u8, bool, bool) {
    let mut arrival = None;
    let until = Instant::now() + Duration::from_secs(60);
    while arrival.is_none() {
        assert!(Instant::now() < until, "a frame comes");
        port.receive(1, &mut |frame| {
            let by_link = matches!(frame.origin, Some(Origin::Neighbour(_)));
            assert_eq!(frame.start, if by_link { Start::Ip } else { Start::Bth });
            arrival = frame.bytes.last().map(|last| (*last, frame.sealed, by_link));
        });
    }
    arrival.unwrap()
}

#[test]
fn frames_go_by_the_link_of_their_peer_or_by_the_socket() {
    let wanted = Arc::new(Wanted::new().unwrap());
    let mut near = open(Some(Arc::clone(&wanted)));
    let mut far = open(None);
    let here = near.endpoint();
    let there = far.endpoint();
    let own = near.peer(here).unwrap();
    let other = near.peer(there).unwrap();
    let qp = Qpn::new(9 << 17 | 5);
    assert_eq!((near.nearest(own, qp), near.nearest(other, qp)), (own, other), "no link yet");
    assert_eq!(wanted.take(), [9], "only programs on the own address are neighbours");
    let [ours, theirs] = ends();
    let link = near.add_neighbour(9, ours).unwrap();
    far.add_neighbour(3, theirs).unwrap();
    assert_eq!((near.nearest(own, qp), near.nearest(other, qp)), (link, other));
    assert_eq!([link, other].map(|peer| near.seals(peer)), [false, true]);
    for round in 0..100 {
        send(&mut near, link, here, round);
        assert_eq!(receive(&mut far), (round, false, true));
        send(&mut near, other, here, 100 + round);
        assert_eq!(receive(&mut far), (100 + round, true, false), "the socket is looked at, too");
    }
    drop(far);
    // Each call of `disarm` checks which sockets have hung up.
    near.disarm();
    assert_eq!((near.take_lost(), near.neighbour(9)), (Some(link), None));
    assert_eq!(near.nearest(own, qp), own, "by UDP again");
    send(&mut near, link, here, 1);
    assert_eq!(near.link_counters().send_dropped, 1);
    near.remove(link);
    assert_eq!(
        near.add_neighbour(9, Link::loopback(DEFAULT_GEOMETRY).unwrap()),
        Ok(link),
        "the number is free"
    );
}

#[test]
fn a_neighbour_speaks_for_no_other_address() {
    let mut near = open(None);
    let mut far = open(None);
    let [ours, theirs] = ends();
    let link = near.add_neighbour(9, ours).unwrap();
    far.add_neighbour(3, theirs).unwrap();
    let here = near.endpoint();
    for address in ["127.0.0.2", "10.0.0.1"] {
        let forged = Endpoint { address: address.parse::<std::net::IpAddr>().unwrap().into(), ..here };
        send(&mut near, link, forged, 1);
    }
    for bytes in [&[0x45][..], &[0x65; 23], &[0x75; 60]] {
        near.lend(link, Class::default(), bytes.len()).unwrap().bytes.copy_from_slice(bytes);
        near.commit();
    }
    send(&mut near, link, here, 7);
    assert_eq!(receive(&mut far), (7, false, true));
    assert_eq!(far.link_counters().malformed, 5);
}

fn readable(port: &LinkedPort) -> bool {
    let mut fds = Vec::new();
    port.poll_fds(&mut fds);
    // SAFETY: the descriptors are open as long as the port, which outlives these borrows.
    let fds: Vec<_> = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
    let mut polled: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn a_frame_by_a_link_wakes_a_sleeper_as_one_by_the_socket_does() {
    let mut near = open(None);
    let mut far = open(None);
    let other = near.peer(far.endpoint()).unwrap();
    let [ours, theirs] = ends();
    let link = near.add_neighbour(9, ours).unwrap();
    let here = near.endpoint();
    assert!(!far.arm());
    // A frame that arrives during the sleep.
    far.add_neighbour(3, theirs).unwrap();
    for peer in [link, other, link] {
        assert!(!readable(&far));
        send(&mut near, peer, here, 3);
        assert!(readable(&far), "{peer:?}");
        far.disarm();
        assert_eq!(receive(&mut far).0, 3);
        assert!(!far.arm());
    }
    assert_eq!(near.counters().wakes_sent, 2);
}

#[test]
fn a_port_of_several_addresses_sends_from_the_one_by_which_a_peer_was_named() {
    let mut port = open(None);
    let mut other = open(None);
    let open_port = |text: &str| UdpPort::open(text.parse().unwrap(), &Options::default()).unwrap();
    let further: Vec<UdpPort> = ["127.0.0.2:0", "127.0.0.3:0", "[::1]:0"].map(open_port).into();
    let mut names = vec![port.endpoint()];
    for udp in further {
        names.push(udp.endpoint());
        assert_eq!(port.add_address(udp).unwrap(), names.len() - 1);
    }
    for (address, name) in names.iter().enumerate().take(3) {
        let peer = port.peer_at(address, other.endpoint()).unwrap().unwrap();
        assert_eq!(
            port.peer_at(address, other.endpoint()),
            Some(Ok(peer)),
            "each address has one peer number"
        );
        assert_eq!((port.source_to(peer), port.peer_endpoint(peer)), (*name, Some(other.endpoint())));
        send(&mut port, peer, *name, address as u8);
        let mut came = None;
        let until = Instant::now() + Duration::from_secs(60);
        while came.is_none() {
            assert!(Instant::now() < until, "a frame comes");
            other.receive(1, &mut |frame| came = Some((frame.bytes.to_vec(), frame.source)));
        }
        assert_eq!(came, Some((vec![address as u8; 40], *name)));
        // A frame to that address wakes a sleeper, and is reported with the address that it was sent to.
        assert!(!port.arm() && !readable(&port));
        let back = other.peer(*name).unwrap();
        send(&mut other, back, *name, 50 + address as u8);
        assert!(readable(&port));
        port.disarm();
        let mut seen = None;
        while seen.is_none() {
            assert!(Instant::now() < until, "a frame comes back");
            port.receive(8, &mut |frame| seen = Some((frame.bytes[0], frame.destination)));
        }
        assert_eq!(seen, Some((50 + address as u8, (address > 0).then_some(*name))));
    }
    assert!(port.peer_at(3, other.endpoint()).unwrap().is_err(), "from IPv6 to IPv4");
    assert_eq!(port.peer_at(4, other.endpoint()), None, "no such address");
    assert_eq!(port.counters().frames_received, 3);
}

#[test]
fn a_datagram_to_each_own_address_may_leave_by_a_link_and_one_to_another_may_not() {
    let mut port = open(None);
    let second = UdpPort::open("127.0.0.2:0".parse().unwrap(), &Options::default()).unwrap();
    let names = [port.endpoint(), second.endpoint()];
    port.add_address(second).unwrap();
    let link = port.add_neighbour(9, Link::loopback(DEFAULT_GEOMETRY).unwrap()).unwrap();
    let qp = Qpn::new(9 << 17 | 5);
    for source in 0..2 {
        for (destination, name) in names.iter().enumerate() {
            let peer = port.peer_at(source, *name).unwrap().unwrap();
            assert_eq!(port.nearest(peer, qp) == link, source == destination, "{source} to {destination}");
        }
    }
    // Neighbours may send from each of the addresses.
    send(&mut port, link, names[1], 6);
    assert_eq!(receive(&mut port), (6, false, true));
}

#[test]
fn a_port_has_so_many_addresses_and_no_more() {
    let mut port = open(None);
    let open_port = |text: &str| UdpPort::open(text.parse().unwrap(), &Options::default()).unwrap();
    for number in 1..LinkedPort::MAX_ADDRESSES {
        assert_eq!(port.add_address(open_port(&format!("127.0.1.{number}:0"))).unwrap(), number);
    }
    assert!(port.add_address(open_port("127.0.2.1:0")).is_err());
    let last = LinkedPort::MAX_ADDRESSES - 1;
    let here = port.further_port(last).unwrap().endpoint();
    let there = port.endpoint();
    let peer = port.peer_at(last, there).unwrap().unwrap();
    send(&mut port, peer, here, 9);
    assert_eq!(receive(&mut port), (9, true, false));
}
