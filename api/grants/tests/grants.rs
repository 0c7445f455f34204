//! Tests of grants between two NICs of this host, and of the clients that must get none.

use remora_grants::{
    Certificate, Channel, Credential, Error, Fingerprint, GrantCounters, GrantOptions, GrantServer, Offer,
    Pin, RmaSession, Token,
};
use remora_verbs::rma::{Client, Portal, RegionKey, Rights, RmaOptions};
use remora_verbs::{Access, Context, Device, Mode};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LEN: usize = 3 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(500);

fn loopback(host: &str) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), 0)
}

/// A server with one region.
struct Bed {
    server: GrantServer,
    token: Token,
    host: &'static str,
    _context: Context,
}

impl Bed {
    fn new(host: &'static str, rights: Rights) -> Bed {
        Bed::with(host, rights, |_| {})
    }

    fn with(host: &'static str, rights: Rights, change: impl FnOnce(&mut GrantOptions)) -> Bed {
        let context = Device::udp(loopback(host)).unwrap().mode(Mode::Dedicated).open().unwrap();
        let memory = context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
        memory.write(0, &contents()).unwrap();
        let region = context.open_rma(&RmaOptions::default()).unwrap().expose(memory, rights, None).unwrap();
        let token = Token::random().unwrap();
        let mut options =
            GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new().unwrap()) };
        change(&mut options);
        let server = GrantServer::start(loopback(host), options, vec![Offer::new("memory", rights, region)]);
        Bed { server: server.unwrap(), token, host, _context: context }
    }

    fn pin(&self) -> Pin {
        Pin { address: self.server.address(), fingerprint: self.server.fingerprint() }
    }

    fn session(&self) -> RmaSession {
        self.session_by(Credential::Token(self.token.clone())).unwrap()
    }

    fn session_by(&self, credential: Credential) -> Result<RmaSession, Error> {
        RmaSession::open_within(&nic(self.host), self.pin(), credential, PATIENCE)
    }

    fn has(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut content = vec![0; bytes.len()];
        self.server.offers()[0].region().memory().read(offset, &mut content).unwrap();
        content == bytes
    }

    /// Waits until the server's counters satisfy `enough`.
    fn counts(&self, enough: impl Fn(&GrantCounters) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !enough(&self.server.counters()) {
            assert!(Instant::now() < until, "{:?}", self.server.counters());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Announces a key and waits until it was sent to all connected clients.
    fn announce(&self, key: u8, sent: u64) {
        let key = RegionKey::new([key; 16]).unwrap();
        self.server.announce("memory", key, Duration::from_millis(10)).unwrap();
        self.counts(|counters| counters.announced == sent);
    }
}

fn contents() -> Vec<u8> {
    (0..LEN).map(|index| (index / 251 + index) as u8).collect()
}

fn nic(host: &str) -> Context {
    Device::udp(loopback(host)).unwrap().open().unwrap()
}

/// Returns a client with the given address.
fn somebody(address: IpAddr) -> Client {
    Client { address: address.into(), pid: 1, incarnation: 1 }
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Returns the error text for a client that must get no grant.
#[track_caller]
fn refused(pin: Pin, credential: &Credential, client: &Client) -> String {
    refused_within(PATIENCE, pin, credential, client)
}

#[track_caller]
fn refused_within(timeout: Duration, pin: Pin, credential: &Credential, client: &Client) -> String {
    let error = Channel::open(pin, credential, client, timeout).map(drop).expect_err("no grant");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

fn reads_writes_and_rekeys(host: &'static str) {
    let bed = Bed::new(host, Rights::READ | Rights::WRITE | Rights::REKEY);
    let (mut session, mut other) = (bed.session(), bed.session());
    let [one] = session.regions() else { panic!("one region") };
    assert_eq!((&*one.name, one.grant.len as usize), ("memory", LEN));
    let mut all = vec![0; LEN];
    session.read("memory", 0, &mut all).unwrap();
    assert!(all == contents());
    session.write("memory", 4000, &[0x5a; 9000]).unwrap();
    assert!(bed.has(4000, &[0x5a; 9000]));
    session.rekey("memory", &RegionKey::new([7; 16]).unwrap()).unwrap();
    session.read("memory", 4000, &mut all[..9000]).unwrap();
    assert_eq!(session.asked(), 2, "a rekey comes with new grants");
    // The other client learns of the new key when its operation fails, and then asks for grants.
    other.read("memory", 4000, &mut all[..9000]).unwrap();
    assert!(all[..9000] == [0x5a; 9000]);
    assert_eq!((other.asked(), bed.server.counters().granted), (2, 4));
}

#[test]
fn over_udp() {
    reads_writes_and_rekeys("127.0.0.1");
}

#[test]
fn over_udp_with_ipv6() {
    reads_writes_and_rekeys("::1");
}

#[test]
fn a_listed_certificate_admits_and_no_other() {
    let own = Certificate::new().unwrap();
    let bed = Bed::with("127.0.0.1", Rights::READ, |options| {
        options.token = None;
        options.clients.insert(own.fingerprint());
    });
    bed.session_by(Credential::Certificate(own)).unwrap().read("memory", 0, &mut [0; 64]).unwrap();
    let other = Certificate::new().unwrap();
    let words = format!(
        "does not admit this client: start it with `remora rma serve --admit {}`",
        other.fingerprint()
    );
    assert!(refused(bed.pin(), &Credential::Certificate(other), &somebody(HERE)).contains(&words));
    let token = Credential::Token(bed.token.clone());
    assert!(refused(bed.pin(), &token, &somebody(HERE)).contains("does not admit this client"));
    assert_eq!((bed.server.counters().granted, bed.server.counters().refused), (1, 2));
}

#[test]
fn who_has_another_fingerprint_token_or_address_gets_one_line_and_no_key() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let token = Credential::Token(bed.token.clone());
    let other = Pin { fingerprint: Fingerprint([7; 32]), ..bed.pin() };
    assert!(refused(other, &token, &somebody(HERE)).contains("has another fingerprint"));
    bed.counts(|counters| counters.failed == 1);
    let wrong = Credential::Token(Token::random().unwrap());
    assert!(refused(bed.pin(), &wrong, &somebody(HERE)).contains("take the token that it printed"));
    let counters = bed.server.counters();
    assert_eq!((counters.granted, counters.refused), (0, 1));
}

#[test]
fn a_nic_with_another_address_than_its_connection_is_told_of_the_translation() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    // A relay stands in for the NAT: its own connection comes from 127.0.0.1.
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (relay.local_addr().unwrap(), bed.server.address());
    let relaying = std::thread::spawn(move || {
        let near = relay.accept().unwrap().0;
        let far = TcpStream::connect(server).unwrap();
        let mut reader = near.try_clone().unwrap();
        let mut writer = far.try_clone().unwrap();
        let there = std::thread::spawn(move || std::io::copy(&mut reader, &mut writer));
        let _ = std::io::copy(&mut { far }, &mut { near });
        let _ = there.join();
    });
    let client = somebody(Ipv4Addr::new(127, 0, 0, 9).into());
    let pin = Pin { address, ..bed.pin() };
    let text = refused(pin, &Credential::Token(bed.token.clone()), &client);
    assert!(
        text.contains("sees this client at 127.0.0.1, and its NIC has 127.0.0.9") && text.contains("NAT"),
        "{text}"
    );
    assert_eq!((bed.server.counters().granted, bed.server.counters().refused), (0, 1));
    drop(bed);
    relaying.join().unwrap();
}

#[test]
fn what_listens_there_may_be_nobody_silent_or_without_tls() {
    let credential = Credential::Token(Token::random().unwrap());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let pin = Pin { address: free.local_addr().unwrap(), fingerprint: Fingerprint([7; 32]) };
    // The kernel accepts the connection into the backlog, and nobody answers it.
    assert!(refused_within(SHORT, pin, &credential, &somebody(HERE)).contains("is silent"));
    let plain = std::thread::spawn(move || {
        let mut peers: Vec<TcpStream> = (0..2).map(|_| free.accept().unwrap().0).collect();
        peers[1].write_all(b"HTTP/1.0 400 Bad GrantRequest\r\n\r\n").unwrap();
        let _ = peers[1].read(&mut [0; 4096]);
        peers.truncate(1);
        free
    });
    assert!(refused(pin, &credential, &somebody(HERE)).contains("does not speak TLS 1.3"));
    drop(plain.join().unwrap());
    let text = refused(pin, &credential, &somebody(HERE));
    assert!(text.contains("no server gives grants at") && text.contains("remora rma serve"), "{text}");
    let far = Pin { address: "203.0.113.7:7501".parse().unwrap(), ..pin };
    assert!(refused(far, &credential, &somebody(HERE)).contains("--address"));
}

#[test]
fn a_server_ends_peers_that_are_silent_slow_plain_or_talk_too_much() {
    let bed = Bed::with("127.0.0.1", Rights::READ, |options| options.deadline = 4 * SHORT);
    let connect = || TcpStream::connect(bed.server.address()).unwrap();
    let mut silent = connect();
    let mut plain = connect();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.len() < 16, "the server sent more than a TLS alert: {answer:?}");
    // The header announces a record that never arrives completely.
    let mut slow = connect();
    slow.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    for peer in [&mut silent, &mut slow] {
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(
            peer.read(&mut [0; 64]).unwrap_or(0),
            0,
            "the server closed the connection without an answer"
        );
    }
    bed.counts(|counters| counters.failed == 3);
    bed.session().read("memory", 0, &mut [0; 64]).unwrap();
}

#[test]
fn silent_peers_do_not_keep_others_out() {
    let bed = Bed::with("127.0.0.1", Rights::READ, |options| {
        (options.handshakes, options.deadline) = (4, Duration::from_secs(600));
    });
    let silent: Vec<_> = (0..64).map(|_| TcpStream::connect(bed.server.address()).unwrap()).collect();
    bed.session().read("memory", 0, &mut [0; 64]).unwrap();
    drop(silent);
}

/// Records what a client sends to the server, by means of a relay.
fn recorded(bed: &Bed) -> Vec<u8> {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (relay.local_addr().unwrap(), bed.server.address());
    let recording = std::thread::spawn(move || {
        let mut near = relay.accept().unwrap().0;
        let far = TcpStream::connect(server).unwrap();
        let mut back = far.try_clone().unwrap();
        let mut client = near.try_clone().unwrap();
        let backwards = std::thread::spawn(move || std::io::copy(&mut back, &mut client));
        let mut all = Vec::new();
        let mut piece = [0; 4096];
        let mut far = far;
        while let Ok(count @ 1..) = near.read(&mut piece) {
            all.extend_from_slice(&piece[..count]);
            let _ = far.write_all(&piece[..count]);
        }
        let _ = far.shutdown(std::net::Shutdown::Both);
        let _ = backwards.join();
        all
    });
    let pin = Pin { address, ..bed.pin() };
    let (channel, grants) =
        Channel::open(pin, &Credential::Token(bed.token.clone()), &somebody(HERE), PATIENCE).unwrap();
    assert_eq!(grants.len(), 1);
    drop(channel);
    recording.join().unwrap()
}

#[test]
fn a_recorded_question_played_again_gets_no_grant() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let all = recorded(&bed);
    assert!(all.len() > 200, "the recording has a handshake and a request");
    let token = bed.token.to_string();
    assert!(!String::from_utf8_lossy(&all).contains(&token), "sealed");
    assert_eq!(bed.server.counters().granted, 1);
    let mut replay = TcpStream::connect(bed.server.address()).unwrap();
    replay.write_all(&all).unwrap();
    replay.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = replay.read_to_end(&mut Vec::new());
    bed.counts(|counters| counters.failed == 1);
    assert_eq!(bed.server.counters().granted, 1, "still");
}

#[test]
fn the_grant_of_one_client_is_none_for_another() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let stolen = bed.session().regions()[0].grant;
    let thief = nic("127.0.0.1");
    let rma = thief.open_rma(&RmaOptions::default()).unwrap();
    let domain = thief.alloc_pd().unwrap();
    let buffer = rma.expose(domain.allocate(64, Access::LOCAL_WRITE).unwrap(), Rights::NONE, None).unwrap();
    let mut portal: Portal = rma.create_portal(&domain, 4).unwrap();
    let refused = portal.read(&buffer, 0, &stolen, 0, 64, PATIENCE).unwrap_err();
    assert!(refused.to_string().contains("authentication failure"), "{refused}");
}

#[test]
fn an_announced_key_is_followed_without_asking_and_another_is_asked_for() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let mut follower = bed.session();
    let mut bytes = [0; 64];
    for turn in 1..=3 {
        bed.announce(turn, turn.into());
        // The old key is valid until the server changes it.
        follower.read("memory", 0, &mut bytes).unwrap();
        bed.server.change_key("memory").unwrap();
        follower.read("memory", 0, &mut bytes).unwrap();
    }
    assert!(bytes == contents()[..64]);
    // Several keys were announced and replaced while the client was idle.
    for turn in 4..=12 {
        bed.announce(turn, turn.into());
        bed.server.change_key("memory").unwrap();
    }
    follower.read("memory", 0, &mut bytes).unwrap();
    assert_eq!(follower.asked(), 1);
    // A client that connects between an announcement and the change also receives that announcement.
    bed.announce(13, 13);
    let mut late = bed.session();
    bed.server.change_key("memory").unwrap();
    late.read("memory", 0, &mut bytes).unwrap();
    assert_eq!(late.asked(), 1);
    bed.server.change_key("memory").unwrap();
    late.read("memory", 0, &mut bytes).unwrap();
    assert_eq!(late.asked(), 2, "this key was not announced");
    let error = bed.server.change_key("none").unwrap_err().to_string();
    assert_eq!(error, "the server grants no region none; it grants memory");
}

#[test]
fn who_cannot_stay_for_announcements_asks_again() {
    let bed = Bed::with("127.0.0.1", Rights::READ, |options| options.followers = 1);
    let mut stays = bed.session();
    let mut asks = bed.session();
    bed.announce(9, 1);
    bed.server.change_key("memory").unwrap();
    for session in [&mut stays, &mut asks] {
        session.read("memory", 0, &mut [0; 64]).unwrap();
    }
    assert_eq!((stays.asked(), asks.asked()), (1, 2));
}

#[test]
fn what_is_not_granted_is_told_before_anything_is_sent() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let mut session = bed.session();
    let error_text = |outcome: Result<(), Error>| outcome.unwrap_err().to_string();
    assert_eq!(
        error_text(session.write("memory", 0, &[1])),
        "the server does not grant write to region memory"
    );
    let key = RegionKey::new([9; 16]).unwrap();
    assert_eq!(error_text(session.rekey("memory", &key)), "the server does not grant rekey to region memory");
    assert_eq!(
        error_text(session.read("none", 0, &mut [0])),
        "the server grants no region none; it grants memory"
    );
    let end = format!("region memory has {LEN} bytes: {} is beyond its end", LEN + 1);
    assert_eq!(error_text(session.read("memory", LEN as u64, &mut [0])), end);
    let granted = session.regions()[0].grant;
    assert_eq!(granted.to_bytes()[46..], [0; 32], "the keys of write and rekey are not given");
    let shm = Device::shm().open().unwrap();
    let credential = Credential::Token(bed.token.clone());
    assert!(
        error_text(RmaSession::open(&shm, bed.pin(), credential).map(drop)).contains("use port udp or xdp")
    );
}

#[test]
fn a_server_that_has_ended_is_told() {
    let bed = Bed::new("127.0.0.1", Rights::READ);
    let mut session = bed.session();
    session.set_timeout(SHORT);
    drop(bed);
    let error = session.read("memory", 0, &mut [0; 64]).unwrap_err().to_string();
    assert!(error.contains("does not answer: the server has ended"), "{error}");
}
