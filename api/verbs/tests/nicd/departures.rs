//! Programs whose queue pairs a daemon has: programs that end or are killed, and programs whose objects are
//! kept.

use remora_verbs::{
    ConnectError, ConnectRequest, Device, Full, Handshakes, Listener, QpOptions, QueuePair, nicd,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Client, LONG, Lender, Program};

#[track_caller]
fn until_gone(pair: &QueuePair) {
    let began = Instant::now();
    while !pair.is_peer_gone() {
        assert!(began.elapsed() < LONG, "the end of the peer was not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn request(listener: &Listener) -> ConnectRequest {
    listener.accept(Some(LONG)).unwrap().unwrap()
}

#[test]
fn a_killed_program_of_the_daemon_is_known_to_be_gone() {
    let lender = Lender::start("shm", "killed");
    let mut server = Program::start(&["server", lender.nic()]);
    let client = Client::new("shm");
    let (pair, _) = client.connect(server.address());
    assert!(!pair.is_peer_gone());
    server.kill();
    until_gone(&pair);
}

/// The entry point of a program whose child keeps its socket.
#[allow(unsafe_code, reason = "fork(2)")]
pub(crate) fn fork(nic: &str) {
    let context = super::open(nic);
    // SAFETY: the child makes system calls only, until it is killed.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: a system call without arguments.
            unsafe { libc::pause() };
        },
        child => println!("says {child}"),
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(context);
}

/// Regression: a program that was killed stayed attached to the daemon while a child that it had forked held
/// its socket open.
#[test]
fn a_child_that_keeps_the_socket_does_not_hide_its_parents_death() {
    let lender = Lender::start("shm", "forked");
    let mut program = Program::start(&["fork", lender.nic()]);
    let child = program.first_line.parse().unwrap();
    let attached = || nicd::tenants(lender.path.as_ref()).unwrap().len();
    assert_eq!(attached(), 1);
    program.kill();
    let began = Instant::now();
    while attached() > 0 {
        assert!(began.elapsed() < LONG, "the program that was killed is attached still");
        std::thread::sleep(Duration::from_millis(1));
    }
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_end_of_a_lent_queue_pair_is_told_both_ways() {
    let lender = Lender::start("shm", "hang-up");
    let own = Client::new("shm");
    let lent = Client::new(lender.nic());
    for (ours, theirs) in [(&own, &lent), (&lent, &own)] {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let options = QpOptions::default();
        let (here, there) = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let pair = theirs.domain.create_qp(&theirs.cq, &theirs.cq, &options).unwrap();
                pair.connect(address).unwrap()
            });
            let pair = ours.domain.create_qp(&ours.cq, &ours.cq, &options).unwrap();
            let here = request(&listener).accept(pair).unwrap();
            (here, connecting.join().unwrap())
        });
        assert!(!here.is_peer_gone() && !there.is_peer_gone());
        drop(there);
        until_gone(&here);
    }
}

#[test]
fn what_a_daemon_keeps_is_not_gone_and_hears_of_its_peers_end_after_its_program_came_back() {
    let lender = Lender::start("shm", "back");
    let open = || Device::nicd(&lender.path).keep("back").open().unwrap();
    let context = open();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let client = Client::new("shm");
    let address = listener.address();
    let (pair, theirs) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let options = QpOptions::default();
            client.domain.create_qp(&client.cq, &client.cq, &options).unwrap().connect(address).unwrap()
        });
        let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        (request(&listener).accept(pair).unwrap(), connecting.join().unwrap())
    });
    context.leave();
    drop((pair, cq, domain, context));
    let context = open();
    let nicd::Kept { pairs, .. } = context.kept().unwrap();
    assert!(!theirs.is_peer_gone(), "the daemon still has the peer's connection");
    assert!(pairs[0].connection().is_some() && !pairs[0].is_peer_gone());
    drop(theirs);
    until_gone(&pairs[0]);
}

#[test]
fn a_server_on_the_daemon_connects_a_client_beside_silent_ones() {
    let lender = Lender::start("shm", "silent");
    let server = Client::new(lender.nic());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let words = {
        let fake = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake_address = fake.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = Client::new("shm");
                let pair = client.domain.create_qp(&client.cq, &client.cq, &QpOptions::default()).unwrap();
                assert!(pair.connect(fake_address).is_err());
            });
            let mut words = vec![0; 16 + 68];
            fake.accept().unwrap().0.read_exact(&mut words).unwrap();
            words
        })
    };
    let mut handshakes = Handshakes::new().unwrap();
    let options = QpOptions { connect_timeout: LONG, ..QpOptions::default() };
    let pair = || server.domain.create_qp(&server.cq, &server.cq, &options).unwrap();
    let mut silent = Vec::new();
    for _ in 0..Handshakes::MOST + 8 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&words).unwrap();
        silent.push(stream);
        handshakes.begin(request(&listener), pair()).unwrap();
    }
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let client = Client::new("shm");
            let pair = client.domain.create_qp(&client.cq, &client.cq, &options).unwrap();
            pair.connect(address).unwrap();
        });
        let id = handshakes.begin(request(&listener), pair()).unwrap();
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < LONG, "the silent peers delay the client");
            match handshakes.finished() {
                Some((done, outcome)) if done == id => break drop(outcome.unwrap().go().unwrap()),
                // The oldest hand-shake was ended.
                Some((_, outcome)) => assert!(outcome.is_err()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        connecting.join().unwrap();
    });
}

#[test]
fn a_full_server_is_told_through_the_daemon() {
    let lender = Lender::start("shm", "full");
    let client = Client::new(lender.nic());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let pair = client.domain.create_qp(&client.cq, &client.cq, &QpOptions::default()).unwrap();
            pair.connect(address).err()
        });
        request(&listener).reject_full(Full::clients(3));
        let error = connecting.join().unwrap();
        assert!(matches!(error, Some(ConnectError::Full(full)) if full == Full::clients(3)), "{error:?}");
    });
}
