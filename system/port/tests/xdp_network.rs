//! XDP ports on veth pairs between two network namespaces: frames pass whole, and all other traffic
//! bypasses the port.
#![allow(unsafe_code, reason = "namespaces are system calls")]

mod network;

use network::{Host, ip, run, veth_pair};
use remora_port::xdp::{Attachment, Mode, OpenError, Options, XdpPort};
use remora_port::{Egress, Peer, Port};
use remora_wire::frame::{Class, Endpoint, Route, Start, dissect};
use remora_wire::icrc;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Length of the headers before the BTH.
const V4: usize = 14 + 20 + 8;
const PATIENCE: Duration = Duration::from_secs(10);

/// Two namespaces, a port on each end of the pair between them, and each port's number of the other.
struct Pair {
    ports: [XdpPort; 2],
    peers: [Peer; 2],
    spaces: [Host; 2],
}

fn open(name: &str, address: &str, options: &Options) -> XdpPort {
    let address: IpAddr = address.parse().unwrap();
    XdpPort::open(name, Some(address), options).unwrap_or_else(|error| panic!("{error}"))
}

impl Pair {
    fn new(addresses: [&str; 2], options: &Options) -> Pair {
        Pair::over(veth_pair(1500, ""), addresses, options)
    }

    fn over(spaces: [Host; 2], addresses: [&str; 2], options: &Options) -> Pair {
        spaces[1].enter();
        let mut two = open("far0", addresses[1], options);
        spaces[0].enter();
        let mut one = open("near0", addresses[0], options);
        let peers = [peer(&mut one, two.endpoint()), peer(&mut two, one.endpoint())];
        Pair { ports: [one, two], peers, spaces }
    }

    fn route(&self, sender: usize) -> Route {
        Route::new(self.ports[sender].endpoint(), self.ports[1 - sender].endpoint())
    }

    /// Commits a frame with these bytes from the BTH on. Returns false if no buffer is free.
    fn commit(&mut self, sender: usize, transport: &[u8]) -> bool {
        let route = self.route(sender);
        let peer = self.peers[sender];
        send(&mut self.ports[sender], peer, &route, transport)
    }
}

fn peer(port: &mut XdpPort, peer: Endpoint) -> Peer {
    port.resolver().wait(peer, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    port.peer(peer).unwrap()
}

fn send(port: &mut XdpPort, peer: Peer, route: &Route, transport: &[u8]) -> bool {
    let headers = Start::Ethernet.overhead(route.source.address.is_ipv4());
    let Some(lease) = port.lend(peer, Class::default(), headers + transport.len()) else { return false };
    route.emit(Start::Ethernet, lease.ip_id, transport.len() as u16, lease.bytes);
    lease.bytes[headers..].copy_from_slice(transport);
    port.commit();
    true
}

/// Receives until `count` frames have come; fails after a while.
fn take(port: &mut XdpPort, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let started = Instant::now();
    while frames.len() < count {
        port.receive(32, &mut |frame| {
            assert_eq!(frame.start, Start::Ethernet);
            frames.push(frame.bytes.to_vec());
        });
        assert!(
            started.elapsed() < PATIENCE,
            "{} of {count} frames came: {:?}",
            frames.len(),
            port.counters()
        );
    }
    frames
}

const HOSTS: [[&str; 2]; 2] = [["10.90.0.1", "10.90.0.2"], ["fd90::1", "fd90::2"]];

#[test]
fn whole_frames_pass_in_order_over_both_families_and_modes() {
    remora_netns::require!(network::possible());
    for (hosts, mode) in [
        (HOSTS[0], Mode::Native),
        (HOSTS[1], Mode::Native),
        (HOSTS[0], Mode::Generic),
        (HOSTS[1], Mode::Generic),
    ] {
        let mut pair = Pair::new(hosts, &Options { mode: Some(mode), ..Options::default() });
        let longest = pair.ports[0].max_transport_bytes();
        assert_eq!(longest, 1500 - if hosts[0].contains(':') { 48 } else { 28 });
        let mut random = remora_fault::Random::new(5);
        let mut due: [VecDeque<Vec<u8>>; 2] = Default::default();
        for step in 0..20_000u32 {
            let side = random.below(2) as usize;
            if random.below(3) > 0 {
                let len = 16 + random.below(longest as u64 - 15) as usize;
                let mut transport = vec![step as u8; len];
                transport[..4].copy_from_slice(&step.to_be_bytes());
                if pair.commit(side, &transport) {
                    due[1 - side].push_back(transport);
                }
            } else {
                pair.ports[side].flush();
                let budget = 1 + random.below(40) as usize;
                pair.ports[1 - side].receive(budget, &mut |frame| {
                    let expected = due[1 - side].pop_front().expect("no frame that was not sent");
                    assert_eq!(frame.bytes[frame.bytes.len() - expected.len()..], expected);
                });
            }
        }
        for side in [0, 1] {
            pair.ports[1 - side].flush();
            let rest = due[side].len();
            for frame in take(&mut pair.ports[side], rest) {
                assert!(frame.ends_with(&due[side].pop_front().unwrap()));
            }
        }
        let counters = pair.ports.each_ref().map(|port| port.counters());
        assert_eq!(counters[0].frames_sent, counters[1].frames_received);
        assert_eq!(counters[0].bytes_sent, counters[1].bytes_received);
        assert_eq!(counters[1].frames_sent, counters[0].frames_received);
        assert!(counters.iter().all(|c| c.malformed + c.send_dropped + c.os_errors == 0), "{counters:?}");
        assert!(pair.ports.iter().all(|port| port.kernel_drops() == 0 && !port.is_zero_copy()));
    }
}

#[test]
fn the_bytes_on_the_wire_are_the_nics_but_for_the_mac_addresses() {
    remora_netns::require!(network::possible());
    let mut pair = Pair::new(HOSTS[0], &Options::default());
    let macs = pair.ports.each_ref().map(|port| port.attachment().interface().mac);
    let mut transport = [0u8; 32];
    for (index, byte) in transport.iter_mut().enumerate() {
        *byte = index as u8;
    }
    assert!(pair.commit(0, &transport));
    pair.ports[0].flush();
    let frame = take(&mut pair.ports[1], 1).remove(0);
    assert_eq!(frame.len(), V4 + 32, "a frame without an Ethernet wire needs no padding");
    assert_eq!((&frame[..6], &frame[6..12]), (&macs[1][..], &macs[0][..]));
    let head = [
        0x08, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0x25, 0xfb, 10, 90, 0, 1, 10, 90, 0, 2, //
        0x12, 0xb7, 0x12, 0xb7, 0, 40, 0, 0,
    ];
    assert_eq!(frame[12..V4], head);
    assert_eq!(frame[V4..], transport);
    assert_eq!(pair.ports[0].ethernet_addresses(pair.peers[0]), Some((macs[0], macs[1])));
}

#[test]
fn everything_that_is_not_ours_reaches_the_kernel() {
    remora_netns::require!(network::possible());
    let pair = Pair::new(HOSTS[0], &Options::default());
    let [near, far] = &pair.spaces;
    far.enter();
    let listeners = ["10.90.0.2:7000", "[fd90::2]:7000"].map(|address| TcpListener::bind(address).unwrap());
    let other = UdpSocket::bind("10.90.0.2:4792").unwrap();
    near.enter();
    // In addition to TCP over both families: ARP and neighbour discovery must work, or no connection would
    // be made.
    for listener in &listeners {
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..100_000).map(|i| ((i * 7) >> 3) as u8).collect();
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || stream.write_all(&sent).unwrap()
        });
        let mut came = Vec::new();
        accepted.read_to_end(&mut came).unwrap();
        writer.join().unwrap();
        assert!(came == sent, "TCP goes through the interface as ever");
    }
    let socket = UdpSocket::bind("10.90.0.1:5000").unwrap();
    socket.send_to(b"other port", "10.90.0.2:4792").unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 64];
    assert_eq!(other.recv(&mut buffer).unwrap(), 10);
    for mut port in pair.ports {
        assert_eq!(port.receive(9, &mut |_| ()), 0);
    }
}

#[test]
fn the_kernel_hears_us_and_we_hear_the_kernel() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let far = &spaces[1];
    for [own, kernel] in HOSTS {
        far.enter();
        let socket = remora_port::udp::UdpPort::open(
            (kernel.parse::<IpAddr>().unwrap(), 4791).into(),
            &Default::default(),
        );
        let mut udp = socket.unwrap();
        spaces[0].enter();
        let mut xdp = open("near0", own, &Options::default());
        let route = Route::new(xdp.endpoint(), udp.endpoint());
        let to_udp = peer(&mut xdp, udp.endpoint());
        let to_xdp = udp.peer(xdp.endpoint()).unwrap();
        // The kernel checks the IP header's checksum and lengths before a socket sees anything.
        for number in 0..100u8 {
            assert!(send(&mut xdp, to_udp, &route, &[number; 64]));
            xdp.flush();
            let mut came = 0;
            let started = Instant::now();
            while came == 0 {
                came = udp.receive(9, &mut |frame| {
                    assert_eq!((frame.bytes, frame.source), (&[number; 64][..], route.source))
                });
                assert!(started.elapsed() < PATIENCE);
            }
        }
        // Trains arrive cut, and frame k of a train has identification k. All frames are for one QPN range.
        let expected = |number: u8| {
            let mut frame = [number; 64];
            frame[5] = 0;
            frame
        };
        for number in 0..40u8 {
            udp.lend(to_xdp, Class::default(), 64).unwrap().bytes.copy_from_slice(&expected(number));
            udp.commit();
        }
        udp.flush();
        for (number, frame) in take(&mut xdp, 40).iter().enumerate() {
            let headers = frame.len() - 64;
            assert_eq!(frame[headers..], expected(number as u8));
            if own.contains('.') {
                assert_eq!(frame[18..20], (number as u16).to_be_bytes());
            }
        }
    }
}

#[test]
fn what_one_bit_changes_is_seen_by_the_icrc_whatever_the_identification() {
    remora_netns::require!(network::possible());
    let mut pair = Pair::new(HOSTS[0], &Options::default());
    let packet = remora_wire::Packet {
        bth: remora_wire::bth::Repr::new(
            remora_wire::Opcode::RC_SEND_ONLY,
            remora_wire::Qpn::new(7),
            remora_wire::Psn::new(9),
        ),
        ext: Default::default(),
        payload: &[0x5a; 64],
    };
    let mut transport = vec![0; packet.buffer_len()];
    let covered = packet.emit(&mut transport);
    let flow = icrc::Flow::new(pair.ports[0].endpoint(), pair.ports[1].endpoint());
    let sealed = flow.seal(0, &transport[..covered]);
    icrc::write(&mut transport, sealed);
    assert!(pair.commit(0, &transport));
    pair.ports[0].flush();
    let frame = take(&mut pair.ports[1], 1).remove(0);
    let intact = |frame: &[u8]| {
        let Ok(dissected) = dissect(Start::Ethernet, frame) else { return false };
        let (ip, udp) = dissected.network.unwrap();
        let transport = &frame[V4..frame.len() - icrc::LEN];
        icrc::Flow::of(&ip, &udp).accepts(ip.ip_id(), transport, dissected.icrc)
    };
    assert!(intact(&frame));
    // Identification, addresses, ports, BTH and payload; byte 4 of the BTH is free by the specification.
    for index in (18..20).chain(26..38).chain(V4..frame.len()).filter(|index| *index != V4 + 4) {
        let mut broken = frame.clone();
        broken[index] ^= 0x10;
        // The header's own checksum is corrected, as a switch would do.
        broken[24..26].fill(0);
        let sum: u32 = broken[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        broken[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        assert!(!intact(&broken), "byte {index}");
    }
}

#[test]
fn a_port_reaches_itself() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let mut port = open("near0", "10.90.0.1", &Options { send_frames: 64, ..Options::default() });
    let route = Route::new(port.endpoint(), port.endpoint());
    let endpoint = port.endpoint();
    let own = peer(&mut port, endpoint);
    // Sends more than the port can hold: the rest must wait until some frames were taken.
    for round in 0..5u8 {
        let mut sent = 0;
        while send(&mut port, own, &route, &[round; 40]) {
            sent += 1;
        }
        assert_eq!((sent, port.counters().no_room), (64, u64::from(round) + 1));
        assert!(port.arm(), "the kernel cannot see them");
        port.disarm();
        for frame in take(&mut port, 64) {
            assert_eq!(frame[V4..], [round; 40]);
        }
        assert!(!port.arm());
    }
    drop(spaces);
}

#[test]
fn what_nobody_takes_is_dropped_by_the_kernel_and_told_and_the_port_goes_on() {
    remora_netns::require!(network::possible());
    let options = Options { receive_frames: 64, send_frames: 128, ..Options::default() };
    let mut pair = Pair::new(HOSTS[0], &options);
    for number in 0..200u32 {
        while !pair.commit(0, &number.to_be_bytes().repeat(8)) {
            pair.ports[0].flush();
        }
        pair.ports[0].flush();
    }
    let kept = take(&mut pair.ports[1], 64);
    for (number, frame) in kept.iter().enumerate() {
        assert_eq!(frame[V4..V4 + 4], (number as u32).to_be_bytes());
    }
    assert_eq!(pair.ports[1].receive(9, &mut |_| ()), 0);
    assert_eq!((pair.ports[1].kernel_drops(), pair.ports[0].counters().frames_sent), (136, 200));
    assert!(pair.commit(0, &[7; 32]));
    pair.ports[0].flush();
    assert_eq!(take(&mut pair.ports[1], 1)[0][V4..], [7; 32]);
}

#[test]
fn frames_that_can_never_leave_are_dropped_and_counted_and_hold_nothing_up() {
    remora_netns::require!(network::possible());
    let mut pair = Pair::new(HOSTS[0], &Options::default());
    let route = pair.route(0);
    let longest = pair.ports[0].max_transport_bytes();
    let peer = pair.peers[0];
    let one = &mut pair.ports[0];
    assert!(send(one, peer, &route, &[1; 32]));
    assert!(send(one, Peer(77), &route, &[2; 32]));
    assert!(send(one, peer, &route, &vec![3; longest + 1]));
    // A frame shorter than an Ethernet header, and an empty one.
    for len in [13, 0] {
        one.lend(peer, Class::default(), len).expect("a buffer for a frame that is dropped").bytes.fill(4);
        one.commit();
    }
    assert!(send(one, peer, &route, &vec![5; longest]));
    one.commit();
    one.flush();
    let counters = (one.counters(), one.xdp_counters());
    assert_eq!((counters.0.frames_sent, counters.0.send_dropped), (2, 4));
    assert_eq!((counters.1.unknown_peer, counters.1.too_long), (1, 3));
    let frames = take(&mut pair.ports[1], 2);
    assert_eq!((frames[0].len(), frames[1].len()), (V4 + 32, V4 + longest));
}

#[test]
fn an_interface_that_goes_down_loses_frames_and_carries_them_again_when_it_is_up() {
    remora_netns::require!(network::possible());
    let mut pair = Pair::new(HOSTS[0], &Options { send_frames: 64, ..Options::default() });
    ip("link set near0 down");
    let mut accepted = 0;
    for number in 0..1000u32 {
        accepted += u32::from(pair.commit(0, &number.to_be_bytes().repeat(8)));
        pair.ports[0].flush();
    }
    assert_eq!(accepted, 1000, "a network that is down accepts and drops all frames");
    assert!(pair.ports[0].xdp_counters().down > 0 && pair.ports[0].counters().send_dropped > 0);
    ip("link set near0 up");
    let started = Instant::now();
    let mut came = false;
    while !came {
        assert!(pair.commit(0, &[9; 32]));
        pair.ports[0].flush();
        pair.ports[1].receive(64, &mut |frame| came |= frame.bytes[V4..] == [9; 32]);
        assert!(started.elapsed() < PATIENCE);
    }
}

#[test]
fn jumbo_interfaces_carry_frames_as_long_as_a_chunk() {
    remora_netns::require!(network::possible());
    let mut pair = Pair::over(veth_pair(3000, ""), HOSTS[0], &Options::default());
    assert_eq!(pair.ports[0].max_transport_bytes(), 3000 - 28);
    let longest = vec![6; 3000 - 28];
    assert!(pair.commit(0, &longest));
    pair.ports[0].flush();
    assert_eq!(take(&mut pair.ports[1], 1)[0][V4..], longest);
    drop(pair);
    let mut pair = Pair::over(veth_pair(9000, ""), HOSTS[0], &Options::default());
    let longest = vec![7; 4096 - 256 - V4];
    assert_eq!(pair.ports[0].max_transport_bytes(), longest.len(), "space for a path MTU of 2048");
    assert!(pair.commit(0, &longest));
    pair.ports[0].flush();
    assert_eq!(take(&mut pair.ports[1], 1)[0][V4..], longest);
}

#[test]
fn all_receive_queues_are_served_and_a_sleeper_can_wait_for_each() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "numrxqueues 4 numtxqueues 4");
    let mut attachment = Attachment::open("near0", None, &Options::default()).unwrap();
    assert_eq!(attachment.queues().len(), 4);
    spaces[1].enter();
    // The kernel spreads flows over queues.
    let flows: Vec<UdpSocket> = (0..64).map(|_| UdpSocket::bind("10.90.0.2:0").unwrap()).collect();
    let mut count = |socket: &UdpSocket| {
        socket.send_to(&[1; 32], "10.90.0.1:4791").unwrap();
        let mut came = None;
        let started = Instant::now();
        while came.is_none() {
            let mut queues = attachment.queues().iter_mut();
            came = queues.find_map(|queue| (queue.receive(1, &mut |_| ()).0 == 1).then_some(queue.number()));
            assert!(started.elapsed() < PATIENCE);
        }
        came.unwrap() as usize
    };
    let mut by_queue = [0; 4];
    for socket in &flows {
        by_queue[count(socket)] += 1;
    }
    assert!(by_queue.iter().filter(|count| **count > 0).count() > 1, "{by_queue:?}");
    drop(attachment);
    spaces[0].enter();
    let mut port = open("near0", "10.90.0.1", &Options::default());
    let mut fds = Vec::new();
    port.poll_fds(&mut fds);
    assert_eq!(fds.len(), 4);
    for socket in &flows {
        assert!(!port.arm());
        socket.send_to(&[2; 32], "10.90.0.1:4791").unwrap();
        let mut polled: Vec<libc::pollfd> =
            fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array lives through the call, which gets its length.
        let readable = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, 10_000) };
        assert_eq!(readable, 1);
        assert!(port.arm(), "work waits");
        port.disarm();
        assert_eq!(take(&mut port, 1)[0].len(), V4 + 32);
    }
}

/// Regression: a NIC that was opened again at once was refused, because the kernel takes a queue back
/// from a closed AF_XDP socket late: after more than three seconds on a busy machine.
#[test]
fn a_nic_that_is_opened_again_at_once_finds_everything_free() {
    remora_netns::require!(network::possible());
    let _spaces = veth_pair(1500, "");
    for _ in 0..30 {
        drop(open("near0", "10.90.0.1", &Options::default()));
        assert!(!run("ip", "-json link show near0").contains("\"xdp\""));
    }
    let first = open("near0", "10.90.0.1", &Options::default());
    let second =
        |udp_port| XdpPort::open("near0", None, &Options { udp_port, ..Options::default() }).unwrap_err();
    assert_eq!(second(4791), OpenError::PortTaken("10.90.0.1".parse().unwrap(), 4791));
    assert_eq!(second(4800), OpenError::QueueTaken { interface: "near0".to_owned(), queue: 0 });
    let udp = remora_port::udp::UdpPort::open("10.90.0.1:4791".parse().unwrap(), &Default::default());
    assert!(
        matches!(udp, Err(remora_port::udp::OpenError::Taken(_))),
        "nor can a plain socket take its flow away"
    );
    drop(first);
}
