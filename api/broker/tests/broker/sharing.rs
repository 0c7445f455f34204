//! Programs that share an address: RC over the network, each program in its own QPN range.

use remora_broker::client::{self, ClientError};
use remora_broker::{Broker, GIDS, Options, PROGRAMS, SteeredBy};
use remora_port::Port;
use remora_port::udp::{Options as PortOptions, Socket, UdpPort};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::UdpSocket;

use crate::program::Program;
use crate::{at, never, report, until};

/// Two programs write and read each other's memory on this address.
#[track_caller]
pub(crate) fn two_programs_work(address: &str, options: &Options) -> remora_broker::Tally {
    let broker = Broker::open(at(address), options).unwrap();
    let mut one = Program::start(address);
    let mut other = Program::start(address);
    assert_eq!((one.range, other.range), (1, 2));
    assert_eq!(one.ask(&format!("connect {}", other.listens)), "done");
    assert_eq!(other.ask(&format!("connect {}", one.listens)), "done");
    one.tell("work 200");
    other.tell("work 200");
    assert_eq!((one.hear("work: "), other.hear("work: ")), ("right".to_owned(), "right".to_owned()));
    assert_eq!((one.ask("unknown"), other.ask("unknown")), ("0".to_owned(), "0".to_owned()));
    let ranges: Vec<u8> = report(at(address)).programs.iter().map(|program| program.range).collect();
    assert_eq!(ranges, [1, 2]);
    one.end();
    other.end();
    let tally = until(at(address), |report| report.broker.programs == 0).broker.tally;
    drop(broker);
    tally
}

#[test]
fn two_programs_of_one_address_write_to_each_other_and_nothing_strays() {
    let tally = two_programs_work("127.92.0.1:0", &Options::default());
    assert_eq!((tally.strays, tally.forwarded, tally.relayed, tally.overflowed), (0, 0, 0, 0), "{tally:?}");
    assert_eq!((tally.lent, tally.taken_back), (2, 2));
}

#[test]
fn where_the_kernel_cannot_steer_the_broker_relays_everything() {
    let options = Options { steered: SteeredBy::Reader, ..Options::default() };
    let tally = two_programs_work("127.92.0.2:0", &options);
    assert!(tally.relayed > 1000 && tally.strays == 0 && tally.forwarded == 0, "{tally:?}");
}

#[test]
fn eight_programs_go_on_while_one_is_killed_and_started_again() {
    let address = "127.92.0.3:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut servers: Vec<Program> = (0..4).map(|_| Program::start(address)).collect();
    let mut workers: Vec<Program> = (0..4).map(|_| Program::start(address)).collect();
    // The first has work for longer than its server lives.
    for ((worker, server), work) in workers.iter_mut().zip(&servers).zip([1_000_000, 400, 400, 400]) {
        assert_eq!(worker.ask(&format!("connect {}", server.listens)), "done");
        assert_eq!(worker.ask("work 5"), "right");
        worker.tell(&format!("work {work}"));
    }
    servers[0].kill();
    assert_eq!(workers[0].hear("work: "), "RetryExceeded");
    // The range is free, and the last to be lent.
    let after = until(at(address), |report| report.broker.programs == 7);
    assert!(after.programs.iter().all(|program| program.range != servers[0].range));
    servers[0] = Program::start(address);
    assert_eq!(servers[0].range, 9);
    let command = format!("connect {}", servers[0].listens);
    assert_eq!(
        (workers[0].ask(&command), workers[0].ask("work 50")),
        ("done".to_owned(), "right".to_owned())
    );
    for worker in &mut workers[1..] {
        assert_eq!(worker.hear("work: "), "right");
    }
    for program in workers.iter_mut().chain(&mut servers) {
        assert_eq!(program.ask("unknown"), "0", "frames for others");
    }
    let tally = report(at(address)).broker.tally;
    assert_eq!((tally.strays, tally.forwarded, tally.lent, tally.taken_back), (0, 0, 9, 1), "{tally:?}");
    assert!(tally.unclaimed > 0, "frames for the killed program are counted: {tally:?}");
}

#[test]
fn the_counters_of_programs_are_summed_and_those_of_the_dead_stay() {
    let address = "127.92.0.4:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut one = Program::start(address);
    let other = Program::start(address);
    one.ask(&format!("connect {}", other.listens));
    assert_eq!(one.ask("work 20"), "right");
    let sum = |name: &str, report: &client::Report| {
        report.counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, value)| *value)
    };
    // The programs publish while they run.
    until(at(address), |report| sum("rx_write_requests", report) == 20);
    let sent = sum("sent_pkts", &report(at(address)));
    one.end();
    other.end();
    let after = until(at(address), |report| report.broker.programs == 0);
    assert_eq!(sum("rx_write_requests", &after), 20);
    assert!(sum("sent_pkts", &after) >= sent);
}

#[test]
fn all_ranges_are_lent_and_one_more_program_is_told_so() {
    let address = at("127.92.0.5:0");
    let _broker = Broker::open(address, &Options::default()).unwrap();
    let mut ranges: Vec<client::Range> =
        (0..PROGRAMS).map(|_| client::open(address, &never()).unwrap()).collect();
    let numbers: Vec<usize> = ranges.iter().map(|range| usize::from(range.number())).collect();
    assert_eq!(numbers, (1..=PROGRAMS).collect::<Vec<_>>());
    let words = client::open(address, &never()).unwrap_err().to_string();
    assert!(words.contains("127 programs have the address") && words.contains("end one"), "{words}");
    // A range that was given back can be lent at once.
    ranges.swap_remove(41);
    until(address, |report| report.broker.programs == 126);
    assert_eq!(client::open(address, &never()).unwrap().number(), 42);
}

/// Regression: a program that gave back its share of one address lost all of its shares.
#[test]
fn a_further_address_is_shared_by_the_same_range_and_has_the_broker_to_be_found() {
    let first = at("127.92.0.6:0");
    let second = at("127.92.0.7:0");
    let _broker = Broker::open(first, &Options::default()).unwrap();
    let _before = client::open(first, &never()).unwrap();
    let range = client::open(first, &never()).unwrap();
    let further = range.further(second).unwrap();
    assert_eq!((further.range(), further.local()), (range.number(), at("127.92.0.7:4791")));
    assert_eq!(report(second).programs, report(first).programs, "the broker is found at both");
    let words = range.further(second).unwrap_err().to_string();
    assert!(words.contains("already"), "{words}");
    let words = range.further(at("192.0.2.9:0")).unwrap_err().to_string();
    assert!(words.contains("not an address of this machine"), "{words}");
    // A program that gives one share back keeps the range, and may get the share anew.
    drop(further);
    until(first, |report| report.broker.tally.lent == 2 && range.further(second).is_ok());
    assert_eq!(report(first).programs.len(), 2);
    // Another broker cannot have the address.
    let words = Broker::open(second, &Options::default()).unwrap_err().to_string();
    assert!(words.contains("a broker has 127.92.0.7 already"), "{words}");
    // Each address takes a socket for each range.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    for number in 0..GIDS {
        let more = range.further(at(&format!("127.92.1.{number}:0"))).map_err(|error| error.to_string());
        assert_eq!(more.is_ok(), number < GIDS - 2, "address {number}: {more:?}");
        assert!(more.err().is_none_or(|words| words.contains("32 addresses")));
    }
}

#[test]
fn where_no_more_descriptors_are_allowed_a_program_is_told_and_the_broker_goes_on() {
    let address = at("127.92.0.11:0");
    let _broker = Broker::open(address, &Options::default()).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limit }).unwrap();
    let words = client::open(address, &never()).unwrap_err().to_string();
    assert!(words.contains("129 descriptors") && words.contains("ulimit -n"), "{words}");
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(client::open(address, &never()).unwrap().number(), 1);
}

#[test]
fn what_is_for_nobody_is_counted_by_kind_and_dropped() {
    let address = at("127.92.0.8:4791");
    let _broker = Broker::open(address, &Options::default()).unwrap();
    let _range = client::open(address, &never()).unwrap();
    let stranger = UdpSocket::bind("127.92.0.8:0").unwrap();
    let frame = |first: u8, qpn: u32| {
        let mut frame = [0; 60];
        frame[0] = first;
        frame[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        frame
    };
    for (first, qpn) in [(0xe0, 3 << 17), (0xe7, 1), (4, 1), (4, 0), (4, 2), (4, 5 << 17), (4, 0xff_ffff)] {
        stranger.send_to(&frame(first, qpn), address).unwrap();
    }
    stranger.send_to(&[4], address).unwrap();
    let tally = until(address, |report| {
        let tally = report.broker.tally;
        (tally.rma, tally.management, tally.unclaimed) == (2, 2, 4)
    });
    assert_eq!(tally.broker.tally.strays, 0);
}

#[test]
fn frames_that_strayed_reach_their_program_through_the_broker_and_are_counted() {
    let address = at("127.92.0.12:4791");
    let _broker = Broker::open(address, &Options::default()).unwrap();
    let ranges = [client::open(address, &never()).unwrap(), client::open(address, &never()).unwrap()];
    let mut ports = ranges
        .each_ref()
        .map(|range| UdpPort::open_shared(range.endpoint(), &PortOptions::default()).unwrap());
    let frame = |range: u8, number: u8| {
        let mut frame = [number; 80];
        (frame[0], frame[5]) = (4, range << 1);
        frame
    };
    // A train of frames for two ranges and for one that nobody has, as a device may join them.
    let socket = Socket::open(at("127.92.0.12:0"), &PortOptions::default()).unwrap();
    let train = [frame(1, 0), frame(2, 1), frame(2, 2), frame(1, 3), frame(9, 4), frame(2, 5)].concat();
    socket.send_train(&train, 80, &socket.destination(address)).unwrap();
    let mut came = [Vec::new(), Vec::new()];
    let limit = std::time::Instant::now() + crate::LONG;
    while came[1].len() < 3 {
        for (port, came) in ports.iter_mut().zip(&mut came) {
            port.receive(64, &mut |frame| {
                assert_eq!(frame.source, socket.endpoint());
                came.push(frame.bytes[79]);
            });
        }
        assert!(std::time::Instant::now() < limit, "{came:?}");
    }
    assert_eq!(came, [vec![0, 3], vec![1, 2, 5]]);
    let tally = until(address, |report| report.broker.tally.unclaimed == 1).broker.tally;
    assert_eq!((tally.strays, tally.forwarded, tally.overflowed), (4, 3, 0), "{tally:?}");
}

#[test]
fn a_program_may_have_an_address_alone_and_no_other_can_share_it() {
    let address = "127.92.0.9:0";
    let other = "127.92.0.10:0";
    let mut one = Program::alone(address);
    let mut two = Program::alone(other);
    one.ask(&format!("connect {}", two.listens));
    two.ask(&format!("connect {}", one.listens));
    assert_eq!((one.ask("work 100"), two.ask("work 100")), ("right".to_owned(), "right".to_owned()));
    let words = client::open(at(address), &never()).unwrap_err().to_string();
    assert!(words.contains(&format!("number {} has the address alone", one.id())), "{words}");
    one.end();
    let gone = client::open(at(address), &never());
    assert!(matches!(gone, Err(ClientError::None(_))), "{gone:?}");
}
