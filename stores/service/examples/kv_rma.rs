//! An encrypted key-value store over 1RMA: two servers with the same pairs, and a client of both. One server
//! ends, and the client continues to read. `cargo run --example kv_rma`.

use std::net::SocketAddr;

use remora_grants::{Certificate, Credential, GrantOptions, Pin, Token};
use remora_service::kv::rma::{RmaServer, RmaServerAddress, RmaSession};
use remora_service::kv::{KvSession as _, Limits, Size};
use remora_verbs::{Device, Mode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here: SocketAddr = "127.0.0.1:0".parse()?;
    let token = Token::random()?;
    let certificate = Certificate::new()?;
    let options = GrantOptions { token: Some(token.clone()), ..GrantOptions::new(certificate) };
    let open = || -> Result<RmaServer, Box<dyn std::error::Error>> {
        let nic = Device::udp(here)?.mode(Mode::Dedicated).open()?;
        let limits = Limits { clients: 2, ..Limits::default() };
        Ok(RmaServer::open(&nic, here, options.clone(), &limits, &Size::of_keys(1000))?)
    };
    let first = open()?;
    let second = open()?;
    let servers = [&first, &second].map(|server| RmaServerAddress {
        pin: Pin { address: server.address(), fingerprint: server.fingerprint() },
        credential: Credential::Token(token.clone()),
    });
    let mut session = RmaSession::connect(&Device::udp(here)?.open()?, &servers, Default::default())?;
    session.put(b"colour", b"blue")?;
    drop(first);
    let value = session.get(b"colour")?;
    println!("colour: {}", String::from_utf8_lossy(&value.expect("what was stored")));
    Ok(())
}
