//! The messages of 1RMA: encrypted one-sided operations without connections (1RMA paper, §3 to §5). The wire
//! format is Remora's own; `docs/reference/wire/rma.md` shows it.
//!
//! A message follows the UDP header in place of a BTH, on the port of RoCE. Its first byte distinguishes it
//! from a BTH. There is no ICRC; a 16-byte tag of AES-GCM ends each message.
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
//! The associated data is everything before the ciphertext, followed by the nonces of the operation's earlier
//! hops in order ([`TagSequence`]). A message is therefore valid for one operation and one position in it.

pub mod completion;
pub mod header;
mod message;
pub mod request;
pub mod solicit;
mod tag_sequence;

pub use completion::Status;
pub use header::{Class, Kind, Nonce, begins};
pub use message::{Body, Message};
pub use tag_sequence::{MAX_AAD, TagSequence};

/// Length of the tag that ends each message, in bytes.
pub const TAG_LEN: usize = 16;

/// Maximum length of an operation in bytes (1RMA paper, §3.1).
pub const MAX_OPERATION: u32 = 4096;

/// Length of a region's key in bytes, which a rekey writes.
pub const KEY_LEN: usize = 16;

/// Unit of payload tracking in bytes. Pieces start at a multiple of it, and all but the last have a multiple
/// as length.
pub const UNIT: u32 = 64;

/// Length of a data message without its payload, in bytes: header and tag.
pub const DATA_OVERHEAD: usize = header::LEN + TAG_LEN;

/// Length of a request in bytes, the longest message without payload.
pub const REQUEST_LEN: usize = header::LEN + request::LEN + TAG_LEN;

/// DSCP of 1RMA's traffic class on ports that write IP headers (1RMA paper, §6: a class of its own). RoCE
/// setups do not use CS2 by default.
pub const DSCP: u8 = 16;

#[cfg(test)]
mod tests;
