//! One address that several ports share: the kernel steers by QPN range, trains stay within one range, and
//! what strays is handed over. Real sockets, IPv4 and IPv6, without privilege.

use remora_port::udp::{
    Handover, Options, RANGES, ReuseportGroup, SharedEndpoint, SteeredBy, UdpPort, endpoint, range_of,
};
use remora_port::{Class, Egress, Endpoint, Peer, Port};
use std::net::{SocketAddr, UdpSocket};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A frame for this QPN range that nobody else would send.
fn frame(range: u8, number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    (frame[0], frame[5]) = (0x0a, range << 1 | number & 1);
    frame
}

fn send(port: &mut UdpPort, peer: Peer, bytes: &[u8]) {
    port.lend(peer, Class::default(), bytes.len()).expect("space").bytes.copy_from_slice(bytes);
    port.commit();
}

/// Everything that has come, with where from.
fn received(port: &mut UdpPort) -> Vec<(Vec<u8>, Endpoint)> {
    let mut frames = Vec::new();
    while port.receive(64, &mut |frame| frames.push((frame.bytes.to_vec(), frame.source))) > 0 {}
    frames
}

/// The shares of these ranges of one address, whose owner the test is.
fn shares(group: &ReuseportGroup, ranges: &[u8]) -> Vec<(UdpPort, Handover)> {
    let share = |range: &u8| {
        let socket = group.duplicate(*range).unwrap().expect("a socket of its own");
        let (share, handover) = SharedEndpoint::share(group.local(), *range, socket).unwrap();
        (UdpPort::open_shared(&share, &Options::default()).unwrap(), handover)
    };
    ranges.iter().map(share).collect()
}

#[test]
fn the_kernel_brings_each_datagram_to_the_socket_of_its_range() {
    for host in ["127.91.0.1:0", "[::1]:0"] {
        let group = ReuseportGroup::bind(at(host), SteeredBy::Kernel, &Options::default()).unwrap();
        assert_eq!((group.steered(), group.sockets().len()), (SteeredBy::Kernel, RANGES));
        let from = UdpSocket::bind((group.local().ip(), 0)).unwrap();
        let mut datagrams: Vec<Vec<u8>> = (0..RANGES as u8).map(|range| frame(range, range, 60)).collect();
        datagrams.extend((0..6).map(|len| vec![0x0a; len + 1]));
        datagrams.extend((0xe0..=0xe7).map(|first| vec![first, 0, 0, 0, 0, 0xff, 0, 0]));
        let mut buffer = [0; 100];
        for datagram in datagrams {
            from.send_to(&datagram, group.local()).unwrap();
            let found: Vec<usize> = (0..RANGES)
                .filter(|place| {
                    let came = group.sockets()[*place].recv_from(&mut buffer).unwrap();
                    came.is_some_and(|arrival| buffer[..arrival.len] == datagram)
                })
                .collect();
            assert_eq!(found, [usize::from(range_of(&datagram))], "{host} {datagram:?}");
        }
    }
}

#[test]
fn an_address_of_another_group_or_socket_is_refused_and_a_dead_owners_too() {
    let group = ReuseportGroup::bind(at("127.91.0.2:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    let again = |steered| ReuseportGroup::bind(group.local(), steered, &Options::default()).map(|_| ());
    let taken = remora_port::udp::OpenError::Taken(group.local());
    assert_eq!((again(SteeredBy::Kernel), again(SteeredBy::Reader)), (Err(taken), Err(taken)));
    let (local, kept) = (group.local(), group.duplicate(3).unwrap());
    drop(group);
    let orphaned = ReuseportGroup::bind(local, SteeredBy::Kernel, &Options::default()).map(|_| ());
    assert_eq!(orphaned, Err(taken), "a program still has its socket");
    drop(kept);
    ReuseportGroup::bind(local, SteeredBy::Reader, &Options::default()).unwrap();
}

#[test]
fn ports_of_one_address_exchange_trains_that_stay_within_a_range() {
    let group = ReuseportGroup::bind(at("127.91.0.3:4791"), SteeredBy::Kernel, &Options::default()).unwrap();
    let mut shares = shares(&group, &[1, 2, 127]);
    let [(one, _), (two, over_two), (three, over_three)] = &mut shares[..] else { panic!() };
    assert_eq!((one.qpn_range(), one.endpoint()), (Some(1), endpoint(at("127.91.0.3:4791"))));
    let peer = one.peer(two.endpoint()).unwrap();
    let (mut to_two, mut to_three) = (Vec::new(), Vec::new());
    for number in 0..200u8 {
        // Runs of several lengths, and every other frame.
        let (range, due) = if number < 100 && number / 7 % 2 == 0 || number % 2 == 0 {
            (2, &mut to_two)
        } else {
            (127, &mut to_three)
        };
        let bytes = frame(range, number, 200);
        send(one, peer, &bytes);
        due.push(bytes);
        if number % 50 == 49 {
            one.flush();
        }
    }
    one.flush();
    let source = received(two);
    // Sealing changes the last four bytes by the frame's position; the test's frames have no real ICRC.
    let bare = |frames: &[(Vec<u8>, Endpoint)]| -> Vec<Vec<u8>> {
        frames.iter().map(|(bytes, _)| bytes[..196].to_vec()).collect()
    };
    let cut = |frames: &[Vec<u8>]| frames.iter().map(|bytes| bytes[..196].to_vec()).collect::<Vec<_>>();
    assert_eq!(bare(&source), cut(&to_two));
    assert_eq!(bare(&received(three)), cut(&to_three));
    assert!(one.udp_counters().trains_sent > 4);
    for (port, handover) in [(two, over_two), (three, over_three)] {
        assert_eq!((port.udp_counters().strays, port.udp_counters().forwarded), (0, 0));
        assert!(handover.take(&mut [0; 65_535]).unwrap().is_none());
    }
    // The source port is the sender's own, and whatever is sent there is dropped by the kernel.
    let flow = source[0].1;
    assert!(flow.address == one.endpoint().address && flow.udp_port != 4791);
    let stranger = UdpSocket::bind("127.91.0.3:0").unwrap();
    stranger.send_to(&frame(1, 0, 60), ("127.91.0.3", flow.udp_port)).unwrap();
    assert!(received(one).is_empty());
}

#[test]
fn a_frame_of_another_range_goes_to_the_owner_and_the_owners_frames_arrive_with_their_source() {
    let group = ReuseportGroup::bind(at("127.91.0.4:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    let mut shares = shares(&group, &[5, 6]);
    let from = UdpSocket::bind("127.91.0.4:0").unwrap();
    let (source, here) = (endpoint(from.local_addr().unwrap()), endpoint(group.local()).address);
    // A train of two ranges, as a device may join it: the kernel steers it by its first frame.
    let socket = remora_port::udp::Socket::open(at("127.91.0.4:0"), &Options::default()).unwrap();
    let train = [frame(5, 1, 80), frame(6, 2, 80), frame(5, 3, 80)].concat();
    socket.send_train(&train, 80, &socket.destination(group.local())).unwrap();
    let [(five, owner_of_five), (six, owner_of_six)] = &mut shares[..] else { panic!() };
    let came = received(five);
    assert_eq!(
        came.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(),
        [frame(5, 1, 80), frame(5, 3, 80)]
    );
    assert_eq!(five.udp_counters().strays, 1);
    let mut buffer = vec![0; 65_535];
    let stray = owner_of_five.take(&mut buffer).unwrap().expect("the frame of range 6");
    assert_eq!(
        (&buffer[..stray.len], stray.segment, stray.source),
        (&frame(6, 2, 80)[..], 80, socket.endpoint())
    );
    // The owner hands over one frame, then a train longer than a receive's budget.
    assert!(owner_of_six.give(stray.source, here, stray.segment, &buffer[..stray.len]));
    let long: Vec<u8> = (0..100).flat_map(|number| frame(6, number, 60)).collect();
    assert!(owner_of_six.give(source, here, 60, &long));
    let came = received(six);
    assert_eq!(came[0], (frame(6, 2, 80), stray.source));
    assert_eq!(came[1..].iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), long);
    assert!(came[1..].iter().all(|(_, from)| *from == source));
    assert_eq!((six.udp_counters().forwarded, six.udp_counters().strays), (101, 0));
    // A program that takes nothing loses frames; the owner is not held up.
    let given = (0..100).filter(|_| owner_of_six.give(source, here, 60, &long)).count();
    assert!((1..100).contains(&given), "{given} of 100 fit");
    assert_eq!(received(six).len(), given * 100);
    assert!(owner_of_six.give(source, here, 60, &frame(6, 9, 60)));
    assert_eq!(received(six).len(), 1, "the count of what was handed over is right again");
    // What was sent to another address of the owner's says so.
    let other = endpoint(at("[fd00::7]:0")).address;
    for (to, says) in [(here, None), (other, Some(Endpoint { address: other, ..endpoint(group.local()) }))] {
        assert!(owner_of_six.give(source, to, 60, &frame(6, 9, 60)));
        let mut came = Vec::new();
        six.receive(8, &mut |frame| came.push(frame.destination));
        assert_eq!(came, [says]);
    }
    drop(shares.remove(0).1);
    assert!(received(&mut shares[0].0).is_empty(), "an owner that is gone hands over nothing");
}

#[test]
fn the_page_shows_the_owner_what_the_program_published() {
    let group = ReuseportGroup::bind(at("127.91.0.5:0"), SteeredBy::Reader, &Options::default()).unwrap();
    assert!(group.duplicate(1).unwrap().is_none(), "the only socket is nobody's own");
    let socket = UdpSocket::bind("127.91.0.5:0").unwrap();
    let (share, handover) = SharedEndpoint::share(group.local(), 1, socket.into()).unwrap();
    share.page().publish([7, 8, 9]);
    assert_eq!(handover.page().counters(4).collect::<Vec<_>>(), [7, 8, 9, 0]);
    let duplicates = share.descriptors().unwrap().map(|fd| fd.try_clone_to_owned().unwrap());
    let again = SharedEndpoint::from_descriptors(group.local(), 1, duplicates).expect("the same share");
    again.page().publish([1]);
    assert_eq!(handover.page().counters(1).next(), Some(1));
    let [a, b, _] = share.descriptors().unwrap().map(|fd| fd.try_clone_to_owned().unwrap());
    let wrong = b.try_clone().unwrap();
    assert!(SharedEndpoint::from_descriptors(group.local(), 1, [a, b, wrong]).is_none(), "no page");
}

#[test]
fn a_group_that_is_begun_gets_everything_by_its_first_socket_until_it_is_complete() {
    let mut group =
        ReuseportGroup::begin(at("127.91.0.9:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    assert_eq!((group.steered(), group.sockets().len()), (SteeredBy::Kernel, 1));
    let from = UdpSocket::bind("127.91.0.9:0").unwrap();
    let mut buffer = [0; 100];
    for range in [0, 7, 127] {
        from.send_to(&frame(range, 1, 60), group.local()).unwrap();
        assert_eq!(group.sockets()[0].recv_from(&mut buffer).unwrap().map(|arrival| arrival.len), Some(60));
    }
    group.complete().unwrap();
    group.complete().unwrap();
    assert_eq!(group.sockets().len(), RANGES);
    for range in [0, 7, 127] {
        from.send_to(&frame(range, 1, 60), group.local()).unwrap();
        let came = group.sockets()[usize::from(range)].recv_from(&mut buffer).unwrap();
        assert_eq!(came.map(|arrival| arrival.len), Some(60), "range {range}");
    }
}
