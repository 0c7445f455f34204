//! The messages between a replica and a client, or another replica, when they connect.

use super::{ClientId, Grant, MAX_REPLICAS, State};
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// The purpose of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of replicas of the store, according to the sender.
    pub replicas: usize,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// First word of the message: "RBH2".
const HELLO: u32 = u32::from_le_bytes(*b"RBH2");

impl Hello {
    /// Bytes of the message.
    pub const LEN: usize = 32;

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> [u8; Hello::LEN] {
        let (kind, replica, incarnation, more) = match self.purpose {
            Purpose::Use { wants_number } => (1, 0, 0, wants_number.into()),
            Purpose::Ask { replica, incarnation } => (2, replica, incarnation, 0),
            Purpose::Repair { replica, incarnation, store } => (3, replica, incarnation, store),
            Purpose::Mark { replica, incarnation, mark } => (4, replica, incarnation, mark.into()),
        };
        let mut out = [0; Hello::LEN];
        set_u32(&mut out, 0, HELLO);
        set_u32(&mut out, 4, kind);
        set_u32(&mut out, 8, replica as u32);
        set_u32(&mut out, 12, self.replicas as u32);
        set_u64(&mut out, 16, incarnation);
        set_u64(&mut out, 24, more);
        out
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != Hello::LEN || u32_at(bytes, 0) != HELLO {
            return None;
        }
        let replica = u32_at(bytes, 8) as usize;
        let replicas = u32_at(bytes, 12) as usize;
        let incarnation = u64_at(bytes, 16);
        let more = u64_at(bytes, 24);
        let purpose = match u32_at(bytes, 4) {
            1 if more <= 1 => Purpose::Use { wants_number: more == 1 },
            2 => Purpose::Ask { replica, incarnation },
            3 => Purpose::Repair { replica, incarnation, store: more },
            4 => Purpose::Mark { replica, incarnation, mark: u32::try_from(more).ok()? },
            _ => return None,
        };
        (replicas <= MAX_REPLICAS && replica < replicas).then_some(Hello { replicas, purpose })
    }
}

/// The answer of a replica to a [`Hello`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The state of the store, according to this replica.
    pub state: State,
    /// The client's number; `None` if it wanted none.
    pub number: Option<ClientId>,
    /// The location of the blocks, and the limits of this connection.
    pub grant: Grant,
}

impl Welcome {
    /// Bytes of the message.
    pub const LEN: usize = 8 + State::LEN + Grant::LEN;

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> [u8; Welcome::LEN] {
        let mut out = [0; Welcome::LEN];
        set_u32(&mut out, 0, self.number.map_or(u32::MAX, ClientId::get));
        let (state, grant) = out[8..].split_at_mut(State::LEN);
        self.state.encode(state);
        grant.copy_from_slice(&self.grant.encode());
        out
    }

    /// Decodes the message. Returns `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        if bytes.len() != Welcome::LEN {
            return None;
        }
        let number = match u32_at(bytes, 0) {
            u32::MAX => None,
            number => Some(ClientId::new(number)?),
        };
        let (state, grant) = bytes[8..].split_at(State::LEN);
        Some(Welcome { state: State::decode(state)?, number, grant: Grant::decode(grant)? })
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
        let good = Hello { replicas: 3, purpose: Purpose::Use { wants_number: true } }.encode();
        for (at, byte) in [(0, 0), (4, 0), (4, 5), (8, 3), (12, 8), (12, 0), (24, 2)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Hello::decode(&bad), None, "byte {at}");
        }
        assert_eq!((Hello::decode(&good[1..]), Hello::decode(&[])), (None, None));
        let mut bad =
            Hello { replicas: 3, purpose: Purpose::Mark { replica: 1, incarnation, mark: 1 } }.encode();
        bad[28] = 1;
        assert_eq!(Hello::decode(&bad), None);
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
        let good = Welcome { state, number: None, grant }.encode();
        // A client number that is too long, replica 5 of 5, an even number of replicas, and a wrong magic.
        for (at, byte) in [(2, 0xf0), (8, 5), (12, 6), (8 + State::LEN, 0)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Welcome::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Welcome::decode(&good[1..]), None);
    }
}
