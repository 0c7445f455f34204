//! A listener for queue pairs, attacked by strangers that are silent, slow, many, or gone before they are
//! answered.

use remora_host::connect::{
    Capacity, Full, Hello, LinkOffer, Listener, Message, PENDING, PENDING_OF_SOURCE, REQUESTS,
};
use remora_host::{EngineId, PortKind};
use remora_wire::frame::Endpoint;
use remora_wire::{Psn, Qpn};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A time longer than any test takes, unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn listener() -> Listener {
    Listener::bind("127.0.0.1:0").expect("a port")
}

/// Returns the first message of a client; its private data contain `name`.
fn request(name: u32) -> Vec<u8> {
    Message::Request(Hello {
        kind: PortKind::Udp,
        link: LinkOffer::None,
        path_mtu: 1024,
        service: remora_nic::Service::Rc,
        qkey: 0,
        qp: Qpn::new(17),
        psn: Psn::new(1),
        initiator_depth: 1,
        responder_resources: 1,
        endpoint: Endpoint { address: Ipv4Addr::LOCALHOST.into(), udp_port: 4791 },
        engine: EngineId(7),
        extensions: 0,
        irn_reach: 0,
        private_data: name.to_le_bytes().to_vec(),
    })
    .emit()
}

fn connect(listener: &Listener) -> TcpStream {
    TcpStream::connect(listener.address()).expect("connecting to the server")
}

/// Connects from another address of this machine.
fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((source, 0))).expect("loopback has many addresses");
    connect(&socket, &address).expect("connecting to the server");
    socket.into()
}

fn send_request(listener: &Listener, name: u32) -> TcpStream {
    let mut stream = connect(listener);
    stream.write_all(&request(name)).expect("sending to the server");
    stream
}

/// Accepts the next request and returns its name.
#[track_caller]
fn next(listener: &Listener) -> u32 {
    let request = listener.accept(Some(LONG)).expect("waiting for a client").expect("a client");
    let name: [u8; 4] = request.hello().private_data[..].try_into().expect("four bytes");
    u32::from_le_bytes(name)
}

/// Returns the last message of the listener if it has hung up; otherwise `None`.
fn last_words(stream: &mut TcpStream) -> Option<Vec<u8>> {
    stream.set_nonblocking(true).expect("a socket");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        _ => Some(bytes),
    }
}

/// Waits for the last message of the listener, which then hangs up.
#[track_caller]
fn reply_to(stream: &mut TcpStream) -> Message {
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the end of the connection");
    Message::parse(&bytes).expect("a message")
}

/// Regression: with 64 silent connections newcomers waited three seconds each, and beyond 128
/// connections that wait to be accepted a second.
///
/// Regression: 64 silent connections locked newcomers out for three seconds each.
#[test]
fn one_that_speaks_is_heard_beside_a_thousand_silent_connections() {
    let listener = listener();
    let _silent: Vec<TcpStream> = (0..1000).map(|_| connect(&listener)).collect();
    for name in 0..10 {
        let _speaks = send_request(&listener, name);
        assert_eq!(next(&listener), name);
    }
    assert!(listener.refused() >= 1000 - PENDING_OF_SOURCE, "{} gave way", listener.refused());
}

#[test]
fn one_that_speaks_is_heard_beside_connections_that_drip() {
    let listener = listener();
    let mut dripping: Vec<TcpStream> = (0..100).map(|_| connect(&listener)).collect();
    let words = request(99);
    for number in 0..10 {
        for stream in &mut dripping {
            // Connections that were closed in favour of others are gone.
            let _ = stream.write_all(&words[number..=number]);
        }
        let _speaks = send_request(&listener, number as u32);
        assert_eq!(next(&listener), number as u32);
    }
}

/// A peer that reconnects at once after each hang-up gets a bounded number of connections a second.
///
/// Regression: connections that were closed and came back at once took a third of their rate from the
/// connected clients.
#[test]
fn connections_that_come_back_at_once_set_no_pace() {
    let listener = listener();
    let started = Instant::now();
    // Connections are closed from the oldest on.
    let mut all: VecDeque<TcpStream> = (0..2 * PENDING).map(|_| connect(&listener)).collect();
    while listener.refused() < 1024 || started.elapsed() < Duration::from_millis(500) {
        match last_words(&mut all[0]) {
            Some(_) => {
                all.pop_front();
                all.push_back(connect(&listener));
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    // The number that may be closed together, plus the rate since then.
    let most = 1024.0 + 500.0 * started.elapsed().as_secs_f64();
    assert!((listener.refused() as f64) <= most + 1.0, "{} of {most}", listener.refused());
    let name = 5;
    let _stream = send_request(&listener, name);
    assert_eq!(next(&listener), name);
}

#[test]
fn words_that_come_byte_by_byte_are_words() {
    let listener = listener();
    let mut stream = connect(&listener);
    stream.set_nodelay(true).expect("an option");
    for byte in request(5) {
        stream.write_all(&[byte]).expect("sending to the server");
    }
    assert_eq!(next(&listener), 5);
}

#[test]
fn the_oldest_of_the_same_source_gives_way_and_is_told_and_others_stay() {
    let listener = listener();
    let mut first = connect(&listener);
    let connection = |host: u8| connect_from(Ipv4Addr::new(127, 0, 0, host), listener.address());
    let mut many: Vec<TcpStream> = (0..PENDING_OF_SOURCE).map(|_| connection(2)).collect();
    let _one_more = connection(2);
    let full = reply_to(&mut many[0]);
    assert!(matches!(full, Message::Full(Full { capacity: Capacity::Handshakes, .. })), "{full:?}");
    assert_eq!(last_words(&mut first), None, "the oldest connection of another source stays");
    assert!(many[1..].iter_mut().all(|stream| last_words(stream).is_none()));
}

#[test]
fn with_all_places_taken_the_source_gives_way_that_has_most() {
    let listener = listener();
    let mut first = connect(&listener);
    let connection = |host: u8| connect_from(Ipv4Addr::new(127, 0, 0, host), listener.address());
    let mut most: Vec<TcpStream> = (0..PENDING_OF_SOURCE).map(|_| connection(2)).collect();
    let _others: Vec<TcpStream> = (0..PENDING - PENDING_OF_SOURCE - 1).map(|_| connection(3)).collect();
    assert!(most.iter_mut().all(|stream| last_words(stream).is_none()), "all of them fit");
    let _newcomer = connection(4);
    reply_to(&mut most[0]);
    assert_eq!(last_words(&mut first), None);
}

#[test]
fn a_request_is_not_handed_out_whose_sender_has_hung_up() {
    let listener = listener();
    for name in 0..10 {
        drop(send_request(&listener, name));
    }
    let _stays = send_request(&listener, 77);
    assert_eq!(next(&listener), 77, "the others are gone");
    assert_eq!(listener.refused(), 10);
}

#[test]
fn requests_that_nobody_wants_any_more_give_way_and_else_the_newcomer_is_told() {
    let listener = listener();
    let held: Vec<TcpStream> = (0..REQUESTS as u32).map(|name| send_request(&listener, name)).collect();
    let mut refused = send_request(&listener, 1000);
    let most = REQUESTS as u32;
    let full = Full { capacity: Capacity::Handshakes, taken: most, most };
    assert_eq!(reply_to(&mut refused), Message::Full(full));
    drop(held);
    let _comes = send_request(&listener, 1001);
    assert_eq!(next(&listener), 1001);
}

#[test]
fn one_that_says_nothing_has_a_few_seconds() {
    let listener = listener();
    let mut silent = connect(&listener);
    let began = Instant::now();
    silent.set_read_timeout(Some(LONG)).expect("an option");
    assert_eq!(silent.read(&mut [0; 8]).expect("the listener hangs up"), 0);
    assert!(began.elapsed() > Duration::from_secs(1), "the connection must have time to be slow");
}

#[test]
fn who_sends_nonsense_is_hung_up_on_at_once() {
    let listener = listener();
    let mut nonsense = connect(&listener);
    nonsense.write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").expect("sending to the server");
    nonsense.set_read_timeout(Some(LONG)).expect("an option");
    match nonsense.read(&mut [0; 8]) {
        Ok(len) => assert_eq!(len, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let mut old = connect(&listener);
    old.write_all(b"RemoraCM\x63\x00\x01\x00\0\0\0\0").expect("sending to the server");
    assert!(matches!(reply_to(&mut old), Message::Reject(words) if words.contains("version 99")));
}
