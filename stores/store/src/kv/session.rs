//! The messages that client and server exchange before the first operation, in addition to the queue pair
//! numbers. The caller chooses how they travel: a TCP exchange, or the private data of a connection manager.
//! Both fit 196 bytes, the minimum private data of all connection manager messages except REJ.

use crate::words::{set_u32, set_u64, u32_at, u64_at};
use remora_memory::Key;
use remora_nic::Remote;

/// The designs of the key-value store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
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

    fn from_number(number: u32) -> Option<Design> {
        Design::ALL.into_iter().find(|design| *design as u32 == number)
    }
}

/// The reason for which a client and a server cannot work together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// The message is malformed, or of another version of the protocol.
    Malformed,
    /// The server has this other design.
    OtherDesign(Design),
    /// The client's window is larger than the server allows.
    WindowTooLarge {
        /// The maximum window that the server allows.
        allowed: u32,
    },
    /// The client's receive buffers are shorter than the server's short responses.
    BuffersTooShort {
        /// The minimum length of a receive buffer in bytes.
        needed: u32,
    },
    /// The server has its maximum number of connections.
    TooManyConnections,
    /// The client's memory is smaller than its own configuration needs.
    ArenaTooSmall {
        /// Bytes that the arena needs.
        needed: usize,
    },
}

impl core::fmt::Display for SessionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SessionError::Malformed => {
                write!(f, "client and server speak different protocols or versions: check the address")
            }
            SessionError::OtherDesign(design) => {
                write!(f, "the server runs {}: choose that design", design.name())
            }
            SessionError::WindowTooLarge { allowed } => {
                write!(f, "the server allows {allowed} operations in flight on a connection")
            }
            SessionError::BuffersTooShort { needed } => {
                write!(f, "receive buffers must hold {needed} bytes")
            }
            SessionError::TooManyConnections => write!(f, "the server has as many connections as it allows"),
            SessionError::ArenaTooSmall { needed } => write!(f, "the client needs {needed} bytes of memory"),
        }
    }
}

impl core::error::Error for SessionError {}

/// First words of both messages: "RKV1" and "RKV2", little-endian.
const HELLO: u32 = u32::from_le_bytes(*b"RKV1");
const GRANT: u32 = u32::from_le_bytes(*b"RKV2");

/// The first message, from client to server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The design that the client uses.
    pub design: Design,
    /// Maximum number of operations that the client may have in flight.
    pub window: u32,
    /// Bytes of each of the client's receive buffers.
    pub eager: u32,
    /// Remote address of the buffer of slot 0, for long responses.
    pub replies: Remote,
    /// Bytes from one slot's buffer to the next.
    pub reply_stride: u64,
    /// Maximum length of a response in a slot's buffer, including its header.
    pub reply_len: u32,
}

impl Hello {
    /// Bytes of the message.
    pub const LEN: usize = 40;

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> [u8; Hello::LEN] {
        let mut out = [0; Hello::LEN];
        set_u32(&mut out, 0, HELLO);
        set_u32(&mut out, 4, self.design as u32);
        set_u32(&mut out, 8, self.window);
        set_u32(&mut out, 12, self.eager);
        set_u64(&mut out, 16, self.replies.addr);
        set_u64(&mut out, 24, self.reply_stride);
        set_u32(&mut out, 32, self.replies.rkey.get());
        set_u32(&mut out, 36, self.reply_len);
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Hello, SessionError> {
        if bytes.len() != Hello::LEN || u32_at(bytes, 0) != HELLO {
            return Err(SessionError::Malformed);
        }
        Ok(Hello {
            design: Design::from_number(u32_at(bytes, 4)).ok_or(SessionError::Malformed)?,
            window: u32_at(bytes, 8),
            eager: u32_at(bytes, 12),
            replies: Remote { addr: u64_at(bytes, 16), rkey: Key::new(u32_at(bytes, 32)) },
            reply_stride: u64_at(bytes, 24),
            reply_len: u32_at(bytes, 36),
        })
    }
}

/// The answer of the server to a [`Hello`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The server's design.
    pub design: Design,
    /// Maximum number of operations in flight on this connection.
    pub window: u32,
    /// Seed of [`hash_key`](super::hash_key).
    pub hash_seed: u64,
    /// The table: entries (pilaf) or buckets (farm). The remote key is 0 if clients do not read the table.
    pub index: Remote,
    /// Number of entries or buckets over which keys are hashed.
    pub index_len: u64,
    /// The region of the objects.
    pub extents: Remote,
    /// This connection's staging pieces, for long requests.
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
    /// Bytes of the message.
    pub const LEN: usize = 96;

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> [u8; Grant::LEN] {
        let mut out = [0; Grant::LEN];
        set_u32(&mut out, 0, GRANT);
        set_u32(&mut out, 4, self.design as u32);
        set_u32(&mut out, 8, self.window);
        set_u32(&mut out, 12, self.eager);
        set_u64(&mut out, 16, self.hash_seed);
        set_u64(&mut out, 24, self.index.addr);
        set_u64(&mut out, 32, self.index_len);
        set_u64(&mut out, 40, self.extents.addr);
        set_u64(&mut out, 48, self.staging.addr);
        set_u64(&mut out, 56, self.staging_len);
        set_u32(&mut out, 64, self.index.rkey.get());
        set_u32(&mut out, 68, self.extents.rkey.get());
        set_u32(&mut out, 72, self.staging.rkey.get());
        set_u32(&mut out, 76, self.staging_count);
        set_u32(&mut out, 80, self.max_key);
        set_u32(&mut out, 84, self.max_value);
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Grant, SessionError> {
        if bytes.len() != Grant::LEN || u32_at(bytes, 0) != GRANT {
            return Err(SessionError::Malformed);
        }
        Ok(Grant {
            design: Design::from_number(u32_at(bytes, 4)).ok_or(SessionError::Malformed)?,
            window: u32_at(bytes, 8),
            eager: u32_at(bytes, 12),
            hash_seed: u64_at(bytes, 16),
            index: Remote { addr: u64_at(bytes, 24), rkey: Key::new(u32_at(bytes, 64)) },
            index_len: u64_at(bytes, 32),
            extents: Remote { addr: u64_at(bytes, 40), rkey: Key::new(u32_at(bytes, 68)) },
            staging: Remote { addr: u64_at(bytes, 48), rkey: Key::new(u32_at(bytes, 72)) },
            staging_len: u64_at(bytes, 56),
            staging_count: u32_at(bytes, 76),
            max_key: u32_at(bytes, 80),
            max_value: u32_at(bytes, 84),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(bytes[..16], *b"RKV1\x02\0\0\0\x10\0\0\0\0\x04\0\0");
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
        assert_eq!(Hello::decode(&bytes[..39]), Err(SessionError::Malformed));
        assert_eq!(Grant::decode(&bytes), Err(SessionError::Malformed));
        let mut other = bytes;
        other[4] = 6;
        assert_eq!(Hello::decode(&other), Err(SessionError::Malformed));
    }
}
