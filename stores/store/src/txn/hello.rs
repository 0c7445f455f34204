//! The messages between a client and a shard when they connect.

use serde::{Deserialize, Serialize};

use super::{Grant, farm};
use crate::codec::{decode, encode};

/// The designs of the transaction store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Design {
    /// The design PRISM-TX.
    PrismTx,
    /// FaRM: lock, validate, update.
    Farm,
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
}

/// The first message of a connection, from the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// A number above 0 that no other client has or had.
    pub name: u64,
    /// The number of this shard in the client's map.
    pub shard: u32,
    /// Number of shards in the client's map.
    pub shards: u32,
}

/// First letters of the message.
const HELLO: &[u8; 4] = b"RTH2";

impl Hello {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(HELLO, self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        decode(HELLO, bytes).filter(|hello: &Hello| hello.name != 0 && hello.shard < hello.shards)
    }
}

/// The maximum size of a client's transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    fn is_sound(&self) -> bool {
        match self {
            Granted::PrismTx(grant) => grant.is_sound(),
            Granted::Farm(grant) => grant.is_sound(),
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// First letters of the message.
const WELCOME: &[u8; 4] = b"RTW2";

impl Welcome {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(WELCOME, self)
    }

    /// Decodes the message. Returns `None` if it is malformed or inconsistent.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        decode(WELCOME, bytes).filter(|welcome: &Welcome| welcome.run != 0 && welcome.granted.is_sound())
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
        let bytes = hello.encode();
        assert_eq!(bytes, b"RTH2\x4d\x01\x02");
        assert!((0..bytes.len()).all(|len| Hello::decode(&bytes[..len]).is_none()));
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
        let unsound = Granted::Farm(farm::Grant { holder: 0, ..grant });
        assert_eq!(Welcome::decode(&Welcome { granted: unsound, ..welcome.clone() }.encode()), None);
        assert_eq!(Welcome::decode(&Welcome { run: 0, ..welcome }.encode()), None);
        let mut other = bytes;
        // Behind the magic, the four numbers of the shard and the four limits.
        other[4 + 6 + 5] = 2;
        assert_eq!(Welcome::decode(&other), None, "no such design");
    }
}
