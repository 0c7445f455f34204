//! Tests that no key or value is readable in the network traffic: neither in the frames of 1RMA nor in the
//! calls over TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use remora_grants::{Certificate, Channel, Credential, GrantOptions, Pin, Token};
use remora_service::kv::rma::{RmaServer, RmaServerAddress, RmaSession};
use remora_service::kv::{self, ClientConfig, FarmDesign, KvSession, Limits, Session, Size};
use remora_service::server::Pace;
use remora_verbs::rma::{Rights, RmaOptions};
use remora_verbs::{Access, Context, Device, Listener, Mode};

const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &[u8] = b"a name that nobody else may read";
const SHORT: &[u8] = b"a short value that nobody else may read";

/// Returns a value that is longer than a receive buffer and than a command.
fn long() -> Vec<u8> {
    SHORT.iter().copied().cycle().take(6000).collect()
}

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn nic(capture: &Path) -> Context {
    Device::udp(here()).unwrap().capture(capture).mode(Mode::Dedicated).open().unwrap()
}

/// Returns the address of a proxy to `server` that records all bytes.
fn recorded(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind(here()).unwrap();
    let address = listener.local_addr().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&all);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(server).unwrap();
            for (mut source, mut destination) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while let Ok(count @ 1..) = source.read(&mut piece) {
                        kept.lock().unwrap().extend_from_slice(&piece[..count]);
                        if destination.write_all(&piece[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = destination.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, all)
}

fn holds(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Returns a capture of design farm over RC.
fn over_rc(capture: &Path) -> Vec<u8> {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().to_string();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let limits = Limits { clients: 1, ..Limits::default() };
            let nic = Device::udp(here()).unwrap().open().unwrap();
            let mut service = kv::open::<FarmDesign>(nic, &limits, Size::of_keys(100)).unwrap();
            service.work(Pace::default(), &listener, &stop).unwrap();
        });
        let mut session =
            Session::<FarmDesign>::connect(&nic(capture), &address, ClientConfig::default()).unwrap();
        session.put(NAME, SHORT).unwrap();
        assert_eq!(session.get(NAME).unwrap().unwrap(), SHORT);
        drop(session);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    std::fs::read(capture).unwrap()
}

#[test]
fn no_key_and_no_value_stands_in_clear_in_frames_or_calls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let token = Token::random().unwrap();
    let options =
        GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new().unwrap()) };
    let limits = Limits { clients: 4, ..Limits::default() };
    let serving = nic(&file("server"));
    let server = RmaServer::open(&serving, here(), options, &limits, &Size::of_keys(100)).unwrap();
    let (address, calls) = recorded(server.address());
    let pin = Pin { address, fingerprint: server.fingerprint() };
    let credential = Credential::Token(token.clone());
    let client = nic(&file("client"));
    let config = ClientConfig { max_value: 1 << 16, ..ClientConfig::default() };
    let servers = [RmaServerAddress { pin, credential: credential.clone() }];
    let mut session = RmaSession::connect(&client, &servers, config).unwrap();
    for value in [SHORT.to_vec(), long()] {
        session.put(NAME, &value).unwrap();
        assert!(session.get(NAME).unwrap().unwrap() == value);
    }
    session.delete(NAME).unwrap();
    session.put(NAME, SHORT).unwrap();
    server.change_keys().unwrap();
    assert_eq!(session.get(NAME).unwrap().unwrap(), SHORT, "with new grants");

    // A client whose keys this test knows reads all values.
    let other = nic(&file("other"));
    let rma = other.open_rma(&RmaOptions::default()).unwrap();
    let domain = other.alloc_pd().unwrap();
    let mut portal = rma.create_portal(&domain, 8).unwrap();
    let (_channel, grants) = Channel::open(pin, &credential, &portal.identity(), PATIENCE).unwrap();
    let buffer = domain.allocate(1 << 16, Access::LOCAL_WRITE).unwrap();
    let buffer = rma.expose(buffer, Rights::NONE, None).unwrap();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for granted in &grants {
        portal.read(&buffer, 0, &granted.grant, 0, granted.grant.len.min(1 << 16), PATIENCE).unwrap();
        // The keys follow address, port, RegionId and length: for reads, writes and rekeys.
        keys.extend(granted.grant.to_bytes()[30..].chunks(16).map(<[u8]>::to_vec));
    }
    keys.retain(|key| key.iter().any(|byte| *byte != 0));
    assert_eq!(keys.len(), 2, "to read, of two regions");
    let mut read = vec![0; 1 << 16];
    buffer.memory().read(0, &mut read).unwrap();
    // A line of the table holds 56 bytes, with its version on both sides.
    assert!(holds(&read, &SHORT[20..32]), "values were read");

    drop((session, portal, buffer, server));
    drop((serving, client, other, domain, rma));
    let mut all = calls.lock().unwrap().clone();
    assert!(all.len() > 8000, "calls were recorded: {} bytes", all.len());
    for name in ["server", "client", "other"] {
        let frames = std::fs::read(file(name)).unwrap();
        assert!(frames.len() > 6000, "frames were recorded: {name}, {} bytes", frames.len());
        all.extend(frames);
    }
    let token_text = token.to_string();
    for secret in [NAME, SHORT, &NAME[..12], &SHORT[..12], &SHORT[20..32], token_text.as_bytes()] {
        assert!(!holds(&all, secret), "{} stands in clear", String::from_utf8_lossy(secret));
    }
    for key in &keys {
        assert!(!holds(&all, key), "a key stands in clear");
    }
    // The same search finds the values in the traffic of RC.
    let clear = over_rc(&file("rc"));
    assert!(holds(&clear, SHORT) && holds(&clear, NAME));
}
