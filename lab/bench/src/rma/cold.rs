//! More initiators than a server caches keys of, so that each request costs a key derivation and a key
//! set-up.
//!
//! The requests are built in advance, each with the key of another initiator, and a plain socket sends them.
//! The times for requests of one initiator and of all initiators then differ only by the work of the server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use remora_port::udp::Socket;
use remora_verbs::rma::Client as Identity;
use remora_wire::frame::Address;
use remora_wire::rma::{
    Body, Class, DATA_OVERHEAD, Kind, MAX_AAD, Message, Nonce, REQUEST_LEN, TAG_LEN, TagSequence, header,
    request,
};
use rustix::net::SocketAddrAny;

use super::client::Client;
use super::place::derived;
use super::{Bench, crypto, path};
use crate::testbed::pair::Peer;
use crate::testbed::protocol::{Command, NicCommand};
use crate::{PortName, Row, SHORTER, typical_of};
use remora_options::device::LOOPBACK;

/// The path of the case.
pub(crate) const CASE: &str = "cold/10000-initiators";

/// Number of initiators. By default, a server caches 1024 keys.
const INITIATORS: u32 = 10_000 / SHORTER as u32;
/// The number of bytes that each initiator reads.
const LEN: u32 = 64;
/// Number of trips in one reading, and of trips in a round.
const RUN: u64 = 100;
const TRIPS: usize = 2 * INITIATORS as usize;
/// Largest ratio of the cost of a key miss to the cost of key derivation and set-up alone.
const MOST: f64 = 1.5;

/// The requests in their form on the wire.
struct Requests {
    socket: Socket,
    destination: SocketAddrAny,
    frames: Vec<[u8; REQUEST_LEN]>,
}

/// Measures the cost of cold keys, compared to warm ones.
pub(crate) fn run(bench: &mut Bench<'_>, peer: &Peer, client: &Client) -> Result<()> {
    let case = path(PortName::Udp, CASE);
    if !bench.wants(&case) {
        return Ok(());
    }
    let requests = Requests::new(client)?;
    peer.run(client.end.command(NicCommand::Serve))?;
    requests.verify(&client.key, client.part.of(INITIATORS as usize) as u32)?;
    let trips = client.part.of(TRIPS).max(RUN as usize) as u64;
    let rounds = bench.rounds(&case, || {
        let warm = typical_of(RUN, trips, || requests.trip(0))?;
        let mut next = 0;
        let cold = typical_of(RUN, trips, || {
            next = (next + 1) % INITIATORS as usize;
            requests.trip(next)
        })?;
        let set_up = crypto::key_set_up()?;
        Ok([cold, warm, set_up, warm + MOST * set_up])
    })?;
    peer.run(Command::Sleep)?;
    let Some([cold, warm, set_up, bound]) = rounds else { return Ok(()) };
    let row = || Row::new("rma", &case, "latency_p50", "ns", &cold);
    bench.add(row().against("warm + 1.5 x (derivation + set-up)", &bound).within(1.0));
    bench.add(row().against("warm", &warm));
    bench.add(Row::new("rma", &case, "derivation_and_set_up", "ns", &set_up));
    Ok(())
}

/// Returns the initiator with this number.
fn initiator(number: u32) -> Identity {
    Identity { address: Address::from(LOOPBACK), pid: number, incarnation: 0x5a5a_5a5a }
}

fn nonce(number: u32) -> Nonce {
    Nonce { sender: 0x5a5a_5a5a, counter: u64::from(number) }
}

impl Requests {
    fn new(client: &Client) -> Result<Requests> {
        let socket = Socket::open(SocketAddr::from((LOOPBACK, 0)), &remora_port::udp::Options::default())?;
        let destination = socket.destination(SocketAddr::from((LOOPBACK, client.grant.server.udp_port)));
        let mut cipher = Aes::new(2);
        let frames = (0..INITIATORS).map(|number| {
            cipher.load(0, &derived(&client.key, &initiator(number), Kind::Read));
            request(number, client.grant.region, &mut cipher)
        });
        Ok(Requests { socket, destination, frames: frames.collect() })
    }

    /// Sends the request with this number and returns its answer, which contains data.
    fn exchange(&self, number: usize) -> Result<[u8; DATA_OVERHEAD + LEN as usize]> {
        self.socket.send_to(&self.frames[number], &self.destination).context("a request of 1RMA")?;
        let mut answer = [0; DATA_OVERHEAD + LEN as usize];
        loop {
            let Some(arrival) = self.socket.recv_from(&mut answer).context("an answer of 1RMA")? else {
                continue;
            };
            let is_data = answer[0] == Kind::Data as u8 && arrival.len == answer.len();
            ensure!(is_data, "a request of 1RMA was answered by another message than its data");
            return Ok(answer);
        }
    }

    fn trip(&self, number: usize) -> Result<()> {
        self.exchange(number).map(drop)
    }

    /// Checks that the answer to each of the first `count` initiators is encrypted under that initiator's
    /// key.
    fn verify(&self, region_key: &[u8; 16], count: u32) -> Result<()> {
        let mut cipher = Aes::new(2);
        for number in 0..count {
            let answer = self.exchange(number as usize)?;
            let message =
                Message::parse(&answer).map_err(|_| anyhow::anyhow!("an answer is not a message of 1RMA"))?;
            cipher.load(0, &derived(region_key, &initiator(number), Kind::Read));
            let mut aad = [0; MAX_AAD];
            let aad = TagSequence::new(nonce(number)).aad(message.clear, &mut aad);
            let mut text = [0; LEN as usize];
            text.copy_from_slice(message.sealed);
            let opens = cipher.open(0, &message.header.nonce.bytes(), aad, &mut text, message.tag);
            ensure!(opens, "the answer to initiator {number} is under another key");
        }
        Ok(())
    }
}

/// Builds a read of the first bytes of a region, with the key in the first slot of the cipher.
fn request(number: u32, region: u32, cipher: &mut Aes) -> [u8; REQUEST_LEN] {
    let Identity { pid, incarnation, .. } = initiator(number);
    let header = header::Repr {
        kind: Kind::Read,
        class: Class::Latency,
        slot: 0,
        region,
        offset: 0,
        length: LEN,
        nonce: nonce(number),
    };
    let body = Body::Request(request::Repr { pid, incarnation, max_payload: 4096 });
    let mut frame = [0; REQUEST_LEN];
    let clear = Message::emit_clear(&header, &body, &mut frame);
    let tag = cipher.seal(0, &header.nonce.bytes(), &frame[..clear], &mut []);
    frame[REQUEST_LEN - TAG_LEN..].copy_from_slice(&tag);
    frame
}
