//! Guests: programs of users that the broker admits in addition to its own user.

use remora_broker::client::{self, CmClient, Range};
use remora_broker::{Broker, Options};
use remora_host::packet::PacketSocket;
use remora_netns::Process;
use remora_port::Port as _;
use remora_port::udp::{Options as UdpOptions, UdpPort};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;

use crate::program::Program;
use crate::{LONG, at, never, report, until};

/// User ids that no other process has.
const ONE: &str = "61001";
const OTHER: &str = "61002";
/// Environment variable with a guest's address, which makes `a_guest` act.
const ADDRESS: &str = "REMORA_TEST_GUEST";

/// A malicious guest.
struct Guest(Process);

impl Guest {
    fn start(uid: &str, address: &str) -> Guest {
        let own = crate::own::test(module_path!(), "a_guest");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]).arg(own.get_program());
        Guest(Process::start_piped(command.args(own.get_args()).env(ADDRESS, address)))
    }

    /// Sends the guest a command, and returns the answer.
    #[track_caller]
    fn ask(&mut self, word: &str) -> String {
        self.0.send(word);
        self.0.line_with(&format!("{word}: "))
    }
}

/// The entry point of a guest.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn a_guest() {
    let address = std::env::var(ADDRESS).expect("set by the test that starts this process");
    let address = at(&address);
    let mut kept = Vec::new();
    let mut ranges = Vec::new();
    let mut ids = Vec::new();
    let mut silent = Vec::new();
    for line in std::io::stdin().lines() {
        let word = line.unwrap();
        let reply = match word.as_str() {
            "steal" => steal(address, &mut kept),
            "look" => look(&kept),
            "speak" => speak(address),
            "ranges" => take_all(address, &mut ranges),
            "ids" => take_all_ids(address, &mut ids),
            "addresses" => take_addresses(address),
            "silent" => {
                let name = format!("remora-broker/{}:4791", address.ip());
                silent.extend((0..300).map(|_| PacketSocket::connect_abstract(&name, LONG).unwrap()));
                silent.len().to_string()
            }
            "end others" => {
                format!("{:?}", client::end_user(address, &never(), 0).map_err(|error| error.to_string()))
            }
            other => panic!("{other}"),
        };
        println!("{word}: {reply}");
    }
}

/// Borrows many ranges, tries to steer by each socket that it got, gives the ranges back and keeps the
/// sockets.
fn steal(address: SocketAddr, kept: &mut Vec<OwnedFd>) -> String {
    let mut attached = 0;
    let mut of_roce = 0;
    for _ in 0..40 {
        let range = client::open(address, &never()).unwrap();
        let [socket, _, _] = range.endpoint().descriptors().unwrap();
        let name: SocketAddr = rustix::net::getsockname(socket).unwrap().try_into().unwrap();
        of_roce += u32::from(name.port() == 4791);
        attached +=
            u32::from(remora_port::udp::Steering::new().attach(&socket).is_ok() && name.port() == 4791);
        kept.extend(
            range.endpoint().descriptors().unwrap().iter().map(|fd| fd.try_clone_to_owned().unwrap()),
        );
    }
    format!("{of_roce} sockets of the address, steered by {attached}")
}

/// The number of kept descriptors that have received a frame.
fn look(kept: &[OwnedFd]) -> String {
    let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
    let read = |fd: &&OwnedFd| rustix::net::recv(fd, &mut [0; 100][..], flags).is_ok_and(|(len, _)| len > 0);
    kept.iter().filter(read).count().to_string()
}

/// Hands the broker a frame of another host for another program. Returns whether the broker keeps the
/// connection.
fn speak(address: SocketAddr) -> String {
    let range = client::open(address, &never()).unwrap();
    let [_, channel, _] = range.endpoint().descriptors().unwrap();
    let mut packet = vec![0; 36 + 60];
    packet[18] = 60;
    packet[36] = 0x0a;
    packet[36 + 5] = 1 << 1;
    rustix::net::send(channel, &packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
    let over = remora_host::wait_readable(range.broker(), Some(LONG)).unwrap() && range.is_over();
    if over { "ended" } else { "goes on" }.to_owned()
}

fn take_all(address: SocketAddr, ranges: &mut Vec<Range>) -> String {
    loop {
        match client::open(address, &never()) {
            Ok(range) => ranges.push(range),
            Err(error) => return format!("{} {error}", ranges.len()),
        }
    }
}

fn take_all_ids(address: SocketAddr, kept: &mut Vec<CmClient>) -> String {
    let cm = CmClient::open(address, &never()).unwrap();
    let mut channels = Vec::new();
    while let Ok(channel) = cm.create_channel() {
        channels.push(channel);
    }
    let mut ids = 0;
    while channels.first().is_some_and(|first| cm.create_id(first, remora_broker::PortSpace::Tcp).is_ok()) {
        ids += 1;
    }
    kept.push(cm);
    let words = format!("{} channels {ids} ids", channels.len());
    std::mem::forget(channels);
    words
}

fn take_addresses(address: SocketAddr) -> String {
    let range = client::open(address, &never()).unwrap();
    range.further(at("127.93.77.1:0")).unwrap_err().to_string()
}

/// Starts a broker of this process's user that admits both users.
fn broker(address: &str, options: Options) -> Broker {
    assert!(rustix::process::geteuid().is_root(), "guests need another user: run this as root");
    Broker::open(at(address), &Options { allow: vec![61_001, 61_002], ..options }).unwrap()
}

/// Sends `count` frames of 60 bytes to a range. Returns the number that its port receives.
fn received(range: &Range, port: &mut UdpPort, count: u8) -> usize {
    let sender = UdpSocket::bind((range.endpoint().local().ip(), 0)).unwrap();
    let mut frames = 0;
    for number in 0..count {
        let mut frame = [number; 60];
        (frame[0], frame[5]) = (0x0a, range.number() << 1);
        sender.send_to(&frame, range.endpoint().local()).unwrap();
        frames += port.receive(64, &mut |_| {});
    }
    let limit = std::time::Instant::now() + LONG;
    while frames < usize::from(count) && std::time::Instant::now() < limit {
        frames += port.receive(64, &mut |_| {});
    }
    frames
}

/// Regression: an admitted guest had a socket of the group, by which it read, stole and kept everybody's
/// frames.
///
/// Regression: a guest handed the broker frames with any host as their source.
#[test]
fn a_guest_gets_no_socket_of_the_address_and_what_it_keeps_shows_nothing_of_others() {
    let address = "127.93.1.1:0";
    let _broker = broker(address, Options::default());
    let mut guest = Guest::start(ONE, address);
    assert_eq!(guest.ask("steal"), "0 sockets of the address, steered by 0");
    until(at(address), |report| report.broker.programs == 0);
    // A program of the broker's user and another guest both receive all of their frames.
    let own = client::open(at(address), &never()).unwrap();
    let mut port = UdpPort::open_shared(own.endpoint(), &UdpOptions::default()).unwrap();
    assert_eq!(received(&own, &mut port, 50), 50);
    assert_eq!(guest.ask("look"), "0");
    assert_eq!(guest.ask("speak"), "ended");
    assert_eq!(received(&own, &mut port, 50), 50);
    assert_eq!(port.udp_counters().strays, 0);
}

#[test]
fn programs_of_two_guests_work_with_links_and_by_relayed_frames_alone() {
    for (address, neighbours) in [("127.93.1.2:0", 64), ("127.93.1.3:0", 0)] {
        let _broker = broker(address, Options { neighbours, ..Options::default() });
        let (mut one, other, own) =
            (Program::of_user(ONE, address), Program::of_user(OTHER, address), Program::start(address));
        for peer in [&other, &own] {
            assert_eq!(one.ask(&format!("connect {}", peer.listens)), "done");
            assert_eq!(one.ask("work 50"), "right");
        }
        assert_eq!((one.ask("unknown")), "0");
        let tally = report(at(address)).broker.tally;
        assert_eq!((tally.strays, tally.forwarded, tally.overflowed), (0, 0, 0), "{tally:?}");
        assert!(tally.relayed > 0, "{tally:?}");
    }
}

/// Regression: one guest took all 16,384 ids, 127 ranges and 256 event channels of a broker.
#[test]
fn a_user_leaves_each_other_user_its_share_of_half_of_the_places() {
    let address = "127.93.1.4:0";
    let _broker = broker(address, Options::default());
    let mut one = Guest::start(ONE, address);
    let reply = one.ask("ranges");
    let words = "85 86 QPN ranges of user 61001, and 42 that other users have or may have, are over the 127";
    assert!(reply.starts_with(words), "{reply}");
    assert_eq!(one.ask("ids"), "172 channels 10924 ids");
    assert_eq!(one.ask("ids"), "0 channels 0 ids", "another connection of the same user has taken them");
}

/// Regression: a guest made the broker of root take 31 further addresses.
#[test]
fn a_guest_adds_no_address_and_ends_nobody_and_the_owner_sees_and_ends_it() {
    let address = "127.93.1.5:0";
    let _broker = broker(address, Options::default());
    let mut one = Guest::start(ONE, address);
    let reply = one.ask("addresses");
    assert!(reply.contains("does not serve 127.93.77.1 to other users"), "{reply}");
    let reply = one.ask("end others");
    assert!(reply.contains("only its own user and root may"), "{reply}");
    one.ask("ranges");
    let facts = report(at(address)).users;
    let of_guest = facts.iter().find(|user| user.uid == 61_001).expect("a user entry of the guest");
    assert_eq!((of_guest.guest, of_guest.ranges), (true, 85));
    let range = report(at(address)).programs[0].range;
    assert_eq!(
        client::end_program(at(address), &never(), range).unwrap(),
        85,
        "all ranges of the process end"
    );
    until(at(address), |report| report.broker.programs == 0);
    let mut other = Guest::start(OTHER, address);
    other.ask("ranges");
    assert_eq!(client::end_user(at(address), &never(), 61_002).unwrap(), 85);
    let mut late = Guest::start(OTHER, address);
    let reply = late.ask("ranges");
    assert!(
        reply.starts_with("0 the broker of this address belongs to user 0 and does not admit"),
        "{reply}"
    );
}

#[test]
fn silent_connections_of_a_guest_lock_nobody_out() {
    let address = "127.93.1.6:0";
    let _broker = broker(address, Options::default());
    let mut one = Guest::start(ONE, address);
    assert_eq!(one.ask("silent"), "300");
    let mut other = Guest::start(OTHER, address);
    assert!(other.ask("ranges").starts_with("85 "));
    assert!(client::open(at(address), &never()).is_ok());
}
