//! The messages between a client and a shard when they connect.

use super::{Grant, farm};
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// The designs of the transaction store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Design {
    /// The design PRISM-TX.
    PrismTx = 1,
    /// FaRM: lock, validate, update.
    Farm = 2,
}

impl Design {
    /// List of all designs.
    pub const ALL: [Design; 2] = [Design::PrismTx, Design::Farm];

    /// Returns the name of the design on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Design::PrismTx => "prism-tx",
            Design::Farm => "farm",
        }
    }

    /// Returns a description of one line.
    pub fn about(self) -> &'static str {
        match self {
            Design::PrismTx => "Optimistic, ordered by timestamps, over PRISM's chains",
            Design::Farm => "Lock, validate, update, over plain verbs (FaRM)",
        }
    }

    fn of(word: u32) -> Option<Design> {
        Design::ALL.into_iter().find(|design| *design as u32 == word)
    }
}

/// The first message of a connection, from the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// A number above 0 that no other client has or had.
    pub name: u64,
    /// The number of this shard in the client's map.
    pub shard: u32,
    /// Number of shards in the client's map.
    pub shards: u32,
}

/// First word of the message: "RTH1".
const HELLO: u32 = u32::from_le_bytes(*b"RTH1");

impl Hello {
    /// Bytes of the message.
    pub const LEN: usize = 24;

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> [u8; Hello::LEN] {
        let mut out = [0; Hello::LEN];
        set_u32(&mut out, 0, HELLO);
        set_u64(&mut out, 8, self.name);
        set_u32(&mut out, 16, self.shard);
        set_u32(&mut out, 20, self.shards);
        out
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != Hello::LEN || u32_at(bytes, 0) != HELLO || u32_at(bytes, 4) != 0 {
            return None;
        }
        let hello = Hello { name: u64_at(bytes, 8), shard: u32_at(bytes, 16), shards: u32_at(bytes, 20) };
        (hello.name != 0 && hello.shard < hello.shards).then_some(hello)
    }
}

/// The maximum size of a client's transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Maximum number of keys per transaction.
    pub max_keys: u32,
    /// Maximum number of concurrent transactions.
    pub window: u32,
}

/// The grant of a shard of either design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The grant of a PRISM-TX shard.
    PrismTx(Grant),
    /// The grant of a FaRM shard.
    Farm(farm::Grant),
}

impl Granted {
    /// Returns the design of the shard.
    pub fn design(&self) -> Design {
        match self {
            Granted::PrismTx(_) => Design::PrismTx,
            Granted::Farm(_) => Design::Farm,
        }
    }

    /// Returns the remote key of the shard's memory.
    pub fn key(&self) -> remora_memory::Key {
        match self {
            Granted::PrismTx(grant) => grant.slots.rkey,
            Granted::Farm(grant) => grant.index.rkey,
        }
    }
}

/// The answer of a shard to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Number of the shard.
    pub shard: u32,
    /// Number of the shard's current run. It differs each time the shard starts.
    pub run: u64,
    /// Start of this run in microseconds since 1970. The store's time is counted from the start of shard 0.
    pub began: u64,
    /// Address of the shard's [`Incarnations`](super::Incarnations).
    pub incarnations: u64,
    /// The limits for clients, the same at all shards.
    pub limits: Limits,
    /// Address of the shard's memory, and the limits of this client.
    pub granted: Granted,
}

/// First word of the message: "RTW1".
const WELCOME: u32 = u32::from_le_bytes(*b"RTW1");
/// Bytes before the grant.
const FRONT: usize = 56;

impl Welcome {
    /// Encodes the message, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; FRONT];
        set_u32(&mut out, 0, WELCOME);
        set_u32(&mut out, 4, self.granted.design() as u32);
        set_u64(&mut out, 8, self.run);
        set_u64(&mut out, 16, self.began);
        set_u64(&mut out, 24, self.incarnations);
        let Limits { max_key, max_value, max_keys, window } = self.limits;
        for (at, word) in [self.shard, max_key, max_value, max_keys, window].into_iter().enumerate() {
            set_u32(&mut out, 32 + 4 * at, word);
        }
        out.extend(match &self.granted {
            Granted::PrismTx(grant) => grant.encode(),
            Granted::Farm(grant) => grant.encode(),
        });
        out
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        let front = bytes.get(..FRONT)?;
        if u32_at(front, 0) != WELCOME {
            return None;
        }
        let granted = match Design::of(u32_at(front, 4))? {
            Design::PrismTx => Granted::PrismTx(Grant::decode(&bytes[FRONT..])?),
            Design::Farm => Granted::Farm(farm::Grant::decode(&bytes[FRONT..])?),
        };
        let word = |at: usize| u32_at(front, 32 + 4 * at);
        let limits = Limits { max_key: word(1), max_value: word(2), max_keys: word(3), window: word(4) };
        let run = u64_at(front, 8);
        let began = u64_at(front, 16);
        let incarnations = u64_at(front, 24);
        (run != 0).then_some(Welcome { shard: word(0), run, began, incarnations, limits, granted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::Key;
    use remora_nic::Remote;

    #[test]
    fn messages_come_back_as_they_went_and_nothing_else_does() {
        let hello = Hello { name: 77, shard: 1, shards: 2 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert!((0..Hello::LEN).all(|len| Hello::decode(&hello.encode()[..len]).is_none()));
        for wrong in [Hello { name: 0, ..hello }, Hello { shard: 2, ..hello }] {
            assert_eq!(Hello::decode(&wrong.encode()), None);
        }
        let grant = farm::Grant {
            index: Remote { addr: 0x4000, rkey: Key::new(9) },
            homes: 100,
            objects: 0x9000,
            keys: 60,
            log: 0xa000,
            max_pair: 600,
            window: 16,
            max_keys: 8,
            holder: 3,
            reach: 7,
        };
        let limits = Limits { max_key: 64, max_value: 500, max_keys: 8, window: 16 };
        let granted = Granted::Farm(grant);
        let welcome = Welcome { shard: 1, run: 5, began: 6, incarnations: 0x8000, limits, granted };
        let bytes = welcome.encode();
        assert_eq!(Welcome::decode(&bytes), Some(welcome.clone()));
        assert!((0..bytes.len()).all(|len| Welcome::decode(&bytes[..len]).is_none()));
        assert_eq!(Welcome::decode(&Welcome { run: 0, ..welcome }.encode()), None);
        let mut other = bytes;
        other[4] = 3;
        assert_eq!(Welcome::decode(&other), None, "no such design");
    }
}
