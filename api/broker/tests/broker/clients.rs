//! Connections that are no proper programs: silent ones, nonsense, another version, another user, and one
//! that reads nothing.

use remora_broker::client::{self, ClientError};
use remora_broker::{Broker, Options};
use remora_host::packet::{PacketListener, PacketSocket};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use crate::{LONG, at, never, report, until};

/// The version of the messages.
pub(crate) const VERSION: u16 = 8;

/// The request for the sums of all counters.
pub(crate) const COUNTERS: u8 = 10;

fn name(address: &str) -> String {
    format!("remora-broker/{address}:4791")
}

fn connect(address: &str) -> PacketSocket {
    PacketSocket::connect_abstract(&name(address), LONG).unwrap()
}

/// Returns the text of a refusal, after checking that the connection ends with it.
#[track_caller]
fn refusal(socket: &PacketSocket) -> String {
    let mut buffer = [0; 2048];
    let packet = match socket.receive(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => socket.receive(&mut buffer),
        done => done,
    };
    let len = packet.unwrap().len;
    assert_eq!(buffer[0], 1, "the reply is a refusal");
    assert_eq!(socket.receive(&mut [0; 8]).map_or(0, |packet| packet.len), 0, "the end");
    String::from_utf8(buffer[3..len].to_vec()).unwrap()
}

/// The first packet of a program that queries the broker.
fn ask(version: u16) -> Vec<u8> {
    [&[2][..], b"RemoraBr", &version.to_le_bytes()].concat()
}

#[test]
fn babble_another_version_and_a_second_first_word_are_refused_with_words_and_counted() {
    let address = "127.94.0.1";
    let _broker = Broker::open(at("127.94.0.1:0"), &Options::default()).unwrap();
    let good = client::open(at("127.94.0.1:0"), &never()).unwrap();
    for babble in [&[0xff][..], &[7; 100], b"GET / HTTP/1.1", &[1], &[3; 3000], &[5], &[0x40]] {
        let socket = connect(address);
        socket.send(babble, &[]).unwrap();
        assert!(refusal(&socket).contains("makes no sense"), "{babble:?}");
    }
    let socket = connect(address);
    socket.send(&ask(9), &[]).unwrap();
    let words = refusal(&socket);
    assert!(words.contains("version 9") && words.contains(&format!("speaks {VERSION}")), "{words}");
    // Descriptors that the broker does not expect are closed, and their sender is refused.
    let socket = connect(address);
    let (reader, writer) = std::io::pipe().unwrap();
    socket.send(&ask(VERSION), &[std::os::fd::AsFd::as_fd(&writer)]).unwrap();
    assert!(refusal(&socket).contains("makes no sense"));
    drop(writer);
    assert_eq!(
        std::io::Read::read(&mut { reader }, &mut [0; 1]).unwrap(),
        0,
        "the broker has closed the descriptor"
    );
    let socket = connect(address);
    socket.send(&ask(VERSION), &[]).unwrap();
    assert!(socket.receive(&mut [0; 2048]).unwrap().len > 20);
    socket.send(&ask(VERSION), &[]).unwrap();
    assert!(refusal(&socket).contains("makes no sense"));
    let report = report(at("127.94.0.1:0"));
    assert_eq!((report.broker.tally.refused, report.programs.len()), (10, 1));
    assert_eq!(good.number(), 1);
}

#[test]
fn who_says_nothing_is_dropped_in_time_and_locks_nobody_out() {
    let address = "127.94.0.2";
    let options = Options { patience: Duration::from_millis(200), ..Options::default() };
    let _broker = Broker::open(at("127.94.0.2:0"), &options).unwrap();
    let silent: Vec<PacketSocket> = (0..300).map(|_| connect(address)).collect();
    // More connections than there are places, and a program still gets one.
    let range = client::open(at("127.94.0.2:0"), &never()).unwrap();
    assert_eq!(range.number(), 1);
    for socket in &silent {
        assert_eq!(socket.receive(&mut [0; 8]).map_or(0, |packet| packet.len), 0, "dropped");
    }
    until(at("127.94.0.2:0"), |report| report.broker.tally.dropped == 300);
}

#[test]
fn who_reads_no_reply_is_dropped_and_holds_nobody_up() {
    let address = "127.94.0.3";
    let _broker = Broker::open(at("127.94.0.3:0"), &Options::default()).unwrap();
    let deaf = connect(address);
    deaf.send(&ask(VERSION), &[]).unwrap();
    // Send requests until the broker hangs up, without reading the replies.
    let mut sent = 0u32;
    while deaf.send(&[COUNTERS], &[]).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "the broker stores replies without end");
    }
    let tally = until(at("127.94.0.3:0"), |report| report.broker.tally.dropped == 1).broker.tally;
    assert_eq!(tally.refused, 0);
    assert_eq!(client::open(at("127.94.0.3:0"), &never()).unwrap().number(), 1);
}

#[test]
fn a_second_broker_and_a_taken_udp_port_are_each_one_line() {
    let _broker = Broker::open(at("127.94.0.4:0"), &Options::default()).unwrap();
    let words = Broker::open(at("[::ffff:127.94.0.4]:9"), &Options::default()).unwrap_err().to_string();
    assert!(words.contains("a broker has 127.94.0.4 already") && !words.contains('\n'), "{words}");
    let _taken = UdpSocket::bind("127.94.0.5:4791").unwrap();
    let words = Broker::open(at("127.94.0.5:0"), &Options::default()).unwrap_err().to_string();
    assert!(words.contains("is taken by a program of your own: end it") && !words.contains('\n'), "{words}");
    for (wrong, says) in
        [("0.0.0.0:0", "every address"), ("224.0.0.1:0", "multicast"), ("192.0.2.7:0", "not an address")]
    {
        let words = Broker::open(at(wrong), &Options::default()).unwrap_err().to_string();
        assert!(words.contains(says) && !words.contains('\n'), "{words}");
    }
}

#[test]
fn something_else_that_listens_at_the_name_is_given_up_in_time() {
    let listener = PacketListener::bind_abstract(&name("127.94.0.6")).unwrap();
    let options = client::Options { patience: Duration::from_millis(100), ..never() };
    let silent = client::open(at("127.94.0.6:0"), &options);
    assert!(matches!(silent, Err(ClientError::Silent(_))), "{silent:?}");
    let answering = std::thread::spawn(move || {
        remora_host::wait_readable(std::os::fd::AsFd::as_fd(&listener), None).unwrap();
        let _old = listener.accept().unwrap();
        remora_host::wait_readable(std::os::fd::AsFd::as_fd(&listener), None).unwrap();
        let socket = listener.accept().unwrap().unwrap();
        socket.send(b"nonsense", &[]).unwrap();
    });
    let nonsense = client::open(at("127.94.0.6:0"), &never());
    assert!(matches!(nonsense, Err(ClientError::Nonsense)), "{nonsense:?}");
    answering.join().unwrap();
}
