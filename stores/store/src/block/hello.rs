//! The messages between a replica and a client, or another replica, when they connect.

use serde::{Deserialize, Serialize};

use super::{ClientId, Grant, MAX_REPLICAS, State};
use crate::codec::{decode, encode};

/// The purpose of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A client reads and writes blocks.
    Use {
        /// True if the client will write and has no client number yet.
        wants_number: bool,
    },
    /// A replica asks for the state of the store. The connection is closed after the answer.
    Ask {
        /// Index of the replica that asks.
        replica: usize,
        /// Incarnation of the replica that asks; 0 if it has none yet.
        incarnation: u64,
    },
    /// An empty replica reads all blocks to repair itself.
    Repair {
        /// Index of the replica that is repaired.
        replica: usize,
        /// The incarnation that the replica will have after the repair.
        incarnation: u64,
        /// The store to which the replica belongs.
        store: u64,
    },
    /// A replica moves the mark of its client numbers. The connection is closed after the answer.
    Mark {
        /// Index of the replica whose mark moves.
        replica: usize,
        /// Incarnation of that replica.
        incarnation: u64,
        /// The new mark.
        mark: u32,
    },
}

/// The first message of a connection, from the peer that connects.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Number of replicas of the store, according to the sender.
    pub replicas: usize,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// First letters of both messages.
const HELLO: &[u8; 4] = b"RBH3";
const WELCOME: &[u8; 4] = b"RBW2";

impl Hello {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(HELLO, self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        let sound = |hello: &Hello| {
            let replica = match hello.purpose {
                Purpose::Use { .. } => 0,
                Purpose::Ask { replica, .. }
                | Purpose::Repair { replica, .. }
                | Purpose::Mark { replica, .. } => replica,
            };
            hello.replicas <= MAX_REPLICAS && replica < hello.replicas
        };
        decode(HELLO, bytes).filter(sound)
    }
}

/// The answer of a replica to a [`Hello`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The state of the store, according to this replica.
    pub state: State,
    /// The client's number; `None` if it wanted none.
    pub number: Option<ClientId>,
    /// The location of the blocks, and the limits of this connection.
    pub grant: Grant,
}

impl Welcome {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(WELCOME, self)
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        let sound = |welcome: &Welcome| welcome.state.is_sound() && welcome.grant.is_sound();
        decode(WELCOME, bytes).filter(sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Design, Layout};
    use crate::heap::Class;
    use remora_memory::Key;
    use remora_nic::Remote;

    #[test]
    fn every_hello_comes_back_as_it_went_and_nothing_else_does() {
        let replica = 6;
        let incarnation = u64::MAX - 3;
        for purpose in [
            Purpose::Use { wants_number: false },
            Purpose::Use { wants_number: true },
            Purpose::Ask { replica, incarnation },
            Purpose::Repair { replica, incarnation, store: u64::MAX },
            Purpose::Mark { replica, incarnation, mark: u32::MAX },
        ] {
            let hello = Hello { replicas: 7, purpose };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        let uses = Purpose::Use { wants_number: true };
        let good = Hello { replicas: 3, purpose: uses }.encode();
        assert_eq!(good, b"RBH3\x03\x00\x01");
        // The magic, the number of replicas, a purpose that does not exist, and no truth value.
        for (at, byte) in [(0, 0), (4, 8), (4, 0), (5, 4), (6, 2)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(Hello::decode(&bad), None, "byte {at}");
        }
        for purpose in [
            Purpose::Ask { replica: 3, incarnation },
            Purpose::Repair { replica: 3, incarnation, store: 1 },
            Purpose::Mark { replica: 3, incarnation, mark: 1 },
        ] {
            assert_eq!(Hello::decode(&Hello { replicas: 3, purpose }.encode()), None, "replica 3 of 3");
        }
        assert!((0..good.len()).all(|len| Hello::decode(&good[..len]).is_none()));
        assert_eq!(Hello::decode(&[&good[..], &[0]].concat()), None);
    }

    #[test]
    fn every_welcome_comes_back_as_it_went_and_nothing_else_does() {
        let grant = Grant {
            design: Design::AbdLock,
            layout: Layout { blocks: 5, block_len: 1024 },
            table: Remote { addr: 1 << 40, rkey: Key::new(7) },
            class: Class { list: 0, base: 0, size: 0, count: 0 },
            lease: 13,
        };
        let incarnations = std::array::from_fn(|at| if at < 5 { at as u64 + 1 } else { 0 });
        let marks = std::array::from_fn(|at| at as u32 + 9);
        let state = State { replica: 4, replicas: 5, store: 77, incarnations, marks };
        for number in [None, ClientId::new(0), ClientId::new((1 << ClientId::BITS) - 1)] {
            let welcome = Welcome { state, number, grant };
            assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        }
        let good = Welcome { state, number: None, grant };
        let bytes = good.encode();
        assert!((0..bytes.len()).all(|len| Welcome::decode(&bytes[..len]).is_none()));
        for state in [State { replica: 5, ..state }, State { replicas: 6, ..state }] {
            assert_eq!(Welcome::decode(&Welcome { state, ..good }.encode()), None, "{state:?}");
        }
        let grant = Grant { layout: Layout { blocks: 0, ..grant.layout }, ..grant };
        assert_eq!(Welcome::decode(&Welcome { grant, ..good }.encode()), None);
        let long = encode(WELCOME, &(state, Some(1_u32 << ClientId::BITS), good.grant));
        assert_eq!(Welcome::decode(&long), None, "a client number of 21 bits");
    }
}
