//! UDP ports over loopback, IPv4 and IPv6, with real sockets and without privilege.

use remora_port::address::Unfit;
use remora_port::udp::{OpenError, Options, UdpPort};
use remora_port::{Class, Egress, Endpoint, Peer, Port, Start};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

const HOSTS: [&str; 2] = ["127.0.0.1", "::1"];

fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}

fn open(host: &str, options: &Options) -> UdpPort {
    UdpPort::open(at(host, 0), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns two ports that know each other, each with the other's number.
fn pair(host: &str, options: &Options) -> [(UdpPort, Peer); 2] {
    let mut one = open(host, options);
    let mut two = open(host, options);
    let to_two = one.peer(two.endpoint()).unwrap();
    let to_one = two.peer(one.endpoint()).unwrap();
    [(one, to_two), (two, to_one)]
}

/// Returns a frame with an unmistakable content, which depends on `number`.
fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (number.wrapping_mul(2_654_435_761) >> 8) as u8 ^ index as u8).collect()
}

fn send(port: &mut UdpPort, peer: Peer, bytes: &[u8]) -> u16 {
    let lease = port.lend(peer, Class::default(), bytes.len()).expect("space");
    lease.bytes.copy_from_slice(bytes);
    let ip_id = lease.ip_id;
    port.commit();
    ip_id
}

/// Receives all waiting frames, at most `budget` per call, which must come from `source`.
fn received(port: &mut UdpPort, budget: usize, source: Endpoint) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let count = port.receive(budget, &mut |frame| {
            assert_eq!((frame.start, frame.source), (Start::Bth, source));
            frames.push(frame.bytes.to_vec());
        });
        assert!(count <= budget);
        if count == 0 {
            return frames;
        }
    }
}

#[test]
fn trains_of_every_count_arrive_as_sent() {
    for host in HOSTS {
        for trains in [true, false] {
            let options = Options { trains, ..Options::default() };
            let [(mut one, to_two), (mut two, _)] = pair(host, &options);
            for count in 1..=70 {
                let len = 16 + count as usize * 61 % 1500;
                let frames: Vec<_> = (0..count).map(|number| frame(number, len)).collect();
                for (place, bytes) in frames.iter().enumerate() {
                    let ip_id = send(&mut one, to_two, bytes);
                    let train = (65_507 / len).min(64);
                    let expected = if trains && host == HOSTS[0] { place % train } else { 0 };
                    assert_eq!(usize::from(ip_id), expected, "{host} {count} x {len}, frame {place}");
                }
                one.flush();
                assert_eq!(received(&mut two, 1 + count as usize % 40, one.endpoint()), frames);
            }
            let sent = one.udp_counters().trains_sent;
            assert_eq!(sent > 0, trains, "{sent} trains sent");
            assert_eq!(two.udp_counters().trains_received > 0, trains);
            assert_eq!(one.counters().frames_sent, two.counters().frames_received);
            assert_eq!(one.counters().bytes_sent, two.counters().bytes_received);
        }
    }
}

#[test]
fn random_traffic_between_three_ports_arrives_in_order_and_whole() {
    let mut state = 0x5eed_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for host in HOSTS {
        let mut ports: Vec<UdpPort> = (0..3).map(|_| open(host, &Options::default())).collect();
        let names: Vec<Endpoint> = ports.iter().map(Port::endpoint).collect();
        let peers: Vec<Vec<Peer>> = ports
            .iter_mut()
            .map(|port| names.iter().map(|name| port.peer(*name).unwrap()).collect())
            .collect();
        // Frames that each port has still to receive from each other port.
        let mut due = vec![vec![VecDeque::new(); 3]; 3];
        for number in 0..20_000 {
            let sender = random(3) as usize;
            let receiver = random(3) as usize;
            let len =
                if random(4) == 0 { 16 + random(5000) as usize } else { [96, 1052][random(2) as usize] };
            let bytes = frame(number, len);
            send(&mut ports[sender], peers[sender][receiver], &bytes);
            due[receiver][sender].push_back(bytes);
            if number % 64 == 63 {
                ports.iter_mut().for_each(Egress::flush);
                for (index, port) in ports.iter_mut().enumerate() {
                    let budget = 1 + random(50) as usize;
                    while port.receive(budget, &mut |frame| {
                        let sender =
                            names.iter().position(|name| *name == frame.source).expect("a known source");
                        assert_eq!(Some(frame.bytes), due[index][sender].pop_front().as_deref());
                    }) > 0
                    {}
                }
            }
        }
        assert_eq!(due.iter().flatten().flatten().count(), 20_000 % 64, "only unflushed frames are due");
    }
}

#[test]
fn reading_changes_its_call_with_the_load_and_loses_nothing() {
    let [(mut one, to_two), (mut two, _)] = pair(HOSTS[0], &Options::default());
    let mut expected = Vec::new();
    let mut got = Vec::new();
    for round in 0..30 {
        // Enough lone frames to turn joining off, then bursts to turn it on.
        for number in 0..200 {
            let bytes = frame(round * 1000 + number, 40);
            send(&mut one, to_two, &bytes);
            one.flush();
            expected.push(bytes);
            got.extend(received(&mut two, 32, one.endpoint()));
        }
        // The first burst turns joining on; the second is received joined.
        for burst in 0..2 {
            for number in 0..320 {
                let bytes = frame(round * 2000 + 500 + burst * 500 + number, 80);
                send(&mut one, to_two, &bytes);
                expected.push(bytes);
            }
            one.flush();
            got.extend(received(&mut two, 32, one.endpoint()));
        }
    }
    assert_eq!(got, expected);
    assert_eq!(
        two.udp_counters().trains_received,
        30 * 5,
        "the second burst of each round, and no first one"
    );
}

#[test]
fn a_taken_port_and_bad_addresses_are_told_in_one_line() {
    for host in HOSTS {
        let first = open(host, &Options::default());
        let taken = first.socket().local();
        let error = UdpPort::open(taken, &Options::default()).unwrap_err();
        assert_eq!(error, OpenError::Taken(taken));
        let text = error.to_string();
        assert!(text.contains(&format!("UDP port {} on {host} is taken", taken.port())), "{text}");
        assert!(text.contains("choose another port") && !text.contains('\n'), "{text}");
    }
    let wild = at("0.0.0.0", 0);
    let unfit = OpenError::Unfit(Unfit::Unspecified(wild.ip()));
    assert_eq!(UdpPort::open(wild, &Options::default()).unwrap_err(), unfit);
    // TEST-NET-3 (RFC 5737).
    let foreign = at("203.0.113.9", 4791);
    let error = UdpPort::open(foreign, &Options::default()).unwrap_err();
    assert_eq!(error, OpenError::NotLocal { at: foreign, loopback: Some([127, 0, 0, 1].into()) });
    assert!(error.to_string().ends_with("choose one that `ip address` lists, or 127.0.0.1"), "{error}");
}

#[test]
fn a_mapped_address_is_the_ipv4_address() {
    let port = UdpPort::open("[::ffff:127.0.0.1]:0".parse().unwrap(), &Options::default()).unwrap();
    assert_eq!(port.endpoint().address, Ipv4Addr::LOCALHOST.into());
}

#[test]
fn an_address_that_no_nic_can_have_is_refused_with_a_line_that_says_what_to_do() {
    let cases = [
        ("224.0.0.1:0", "multicast"),
        ("[ff02::1]:0", "multicast"),
        ("255.255.255.255:0", "broadcast"),
        // The broadcast address of the loopback interface's own network.
        ("127.255.255.255:0", "broadcast"),
        ("[::ffff:127.255.255.255]:0", "broadcast"),
        ("[::ffff:0.0.0.0]:0", "every address"),
        (
            "[fe80::1]:0",
            "link-local address, which is ambiguous without its interface: choose one as in fe80::1%eth0",
        ),
    ];
    for (address, wanted) in cases {
        let error = UdpPort::open(address.parse().unwrap(), &Options::default()).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains('\n') && error.contains(": choose "), "{error}");
    }
}

#[test]
fn two_nics_share_an_address_on_two_ports() {
    let [(mut one, to_two), (mut two, to_one)] = pair(HOSTS[0], &Options::default());
    assert_eq!(one.endpoint().address, two.endpoint().address);
    send(&mut one, to_two, &[1; 20]);
    send(&mut two, to_one, &[2; 20]);
    one.flush();
    two.flush();
    assert_eq!(received(&mut two, 9, one.endpoint()), [[1; 20]]);
    assert_eq!(received(&mut one, 9, two.endpoint()), [[2; 20]]);
}

#[test]
fn frames_that_can_never_leave_are_dropped_and_counted_and_hold_nothing_up() {
    let [(mut one, to_two), (mut two, _)] = pair(HOSTS[0], &Options::default());
    send(&mut one, to_two, &[1; 32]);
    send(&mut one, Peer(77), &[2; 32]);
    send(&mut one, to_two, &vec![3; 70_000]);
    send(&mut one, to_two, &[4; 32]);
    one.flush();
    assert_eq!(received(&mut two, 9, one.endpoint()), [[1; 32], [4; 32]]);
    assert_eq!((one.udp_counters().unknown_peer, one.udp_counters().too_long), (1, 1));
    assert_eq!((one.counters().send_dropped, one.counters().frames_sent), (2, 2));
}

#[test]
fn the_longest_frame_passes() {
    for host in HOSTS {
        let [(mut one, to_two), (mut two, _)] = pair(host, &Options::default());
        let longest = frame(1, one.max_transport_bytes());
        assert!(longest.len() > 4096, "loopback takes a 4096-byte path MTU: {}", longest.len());
        send(&mut one, to_two, &longest);
        one.flush();
        assert_eq!(received(&mut two, 9, one.endpoint()), [longest]);
    }
}

#[test]
fn a_peer_that_is_gone_breaks_nothing() {
    for host in HOSTS {
        let gone = open(host, &Options::default()).endpoint();
        let [(mut one, to_two), (mut two, _)] = pair(host, &Options::default());
        let to_gone = one.peer(gone).unwrap();
        for number in 0..50 {
            send(&mut one, to_gone, &frame(number, 64));
            send(&mut one, to_gone, &frame(number, 64));
            send(&mut one, to_two, &frame(number, 64));
            one.flush();
            assert!(received(&mut one, 9, gone).is_empty());
            assert_eq!(received(&mut two, 9, one.endpoint()), [frame(number, 64)]);
        }
    }
}

#[test]
fn a_flood_of_empty_datagrams_does_not_hold_the_caller() {
    let mut port = open(HOSTS[0], &Options::default());
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        stranger.send_to(&[], port.socket().local()).unwrap();
    }
    stranger.send_to(&[5; 16], port.socket().local()).unwrap();
    assert_eq!(port.receive(32, &mut |_| ()), 0, "the first call gives up for now");
    assert!(port.counters().malformed < 100);
    let mut calls = 1;
    while port.receive(32, &mut |frame| assert_eq!(frame.bytes, [5; 16])) == 0 {
        calls += 1;
        assert!(calls < 100);
    }
    assert_eq!(port.counters().malformed, 100);
}

#[test]
fn what_the_kernel_drops_is_told() {
    let options = Options { receive_buffer: 4096, ..Options::default() };
    let mut small = open(HOSTS[0], &options);
    let mut sender = open(HOSTS[0], &Options::default());
    let to_small = sender.peer(small.endpoint()).unwrap();
    for number in 0..500 {
        send(&mut sender, to_small, &frame(number, 900 + number as usize % 2 * 4));
    }
    sender.flush();
    let got = received(&mut small, 32, sender.endpoint()).len() as u64;
    let dropped = u64::from(small.socket().kernel_drops().expect("the kernel tells"));
    assert!(dropped > 0 && got > 0, "{got} came, {dropped} dropped");
    assert_eq!(sender.counters().frames_sent, 500);
}

#[test]
fn a_sleeper_is_not_put_to_sleep_over_frames_it_has_not_seen() {
    let [(mut one, to_two), (mut two, _)] = pair(HOSTS[0], &Options::default());
    for number in 0..40 {
        send(&mut one, to_two, &frame(number, 64));
    }
    one.flush();
    let mut fds = Vec::new();
    two.poll_fds(&mut fds);
    assert_eq!(fds.len(), 1);
    // The first calls read single datagrams (and turn joining on); a joined train is read whole and handed
    // on in part.
    assert_eq!(received(&mut two, 32, one.endpoint()).len(), 40);
    for number in 0..40 {
        send(&mut one, to_two, &frame(number, 64));
    }
    one.flush();
    assert_eq!(two.receive(30, &mut |_| ()), 30);
    assert!(two.arm(), "ten frames wait where the kernel cannot see them");
    two.disarm();
    assert_eq!(two.receive(30, &mut |_| ()), 10);
    assert!(!two.arm());
    two.disarm();
}
