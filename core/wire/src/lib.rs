//! Parses and writes the packets of RoCE v2: one module per header, all with the same structure, and the
//! invariant CRC.
//!
//! A frame consists of Ethernet, IPv4 or IPv6, and UDP headers and the *transport bytes*. These are the base
//! transport header ([`bth`]), the extension headers of its op-code, the payload, 0 to 3 pad bytes, and the
//! 4 bytes of the invariant CRC ([`icrc`]). A [`Packet`] is everything from the BTH up to the pad. [`frame`]
//! defines the interface through which frames reach and leave a port. `docs/reference/wire/frames.md` shows
//! all layouts.
//!
//! # Structure of the header modules
//!
//! Each header module has the same parts in the same order: a diagram of the bytes; `LEN`; `View`, a
//! borrowed header whose length has been checked, with accessors in wire order; `Repr`, a plain `Copy` value
//! with `parse` and `emit`.
//!
//! # Panics
//!
//! Parsing never panics. Every `View::new`, [`Packet::parse`] and [`frame::dissect`] returns a value or a
//! [`WireError`] for any bytes, and every accessor of a `View` returns a value. The writers (`emit`, `seal`)
//! panic if the caller's buffer is too short, which is an error of the caller and cannot be caused by a
//! peer.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic_ack;
pub mod atomic_eth;
pub mod bth;
pub mod deth;
mod error;
pub mod ethernet;
pub mod frame;
mod header;
pub mod icrc;
pub mod ieth;
pub mod immdt;
pub mod ipv4;
pub mod ipv6;
pub mod irn;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod prism;
mod psn;
mod qpn;
pub mod reth;
pub mod rma;
pub mod strom;
pub mod udp;
pub mod xrceth;

pub use aeth::{NakCode, Syndrome};
pub use error::WireError;
pub use frame::{Address, Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start};
pub use opcode::{Opcode, Operation, Service};
pub use packet::{Extensions, Packet};
pub use psn::Psn;
pub use qpn::Qpn;

/// The UDP destination port of RoCE v2 (IBTA volume 1, annex A17).
pub const ROCE_PORT: u16 = 4791;
