//! Connections that are set up at the same time, peers that leave, and servers that are full.

use remora_verbs::{
    CompletionQueue, ConnectError, Context, Departures, Device, EMPTY, Full, Handshakes, Init, Listener,
    ProtectionDomain, QpOptions, QueuePair, Status, work,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

struct Nic {
    cq: CompletionQueue,
    domain: ProtectionDomain,
    _context: Context,
}

impl Nic {
    fn open(port: &str) -> Nic {
        let device = if port == "udp" { Device::udp("127.0.0.1:0").unwrap() } else { Device::shm() };
        let context = device.open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        Nic { cq, domain, _context: context }
    }

    fn pair(&self, options: &QpOptions) -> QueuePair<Init> {
        self.domain.create_qp(&self.cq, &self.cq, options).unwrap()
    }
}

/// Captures the first message of a client whose NIC has this port.
fn first_message(port: &'static str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client =
        std::thread::spawn(move || Nic::open(port).pair(&QpOptions::default()).connect(address).err());
    let (mut stream, _) = listener.accept().unwrap();
    let mut message = vec![0; 16];
    stream.read_exact(&mut message).unwrap();
    let len = u32::from_le_bytes(message[12..].try_into().unwrap());
    message.resize(16 + len as usize, 0);
    stream.read_exact(&mut message[16..]).unwrap();
    drop(stream);
    assert!(matches!(client.join().unwrap(), Some(ConnectError::Closed(_))));
    message
}

/// A peer that requests a connection and then sends nothing.
fn silent(address: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(words).unwrap();
    stream
}

/// A client that connects in a thread of its own and performs one WRITE of length 0.
fn client(port: &'static str, address: SocketAddr) -> std::thread::JoinHandle<(Nic, QueuePair)> {
    std::thread::spawn(move || {
        let mut nic = Nic::open(port);
        let options = QpOptions { connect_timeout: LONG, ..QpOptions::default() };
        let mut pair = nic.pair(&options).connect(address).unwrap();
        pair.post_send(&work::nop(1)).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(nic.cq.wait(&mut done, LONG).unwrap(), 1);
        assert_eq!(done[0].status, Status::Success);
        (nic, pair)
    })
}

fn patient() -> QpOptions {
    QpOptions { connect_timeout: LONG, ..QpOptions::default() }
}

/// A silent peer has a minute here. A peer that completes its part is connected at once all the same.
fn side_by_side(port: &'static str) {
    let words = first_message(port);
    let server = Nic::open(port);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut handshakes = Handshakes::new().unwrap();
    let _silent: Vec<TcpStream> = (0..8).map(|_| silent(listener.address(), &words)).collect();
    for _ in 0..8 {
        let request = listener.accept(Some(LONG)).unwrap().unwrap();
        handshakes.begin(request, server.pair(&patient())).unwrap();
    }
    let client = client(port, listener.address());
    let request = listener.accept(Some(LONG)).unwrap().unwrap();
    let id = handshakes.begin(request, server.pair(&patient())).unwrap();
    let began = Instant::now();
    let answered = loop {
        match handshakes.finished() {
            Some((done, outcome)) => {
                assert_eq!(done, id, "only the client completes its part");
                break outcome.unwrap();
            }
            None => assert!(began.elapsed() < LONG, "the silent peers delay the client"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let _pair = answered.go().unwrap();
    client.join().unwrap();
    assert_eq!(handshakes.len(), 8);
}

#[test]
fn a_client_is_connected_beside_silent_ones_over_shm() {
    side_by_side("shm");
}

#[test]
fn a_client_is_connected_beside_silent_ones_over_udp() {
    side_by_side("udp");
}

#[track_caller]
fn next(handshakes: &mut Handshakes) -> (u64, Result<remora_verbs::Answered, ConnectError>) {
    let began = Instant::now();
    loop {
        match handshakes.finished() {
            Some(done) => return done,
            None => assert!(began.elapsed() < LONG, "no handshake has ended"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn gone_at_once(port: &'static str) {
    let words = first_message(port);
    let server = Nic::open(port);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut handshakes = Handshakes::new().unwrap();
    // The peer's timeout is a minute. Its hang-up must be noticed earlier, over shm also while the peer's end
    // of the link is awaited.
    let stream = silent(listener.address(), &words);
    let request = listener.accept(Some(LONG)).unwrap().unwrap();
    let id = handshakes.begin(request, server.pair(&patient())).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(stream);
    let (done, outcome) = next(&mut handshakes);
    assert_eq!(done, id);
    let error = outcome.unwrap_err();
    assert!(matches!(error, ConnectError::Closed(_)), "{error}");
}

#[test]
fn who_hangs_up_in_the_middle_is_given_up_at_once_over_shm() {
    gone_at_once("shm");
}

#[test]
fn who_hangs_up_in_the_middle_is_given_up_at_once_over_udp() {
    gone_at_once("udp");
}

#[test]
fn at_the_bound_the_oldest_handshake_gives_way() {
    let words = first_message("shm");
    let server = Nic::open("shm");
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut handshakes = Handshakes::new().unwrap();
    let mut streams = Vec::new();
    let mut begun = Vec::new();
    for _ in 0..Handshakes::MOST + 2 {
        streams.push(silent(listener.address(), &words));
        let request = listener.accept(Some(LONG)).unwrap().unwrap();
        begun.push(handshakes.begin(request, server.pair(&patient())).unwrap());
    }
    let mut gone = [next(&mut handshakes), next(&mut handshakes)].map(|(id, outcome)| {
        assert!(outcome.is_err());
        id
    });
    gone.sort_unstable();
    assert_eq!(gone, begun[..2]);
    assert_eq!(handshakes.len(), Handshakes::MOST);
    assert!(!handshakes.end_oldest(LONG), "no handshake is older than the limit");
    assert!(handshakes.end_oldest(Duration::ZERO));
    assert_eq!(next(&mut handshakes).0, begun[2]);
}

/// Connects a pair. Returns the server's side first.
fn connected(port: &'static str, options: &QpOptions) -> ((Nic, QueuePair), (Nic, QueuePair)) {
    let server = Nic::open(port);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let client = std::thread::spawn(move || {
        let nic = Nic::open(port);
        let pair = nic.pair(&patient()).connect(address).unwrap();
        (nic, pair)
    });
    let pair = listener.accept(Some(LONG)).unwrap().unwrap().accept(server.pair(options)).unwrap();
    ((server, pair), client.join().unwrap())
}

#[track_caller]
fn until_gone(pair: &QueuePair) {
    let began = Instant::now();
    while !pair.is_peer_gone() {
        assert!(began.elapsed() < LONG, "the end of the peer was not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_end_of_a_queue_pair_is_told_to_its_peer_without_a_request() {
    for port in ["shm", "udp"] {
        let ((_server, pair), (nic, theirs)) = connected(port, &patient());
        assert!(!pair.is_peer_gone() && !theirs.is_peer_gone());
        let departures = Departures::new().unwrap();
        departures.add(pair.connection().unwrap(), 77).unwrap();
        assert!(departures.ended().unwrap().is_empty());
        drop(theirs);
        until_gone(&pair);
        assert_eq!(departures.ended().unwrap(), [77]);
        departures.remove(pair.connection().unwrap());
        assert!(departures.ended().unwrap().is_empty());
        drop(nic);
        // The same with the roles exchanged.
        let ((_server, pair), (_nic, theirs)) = connected(port, &patient());
        drop(pair);
        until_gone(&theirs);
    }
}

#[test]
fn where_one_side_keeps_no_connection_nothing_is_told_and_nobody_is_taken_for_gone() {
    let without = QpOptions { lasting: false, ..patient() };
    let ((_server, pair), (_nic, theirs)) = connected("shm", &without);
    assert!(pair.connection().is_none() && theirs.connection().is_none());
    assert!(!theirs.agreement().unwrap().lasting);
    drop(pair);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!theirs.is_peer_gone());
}

#[test]
fn a_full_server_is_told_from_one_that_refuses() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let client = std::thread::spawn(move || Nic::open("shm").pair(&patient()).connect(address).err());
    listener.accept(Some(LONG)).unwrap().unwrap().reject_full(Full::clients(64));
    let error = client.join().unwrap().unwrap();
    assert!(matches!(error, ConnectError::Full(full) if full == Full::clients(64)) && error.is_for_now());
    assert!(error.to_string().starts_with("server full: 64 of 64 clients"), "{error}");
}
