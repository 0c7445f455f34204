//! Tests of the key-value store over 1RMA: servers and clients in one process, over `udp`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remora_grants::{Caller, Certificate, Credential, Fingerprint, GrantOptions, Pin, Token};
use remora_memory::Key;
use remora_nic::Remote;
use remora_service::kv::rma::{RmaServer, RmaServerAddress, RmaSession};
use remora_service::kv::{ClientConfig, KvSession, Limits, Size};
use remora_store::kv::{Design, Hello};
use remora_verbs::rma::RmaOptions;
use remora_verbs::{Context, Device, Mode};

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn nic() -> Context {
    Device::udp(here()).unwrap().open().unwrap()
}

/// A server, and what its clients know of it.
struct Bed {
    server: RmaServer,
    address: RmaServerAddress,
}

impl Bed {
    fn new() -> Bed {
        Bed::of(Limits { clients: 4, ..Limits::default() }, 1000)
    }

    fn of(limits: Limits, keys: u32) -> Bed {
        let token = Token::random().unwrap();
        let options =
            GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new().unwrap()) };
        let context = Device::udp(here()).unwrap().mode(Mode::Dedicated).open().unwrap();
        let server = RmaServer::open(&context, here(), options, &limits, &Size::of_keys(keys)).unwrap();
        let pin = Pin { address: server.address(), fingerprint: server.fingerprint() };
        Bed { server, address: RmaServerAddress { pin, credential: Credential::Token(token) } }
    }

    fn session(&self) -> RmaSession {
        session(std::slice::from_ref(&self.address))
    }
}

fn session(servers: &[RmaServerAddress]) -> RmaSession {
    let config = ClientConfig { window: 4, max_key: 1024, max_value: MIB as u32, ..ClientConfig::default() };
    RmaSession::connect(&nic(), servers, config).unwrap()
}

fn refused(address: &RmaServerAddress) -> String {
    let refused = RmaSession::connect(&nic(), std::slice::from_ref(address), ClientConfig::default());
    let words = refused.err().expect("no session").chain();
    assert!(!words.contains('\n'), "one line: {words}");
    words
}

fn value(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index as u64 * 31) ^ seed) as u8).collect()
}

#[test]
fn values_of_any_length_come_back_and_go() {
    let bed = Bed::new();
    let mut session = bed.session();
    assert_eq!(session.get(b"none").unwrap(), None);
    let lens = [0, 1, 56, 57, 1000, 4096, 5000, 70_000, MIB / 4];
    for (index, len) in lens.into_iter().enumerate() {
        session.put(&index.to_le_bytes(), &value(len as u64, len)).unwrap();
    }
    for (index, len) in lens.into_iter().enumerate() {
        let got = session.get(&index.to_le_bytes()).unwrap().expect("it is there");
        assert!(got == value(len as u64, len), "{len} bytes");
    }
    let long = [b'k'; 1024];
    session.put(&long, b"of a long key").unwrap();
    assert_eq!(session.get(&long).unwrap().unwrap(), b"of a long key");
    assert_eq!(bed.server.keys(), lens.len() as u64 + 1);
    assert!(session.delete(&long).unwrap() && !session.delete(&long).unwrap());
    assert_eq!(session.get(&long).unwrap(), None);
    assert!(session.store(b"key", &vec![0; MIB + 1]).unwrap().unwrap().contains("--max-value"));
    session.put(b"key", b"after that").unwrap();
}

#[test]
fn all_keys_are_listed_page_by_page() {
    let bed = Bed::new();
    let mut session = bed.session();
    let names: Vec<Vec<u8>> =
        (0..200u32).map(|key| [&[b'x'; 400][..], &key.to_le_bytes()].concat()).collect();
    for name in &names {
        session.put(name, b"").unwrap();
    }
    let mut keys: Vec<Vec<u8>> = Vec::new();
    session
        .list(&mut |key| {
            keys.push(key.to_vec());
            Ok(())
        })
        .unwrap();
    keys.sort();
    keys.dedup();
    let mut names = names;
    names.sort();
    assert!(keys == names, "{} of {} keys", keys.len(), names.len());
}

/// Clients overwrite and read the same keys: each value that is read is one that was stored.
#[test]
fn no_reader_sees_a_torn_value_while_writers_overwrite() {
    const KEYS: u64 = 4;
    const ROUNDS: u64 = 120;
    let bed = Bed::new();
    let len = |version: u64| (version % 7 * 300) as usize + 8;
    let stored = |version: u64| {
        let mut bytes = value(version, len(version));
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes
    };
    let mut first = bed.session();
    for key in 0..KEYS {
        first.put(&key.to_le_bytes(), &stored(0)).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = bed.session();
            for version in 1..ROUNDS {
                writer.put(&(version % KEYS).to_le_bytes(), &stored(version)).unwrap();
            }
            over.store(true, Ordering::Release);
        });
        let mut seen = HashMap::new();
        while !over.load(Ordering::Acquire) {
            for key in 0..KEYS {
                let got = first.get(&key.to_le_bytes()).unwrap().expect("it is always there");
                let version = u64::from_le_bytes(got[..8].try_into().unwrap());
                assert!(got == stored(version), "version {version}");
                let before = seen.insert(key, version).unwrap_or(0);
                assert!(before <= version, "{before} was seen before {version}");
            }
        }
    });
}

#[test]
fn a_server_of_two_ends_under_load_and_no_get_fails() {
    let one = Bed::new();
    let other = Bed::new();
    let mut session = session(&[one.address.clone(), other.address.clone()]);
    for key in 0..50u64 {
        session.put(&key.to_le_bytes(), &value(key, 100)).unwrap();
    }
    assert_eq!((one.server.keys(), other.server.keys()), (50, 50), "PUTs are at both");
    let mut one = Some(one);
    for round in 0..20u64 {
        if round == 5 {
            one = None;
        }
        for key in 0..50u64 {
            let got = session.get(&key.to_le_bytes()).unwrap();
            assert_eq!(got, Some(value(key, 100)), "round {round}");
        }
    }
    assert!(one.is_none());
    session.put(b"later", b"value").unwrap();
    assert!(session.delete(&7u64.to_le_bytes()).unwrap());
    assert_eq!(session.get(b"later").unwrap().unwrap(), b"value");
    drop(other);
    let gone = session.get(b"later").unwrap_err().chain();
    assert!(gone.contains("has hung up") || gone.contains("no server gives grants"), "{gone}");
}

/// Keys change while a client reads, with and without announcement, at one server and at one of two.
#[test]
fn keys_that_change_cost_no_get() {
    let one = Bed::new();
    let other = Bed::new();
    let mut alone = one.session();
    let mut both = session(&[one.address.clone(), other.address.clone()]);
    both.put(b"key", b"value").unwrap();
    for round in 0..20 {
        if round % 2 == 0 {
            one.server.announce(Duration::from_millis(1)).unwrap();
        }
        one.server.change_keys().unwrap();
        for session in [&mut alone, &mut both] {
            assert_eq!(session.get(b"key").unwrap().unwrap(), b"value", "round {round}");
        }
    }
    // The first server answers, so the end of the other one goes unnoticed.
    drop(other);
    for _ in 0..10 {
        assert_eq!(both.get(b"key").unwrap().unwrap(), b"value");
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn keys_that_change_faster_than_a_client_can_follow_are_told_in_a_line() {
    let bed = Bed::new();
    let mut session = bed.session();
    session.put(b"key", b"value").unwrap();
    let over = AtomicBool::new(false);
    let words = std::thread::scope(|scope| {
        // The thread ends with this one, even if this one panics.
        let ends = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                bed.server.change_keys().unwrap();
            }
        });
        let until = Instant::now() + PATIENCE;
        let words = loop {
            if let Err(error) = session.get(b"key") {
                break error.chain();
            }
            assert!(Instant::now() < until, "it follows");
        };
        drop(ends);
        words
    });
    assert!(words.contains("changes faster than this client can follow") && !words.contains('\n'), "{words}");
}

#[test]
fn who_may_not_come_gets_a_line_that_says_how() {
    let bed = Bed::of(Limits { clients: 1, ..Limits::default() }, 100);
    let RmaServerAddress { pin, .. } = bed.address;
    let wrong = Pin { fingerprint: Fingerprint([7; 32]), ..pin };
    let mended = |words: String, hint: &str| assert!(words.contains(hint), "{words}");
    mended(refused(&RmaServerAddress { pin: wrong, ..bed.address.clone() }), "has another fingerprint");
    let token = Credential::Token(Token::random().unwrap());
    mended(
        refused(&RmaServerAddress { credential: token, ..bed.address.clone() }),
        "take the token that it printed",
    );
    let nobody = Pin { address: free_address(), ..pin };
    mended(refused(&RmaServerAddress { pin: nobody, ..bed.address.clone() }), "no server gives grants");
    let _one = bed.session();
    mended(refused(&bed.address), "has as many clients as it takes");
    // If one of two servers has the wrong certificate, this is an error, too.
    let two = Bed::new();
    let servers = [two.address.clone(), RmaServerAddress { pin: wrong, ..bed.address.clone() }];
    let error = RmaSession::connect(&nic(), &servers, ClientConfig::default()).err().expect("no session");
    mended(error.chain(), "has another fingerprint");
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind(here()).unwrap().local_addr().unwrap()
}

/// An admitted client may send anything: at worst its own connection is closed.
#[test]
fn calls_that_no_correct_client_makes_end_their_connection_alone() {
    let bed = Bed::new();
    let mut good = bed.session();
    good.put(b"key", b"value").unwrap();
    let RmaServerAddress { pin, credential } = bed.address.clone();
    let nic = nic();
    let rma = nic.open_rma(&RmaOptions::default()).unwrap();
    let portal = rma.create_portal(&nic.alloc_pd().unwrap(), 1).unwrap();
    let put = |key_len: u32| {
        let header = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &key_len.to_le_bytes(), &[0; 4]].concat();
        [&[1, 0, 0, 0, 0][..], &header, b"key"].concat()
    };
    let messages: [Vec<u8>; 7] = [
        vec![],
        vec![0; 5],
        vec![1, 0, 0, 0, 0],
        put(u32::MAX),
        [&[2, 9, 0, 0, 0][..], &[0; 64]].concat(),
        vec![2; 2000],
        vec![3, 0, 0, 0, 0],
    ];
    for (number, message) in messages.iter().enumerate() {
        for hello in [false, true] {
            let (mut caller, _) =
                Caller::open(pin, &credential, &portal.identity(), PATIENCE, 1 << 16).unwrap();
            if hello {
                caller.send(&[&[1, 0, 0, 0, 0][..], &say_hello()].concat()).unwrap();
            }
            caller.send(message).unwrap();
            let until = Instant::now() + PATIENCE;
            while caller.try_recv().is_ok() {
                assert!(Instant::now() < until, "message {number} is taken");
                let _ = caller.wait(Instant::now() + Duration::from_millis(50));
            }
        }
    }
    assert_eq!(good.get(b"key").unwrap().unwrap(), b"value");
    good.put(b"key", b"another").unwrap();
    assert_eq!(bed.server.keys(), 1);
}

/// Returns a client's first message with a window of four.
fn say_hello() -> Vec<u8> {
    let replies = Remote { addr: 0, rkey: Key::new(0) };
    Hello { design: Design::Farm, window: 4, eager: 1024, replies, reply_stride: 4096, reply_len: 4096 }
        .encode()
}
