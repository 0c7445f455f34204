//! The messages of 1RMA: encrypted one-sided operations without connections (1RMA paper, §3 to §5; the bytes
//! are Remora's own, `docs/WIRE.md` draws all of them).
//!
//! A message stands where a BTH would: behind UDP, on the port of RoCE. Its first byte tells the two apart.
//! There is no ICRC; a 16-byte tag of AES-GCM ends each message.
//!
//! ```text
//! header 32 | what the kind adds 0-12 | ciphertext of the payload | tag 16
//! ```
//!
//! | kind | message | adds | payload |
//! | ---- | ------- | ---- | ------- |
//! | E0 E1 E2 | read, write, rekey request (hop 1) | [`request`] | |
//! | E3 | solicit: the server asks for the bytes of a write or rekey (hop 2) | [`solicit`] | |
//! | E4 | data: of a read (hop 2), of a write or rekey (hop 3) | | yes |
//! | E5 | completion of a write or rekey (hop 4), or a refusal | [`completion`] | |
//! | E6 | NACK: the server is busy | | |
//! | E7 | authentication failure of a request | | |
//!
//! # What the tag covers
//!
//! The associated data is everything before the ciphertext, then the nonces of the operation's earlier hops,
//! in order ([`Chain`]). So a message fits one operation and one place in it.

mod chain;
pub mod completion;
pub mod header;
mod message;
pub mod request;
pub mod solicit;

pub use chain::{Chain, MAX_AAD};
pub use completion::Status;
pub use header::{Class, Kind, Nonce};
pub use message::{Body, Message};

/// Bytes of the tag that ends each message.
pub const TAG_LEN: usize = 16;

/// Bytes of an operation at most (1RMA paper, §3.1).
pub const MAX_OPERATION: u32 = 4096;

/// Bytes of a region's key, which a rekey writes.
pub const KEY_LEN: usize = 16;

/// A payload is tracked by units of so many bytes: pieces begin at a multiple of it, and all but the last one
/// have a multiple of it.
pub const UNIT: u32 = 64;

/// Bytes of a message beside its payload: a data message's header and tag.
pub const DATA_OVERHEAD: usize = header::LEN + TAG_LEN;

/// Bytes of the longest message without payload: a request.
pub const REQUEST_LEN: usize = header::LEN + request::LEN + TAG_LEN;

/// The DSCP of 1RMA's traffic class, where a port writes IP headers (1RMA paper, §6: a class of its own).
/// CS2 is no class that RoCE set-ups use by default.
pub const DSCP: u8 = 16;

/// Does a message of 1RMA begin with this byte, rather than a BTH?
#[inline]
pub const fn begins(byte: u8) -> bool {
    byte & 0xf8 == 0xe0
}

#[cfg(test)]
mod tests;
