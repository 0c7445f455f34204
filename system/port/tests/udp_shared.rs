//! An address shared by several ports: the kernel steers by QPN range, trains stay within one range, and
//! misdirected frames are handed over. Uses real sockets, IPv4 and IPv6, without privilege.

#![allow(unsafe_code, reason = "a borrower sets options that no library of ours has")]

use remora_port::udp::{
    Handover, Options, RANGES, ReuseportGroup, SharedEndpoint, SteeredBy, UdpPort, endpoint, range_of,
};
use remora_port::{Class, Egress, Endpoint, Peer, Port};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns a frame for this QPN range with an unmistakable content.
fn frame(range: u8, number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    (frame[0], frame[5]) = (0x0a, range << 1 | number & 1);
    frame
}

fn send(port: &mut UdpPort, peer: Peer, bytes: &[u8]) {
    port.lend(peer, Class::default(), bytes.len()).expect("space").bytes.copy_from_slice(bytes);
    port.commit();
}

/// Receives all waiting frames, with their sources.
fn received(port: &mut UdpPort) -> Vec<(Vec<u8>, Endpoint)> {
    let mut frames = Vec::new();
    while port.receive(64, &mut |frame| frames.push((frame.bytes.to_vec(), frame.source))) > 0 {}
    frames
}

/// Returns the shares of these ranges of one address, whose owner is the test.
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
        let sender = UdpSocket::bind((group.local().ip(), 0)).unwrap();
        let mut datagrams: Vec<Vec<u8>> = (0..RANGES as u8).map(|range| frame(range, range, 60)).collect();
        datagrams.extend((0..6).map(|len| vec![0x0a; len + 1]));
        datagrams.extend((0xe0..=0xe7).map(|first| vec![first, 0, 0, 0, 0, 0xff, 0, 0]));
        let mut buffer = [0; 100];
        for datagram in datagrams {
            sender.send_to(&datagram, group.local()).unwrap();
            let places: Vec<usize> = (0..RANGES)
                .filter(|place| {
                    let came = group.sockets()[*place].recv_from(&mut buffer).unwrap();
                    came.is_some_and(|arrival| buffer[..arrival.len] == datagram)
                })
                .collect();
            assert_eq!(places, [usize::from(range_of(&datagram))], "{host} {datagram:?}");
        }
    }
}

#[test]
fn an_address_of_another_group_or_socket_is_refused_and_a_dead_owners_too() {
    let group = ReuseportGroup::bind(at("127.91.0.2:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    let again = |steered| ReuseportGroup::bind(group.local(), steered, &Options::default()).map(|_| ());
    let taken = remora_port::udp::OpenError::Taken(group.local());
    assert_eq!((again(SteeredBy::Kernel), again(SteeredBy::Reader)), (Err(taken), Err(taken)));
    let local = group.local();
    let kept = group.duplicate(3).unwrap();
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
    let mut to_two = Vec::new();
    let mut to_three = Vec::new();
    for number in 0..200u8 {
        // Runs of several frames for one range, and then alternating frames.
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
    // Sealing changes the last four bytes by the frame's position; the frames of the test have no real
    // ICRC.
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
    // The source port is the sender's own; the kernel drops everything that is sent to it.
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
    let sender = UdpSocket::bind("127.91.0.4:0").unwrap();
    let source = endpoint(sender.local_addr().unwrap());
    let here = endpoint(group.local()).address;
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
    // The owner hands over one frame, then a train longer than the budget of a receive.
    assert!(owner_of_six.give(stray.source, here, stray.segment, &buffer[..stray.len]));
    let long: Vec<u8> = (0..100).flat_map(|number| frame(6, number, 60)).collect();
    assert!(owner_of_six.give(source, here, 60, &long));
    let came = received(six);
    assert_eq!(came[0], (frame(6, 2, 80), stray.source));
    assert_eq!(came[1..].iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), long);
    assert!(came[1..].iter().all(|(_, sender)| *sender == source));
    assert_eq!((six.udp_counters().forwarded, six.udp_counters().strays), (101, 0));
    // A program that reads nothing loses frames; the owner is not delayed.
    let given = (0..100).filter(|_| owner_of_six.give(source, here, 60, &long)).count();
    assert!((1..100).contains(&given), "{given} of 100 fit");
    assert_eq!(received(six).len(), given * 100);
    assert!(owner_of_six.give(source, here, 60, &frame(6, 9, 60)));
    assert_eq!(received(six).len(), 1, "the count of handed-over frames is right again");
    // A frame that was sent to another address of the owner is reported with that address.
    let other = endpoint(at("[fd00::7]:0")).address;
    for (destination, says) in
        [(here, None), (other, Some(Endpoint { address: other, ..endpoint(group.local()) }))]
    {
        assert!(owner_of_six.give(source, destination, 60, &frame(6, 9, 60)));
        let mut came = Vec::new();
        six.receive(8, &mut |frame| came.push(frame.destination));
        assert_eq!(came, [says]);
    }
    drop(shares.remove(0).1);
    assert!(received(&mut shares[0].0).is_empty(), "an owner that has ended hands over nothing");
}

#[test]
fn the_page_shows_the_owner_what_the_program_published() {
    let group = ReuseportGroup::bind(at("127.91.0.5:0"), SteeredBy::Reader, &Options::default()).unwrap();
    assert!(group.duplicate(1).unwrap().is_none(), "the only socket is shared by all ranges");
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
    let sender = UdpSocket::bind("127.91.0.9:0").unwrap();
    let mut buffer = [0; 100];
    for range in [0, 7, 127] {
        sender.send_to(&frame(range, 1, 60), group.local()).unwrap();
        assert_eq!(group.sockets()[0].recv_from(&mut buffer).unwrap().map(|arrival| arrival.len), Some(60));
    }
    group.complete().unwrap();
    group.complete().unwrap();
    assert_eq!(group.sockets().len(), RANGES);
    for range in [0, 7, 127] {
        sender.send_to(&frame(range, 1, 60), group.local()).unwrap();
        let came = group.sockets()[usize::from(range)].recv_from(&mut buffer).unwrap();
        assert_eq!(came.map(|arrival| arrival.len), Some(60), "range {range}");
    }
}

/// Sets an option of a socket, as a borrower could.
fn set(socket: &OwnedFd, option: libc::c_int, value: &[u8]) -> Result<(), std::io::Error> {
    // SAFETY: the kernel reads as many bytes as the slice has, and what a filter's header points to.
    let status = unsafe {
        let fd = socket.as_raw_fd();
        let len = value.len() as libc::socklen_t;
        libc::setsockopt(fd, libc::SOL_SOCKET, option, value.as_ptr().cast(), len)
    };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Sends a datagram to each of these ranges, and returns the ranges whose own socket received it.
fn served(group: &ReuseportGroup, ranges: &[u8]) -> Vec<u8> {
    let sender = UdpSocket::bind((group.local().ip(), 0)).unwrap();
    let mut buffer = [0; 100];
    let mut is_served = |range: &u8| {
        sender.send_to(&frame(*range, 1, 60), group.local()).unwrap();
        let came = group.sockets().iter().map(|socket| socket.recv_from(&mut buffer).unwrap().is_some());
        came.enumerate().filter(|(_, came)| *came).map(|(place, _)| place).eq([usize::from(*range)])
    };
    ranges.iter().copied().filter(|range| is_served(range)).collect()
}

/// Regression: a borrower attached filters to the socket that it was lent, and steering that it detached
/// never came back.
#[test]
fn a_borrower_neither_filters_nor_steers_by_its_socket_and_steering_that_it_detaches_comes_back() {
    let group = ReuseportGroup::bind(at("127.91.0.10:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    let lent = group.duplicate(3).unwrap().expect("a socket");
    // This program steers everything to socket 3.
    let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 3 }];
    let header = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: its bytes are plain memory, and `program` lives as long as `header`.
    let header = unsafe {
        std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<libc::sock_fprog>())
    };
    for option in [libc::SO_ATTACH_REUSEPORT_CBPF, libc::SO_ATTACH_FILTER] {
        let refused = set(&lent, option, header).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "option {option}");
    }
    set(&lent, libc::SO_DETACH_REUSEPORT_BPF, &[0; 4]).unwrap();
    let ranges: Vec<u8> = (0..RANGES as u8).collect();
    assert!(served(&group, &ranges).len() < RANGES, "the kernel steers by the flow alone");
    group.steer();
    assert_eq!(served(&group, &ranges), ranges);
}

/// Regression: filters, locks, receive buffers and connections of an earlier borrower stayed in the
/// socket of a range.
#[test]
fn a_socket_that_is_given_back_is_replaced_and_no_setting_of_its_borrower_outlives_the_loan() {
    for address in ["127.91.0.11:0", "[::1]:0"] {
        let mut group = ReuseportGroup::bind(at(address), SteeredBy::Kernel, &Options::default()).unwrap();
        let buffer = group.sockets()[5].receive_buffer();
        for range in [5, 127, 5, 64] {
            let lent = group.duplicate(range).unwrap().expect("a socket");
            rustix::net::sockopt::set_socket_recv_buffer_size(&lent, 4096).unwrap();
            set(&lent, libc::SO_DETACH_REUSEPORT_BPF, &[0; 4]).unwrap();
            rustix::net::connect(
                &lent,
                &at(if address.starts_with('[') { "[::1]:9" } else { "127.0.0.1:9" }),
            )
            .unwrap();
            rustix::net::shutdown(&lent, rustix::net::Shutdown::Read).unwrap();
            group.steer();
            let others: Vec<u8> = (0..RANGES as u8).filter(|other| *other != range).collect();
            assert_eq!(served(&group, &others), others, "while a socket is lent");
            drop(lent);
            assert!(group.renew(range), "the old socket is unused");
            assert_eq!(group.sockets()[usize::from(range)].receive_buffer(), buffer);
        }
        let ranges: Vec<u8> = (0..RANGES as u8).collect();
        assert_eq!(served(&group, &ranges), ranges);
    }
}

/// Regression: a forked child kept the socket of a range open for the next borrower.
#[test]
fn a_range_whose_socket_a_process_keeps_is_not_lent_until_it_is_closed_and_no_other_range_is_moved() {
    let mut group =
        ReuseportGroup::bind(at("127.91.0.12:0"), SteeredBy::Kernel, &Options::default()).unwrap();
    let kept = group.duplicate(9).unwrap().expect("a socket");
    assert!(!group.renew(9) && !group.is_fit(9) && group.is_fit(10));
    let others: Vec<u8> = (0..RANGES as u8).filter(|range| *range != 9).collect();
    assert_eq!(served(&group, &others), others);
    // Other ranges are renewed meanwhile.
    assert!(group.renew(127) && group.renew(10));
    assert_eq!(served(&group, &others), others);
    drop(kept);
    assert!(group.is_fit(9));
    let ranges: Vec<u8> = (0..RANGES as u8).collect();
    assert_eq!(served(&group, &ranges), ranges);
    // Two sockets that are closed at once cannot be told apart: their ranges are never lent again, and no
    // other range is affected.
    let both = [20, 30].map(|range| group.duplicate(range).unwrap().expect("a socket"));
    assert!(!group.renew(20) && !group.renew(30));
    drop(both);
    assert!(!group.is_fit(20) && !group.is_fit(30) && group.renew(127));
    let others: Vec<u8> = ranges.into_iter().filter(|range| ![20, 30].contains(range)).collect();
    assert_eq!(served(&group, &others), others);
}

#[test]
fn a_relayed_share_takes_nothing_from_its_own_socket_and_all_that_the_owner_hands_over() {
    let (share, handover) = SharedEndpoint::relay(at("127.91.0.13:4791"), 3).unwrap();
    let mut port = UdpPort::open_shared(&share, &Options::default()).unwrap();
    let own = port.socket().local();
    let name = rustix::net::getsockname(share.descriptors().unwrap()[0]).unwrap();
    let unused = SocketAddr::try_from(name).unwrap();
    assert!(unused.port() != 4791 && own.port() == 4791);
    let sender = UdpSocket::bind("127.91.0.13:0").unwrap();
    for range in [3, 4] {
        sender.send_to(&frame(range, 1, 60), unused).unwrap();
    }
    let local = remora_port::Address::from(share.local().ip());
    assert!(handover.give(endpoint(sender.local_addr().unwrap()), local, 60, &frame(3, 2, 60)));
    let frames = received(&mut port);
    assert_eq!(frames.iter().map(|(bytes, _)| bytes[1]).collect::<Vec<_>>(), [2]);
    assert!(matches!(handover.take(&mut vec![0; 65_535]), Ok(None)), "nothing strayed");
}
