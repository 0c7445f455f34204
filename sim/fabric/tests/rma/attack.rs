//! Attacks, numbered as in `docs/reference/rma.md`. Each test is named after the attempt of the attacker.

mod forged;
mod keys;
mod lies;
mod replay;
mod wire;

use remora_cipher::Aes;
use remora_nic::rma::{Cipher, Identity};
use remora_transport::rma::Settings;
use remora_wire::frame::{Endpoint, Route, Start};
use remora_wire::rma::{Body, Class, Kind, MAX_AAD, Message, Nonce, TAG_LEN, TagSequence, header, request};

use crate::bed::{Bed, CLIENT, SERVER};

/// Settings with timeouts of seconds, so that none ends an operation during an attack.
pub(crate) fn patient() -> Settings {
    Settings {
        dispatch_timeout: 10_000_000,
        timeout: 20_000_000,
        max_server_timeout: 20_000_000,
        ..Settings::paper()
    }
}

/// A message recorded from a link, from the first byte of 1RMA on.
#[derive(Clone)]
pub(crate) struct Taken {
    pub from: usize,
    pub to: usize,
    pub bytes: Vec<u8>,
}

impl Taken {
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(self.bytes[0]).expect("a message of 1RMA")
    }

    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.bytes).expect("a message that a NIC sent")
    }
}

impl Bed {
    /// Returns the messages sent since the tap was opened or last emptied.
    pub(crate) fn taken(&mut self) -> Vec<Taken> {
        assert_eq!(self.world.start(), Start::Ip);
        let below = Start::Ip.overhead(true);
        let sent = self.world.sent().into_iter();
        sent.map(|sent| Taken { from: sent.from, to: sent.to, bytes: sent.bytes[below..].to_vec() }).collect()
    }

    /// Delivers a message to node `receiver`, as if node `sender` had sent it.
    pub(crate) fn inject(&mut self, sender: usize, receiver: usize, bytes: &[u8]) {
        let source = self.world.endpoint(sender);
        self.inject_from(source, sender, receiver, bytes);
    }

    /// Like `inject`, with `source` as the sender's address and UDP port.
    pub(crate) fn inject_from(&mut self, source: Endpoint, sender: usize, receiver: usize, bytes: &[u8]) {
        let route = Route { source, ..self.world.route(sender, receiver) };
        let mut frame = vec![0; Start::Ip.overhead(true)];
        route.emit(Start::Ip, 0, bytes.len() as u16, &mut frame);
        frame.extend_from_slice(bytes);
        self.world.inject(sender, receiver, &frame);
        self.world.run_for(2);
    }

    pub(crate) fn again(&mut self, taken: &Taken) {
        self.inject(taken.from, taken.to, &taken.bytes);
    }

    /// Returns the messages that are sent from now on, until one of this kind is sent. The links must be cut;
    /// messages of the kinds in `deliver` are delivered all the same.
    pub(crate) fn until(&mut self, kind: Kind, deliver: &[Kind]) -> Vec<Taken> {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let taken = self.taken();
            let replayed = taken.iter().any(|taken| taken.kind() == kind);
            for taken in &taken {
                if deliver.contains(&taken.kind()) {
                    self.again(taken);
                }
            }
            all.extend(taken);
            if replayed {
                return all;
            }
            self.world.run_for(20);
        }
        panic!("no {kind:?} leaves")
    }

    pub(crate) fn cut_both(&mut self, cut: bool) {
        self.world.cut(SERVER, CLIENT, cut);
        self.world.cut(CLIENT, SERVER, cut);
    }
}

/// Seals messages with keys that the attacker has.
pub(crate) struct Forger {
    aes: Aes,
    counter: u64,
}

impl Forger {
    pub(crate) fn new() -> Forger {
        Forger { aes: Aes::new(2), counter: 0 }
    }

    pub(crate) fn nonce(&mut self) -> Nonce {
        self.counter += 1;
        Nonce { sender: 63 << 26, counter: self.counter }
    }

    /// Returns a complete message with a nonce of the forger.
    pub(crate) fn seal(
        &mut self,
        header: header::Repr,
        body: Body,
        tags: &TagSequence,
        key: &[u8; 16],
        text: &[u8],
    ) -> (Vec<u8>, Nonce) {
        let nonce = self.nonce();
        let header = header::Repr {
            nonce,
            length: if text.is_empty() { header.length } else { text.len() as u32 },
            ..header
        };
        let mut bytes = vec![0; Message::len(&header, &body)];
        let clear = Message::emit_clear(&header, &body, &mut bytes);
        let mut aad = [0; MAX_AAD];
        let aad = tags.aad(&bytes[..clear], &mut aad).to_vec();
        self.aes.load(0, key);
        let end = bytes.len() - TAG_LEN;
        bytes[clear..end].copy_from_slice(text);
        let tag = self.aes.seal(0, &nonce.bytes(), &aad, &mut bytes[clear..end]);
        bytes[end..].copy_from_slice(&tag);
        (bytes, nonce)
    }

    /// Opens a message and returns its plaintext.
    pub(crate) fn open(
        &mut self,
        message: &Message<'_>,
        tags: &TagSequence,
        key: &[u8; 16],
    ) -> Option<Vec<u8>> {
        let mut aad = [0; MAX_AAD];
        let aad = tags.aad(message.clear, &mut aad).to_vec();
        self.aes.load(0, key);
        let mut text = message.sealed.to_vec();
        self.aes.open(0, &message.header.nonce.bytes(), &aad, &mut text, message.tag).then_some(text)
    }

    pub(crate) fn derive(&mut self, key: &[u8; 16], identity: &Identity) -> [u8; 16] {
        self.aes.derive(key, &identity.bytes())
    }
}

/// Returns a request of this identity with an unused slot.
pub(crate) fn request(kind: Kind, region: u32, offset: u64, length: u32) -> (header::Repr, Body) {
    let header = header::Repr {
        kind,
        class: Class::Latency,
        slot: 900,
        region,
        offset,
        length,
        nonce: Nonce::default(),
    };
    (header, Body::Request(request::Repr { pid: 17, incarnation: 0x1234_5678, max_payload: 4096 }))
}
