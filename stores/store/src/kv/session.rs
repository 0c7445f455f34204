//! The messages that client and server exchange before the first operation, in addition to the queue pair
//! numbers. The caller chooses how they travel: a TCP exchange, or the private data of a connection manager.
//! Both fit 196 bytes, the minimum private data of all connection manager messages except REJ.

use crate::codec::{decode, encode, remote};
use remora_nic::Remote;
use serde::{Deserialize, Serialize};

/// The designs of the key-value store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Design {
    /// Self-verifying cuckoo table; an entry READ, then an object READ (Pilaf, ATC'13).
    Pilaf = 1,
    /// Hopscotch table with versioned lines; a neighbourhood READ, then an object READ (FaRM, NSDI'14).
    Farm = 2,
    /// Two-sided: every operation is a call to the server.
    TwoSided = 3,
    /// Clients perform all operations themselves (PRISM, SOSP'21 §6).
    Prism = 4,
    /// A kernel on the server's NIC looks up keys (StRoM, EuroSys'20 §5.2).
    Strom = 5,
}

impl Design {
    /// List of all designs.
    pub const ALL: [Design; 5] =
        [Design::Pilaf, Design::Farm, Design::TwoSided, Design::Prism, Design::Strom];

    /// Returns the design with this [`name`](Design::name), or `None` if there is none.
    pub fn named(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|design| design.name() == name)
    }

    /// Returns the name of the design on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Design::Pilaf => "pilaf",
            Design::Farm => "farm",
            Design::TwoSided => "two-sided",
            Design::Prism => "prism",
            Design::Strom => "strom",
        }
    }

    /// Returns a description of one line.
    pub fn about(self) -> &'static str {
        match self {
            Design::Pilaf => "Self-verifying cuckoo table: an entry READ, then a value READ (Pilaf)",
            Design::Farm => "Hopscotch neighbourhood READ, then a value READ (FaRM)",
            Design::TwoSided => "Every operation is a call",
            Design::Prism => "One indirect READ; PUTs by the client itself (PRISM)",
            Design::Strom => "A kernel on the server's NIC looks keys up (StRoM)",
        }
    }
}

/// The reason for which a client and a server cannot work together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The message is malformed, or of another version of the protocol.
    #[error("client and server speak different protocols or versions: check the address")]
    Malformed,
    /// The server has this other design.
    #[error("the server runs {}: choose that design", .0.name())]
    OtherDesign(Design),
    /// The client's window is larger than the server allows.
    #[error("the server allows {allowed} operations in flight on a connection")]
    WindowTooLarge {
        /// The maximum window that the server allows.
        allowed: u32,
    },
    /// The client's receive buffers are shorter than the server's short responses.
    #[error("receive buffers must hold {needed} bytes")]
    BuffersTooShort {
        /// The minimum length of a receive buffer in bytes.
        needed: u32,
    },
    /// The server has its maximum number of connections.
    #[error("the server has as many connections as it allows")]
    TooManyConnections,
    /// The client's memory is smaller than its own configuration needs.
    #[error("the client needs {needed} bytes of memory")]
    ArenaTooSmall {
        /// Bytes that the arena needs.
        needed: usize,
    },
}

/// First letters of both messages.
const HELLO: &[u8; 4] = b"RKV3";
const GRANT: &[u8; 4] = b"RKV4";

/// The first message, from client to server.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The design that the client uses.
    pub design: Design,
    /// Maximum number of operations that the client may have in flight.
    pub window: u32,
    /// Bytes of each of the client's receive buffers.
    pub eager: u32,
    /// Remote address of the buffer of slot 0, for long responses.
    #[serde(with = "remote")]
    pub replies: Remote,
    /// Bytes from one slot's buffer to the next.
    pub reply_stride: u64,
    /// Maximum length of a response in a slot's buffer, including its header.
    pub reply_len: u32,
}

impl Hello {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(HELLO, self)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Hello, SessionError> {
        decode(HELLO, bytes).ok_or(SessionError::Malformed)
    }
}

/// The answer of the server to a [`Hello`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The server's design.
    pub design: Design,
    /// Maximum number of operations in flight on this connection.
    pub window: u32,
    /// Seed of [`hash_key`](super::hash_key).
    pub hash_seed: u64,
    /// The table: entries (pilaf) or buckets (farm). The remote key is 0 if clients do not read the table.
    #[serde(with = "remote")]
    pub index: Remote,
    /// Number of entries or buckets over which keys are hashed.
    pub index_len: u64,
    /// The region of the objects.
    #[serde(with = "remote")]
    pub extents: Remote,
    /// This connection's staging pieces, for long requests.
    #[serde(with = "remote")]
    pub staging: Remote,
    /// Bytes of each piece, and from one piece to the next.
    pub staging_len: u64,
    /// Number of staging pieces.
    pub staging_count: u32,
    /// Bytes of each of the server's receive buffers.
    pub eager: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
}

impl Grant {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(GRANT, self)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Grant, SessionError> {
        decode(GRANT, bytes).ok_or(SessionError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::Key;

    #[test]
    fn both_messages_come_back_as_they_went() {
        let hello = Hello {
            design: Design::Farm,
            window: 16,
            eager: 1024,
            replies: Remote { addr: 0x1122_3344_5566_7788, rkey: Key::new(9) },
            reply_stride: 1 << 20,
            reply_len: 77,
        };
        let bytes = hello.encode();
        assert_eq!(bytes[..8], *b"RKV3\x01\x10\x80\x08");
        assert_eq!(Hello::decode(&bytes), Ok(hello));
        let grant = Grant {
            design: Design::Pilaf,
            window: 8,
            hash_seed: 1,
            index: Remote { addr: 2, rkey: Key::new(3) },
            index_len: 4,
            extents: Remote { addr: 5, rkey: Key::new(6) },
            staging: Remote { addr: 7, rkey: Key::new(8) },
            staging_len: 9,
            staging_count: 10,
            eager: 11,
            max_key: 12,
            max_value: 13,
        };
        assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
    }

    #[test]
    fn names_lead_back_to_their_designs() {
        assert!(Design::ALL.into_iter().all(|design| Design::named(design.name()) == Some(design)));
        assert_eq!(Design::named("two_sided"), None);
    }

    #[test]
    fn anything_else_is_malformed() {
        let bytes = Hello {
            design: Design::TwoSided,
            window: 1,
            eager: 1,
            replies: Remote { addr: 0, rkey: Key::new(0) },
            reply_stride: 0,
            reply_len: 0,
        }
        .encode();
        assert_eq!(Hello::decode(&bytes[..bytes.len() - 1]), Err(SessionError::Malformed));
        assert_eq!(Grant::decode(&bytes), Err(SessionError::Malformed));
        let mut other = bytes;
        other[4] = 5;
        assert_eq!(Hello::decode(&other), Err(SessionError::Malformed));
    }
}
