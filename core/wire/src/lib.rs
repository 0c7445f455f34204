//! The bytes of RoCE v2: one file per header, all with the same grammar, and the check that closes a frame.
//!
//! A frame is Ethernet, IPv4 or IPv6, UDP, then the *transport bytes*. These are the base transport header
//! ([`bth`]), the extension headers that its op-code asks for, the payload, 0 to 3 pad bytes, and the 4 bytes
//! of the invariant CRC ([`icrc`]). [`Packet`] is everything from the BTH to before the pad; [`frame`] is the
//! seam over which frames reach and leave a port. `docs/WIRE.md` draws all of it.
//!
//! # One grammar
//!
//! Each header file reads in the same order: the picture of its bytes; `LEN`; `View`, a borrowed header whose
//! length has been checked, with accessors in wire order; `Repr`, a plain `Copy` value with `parse` and
//! `emit`.
//!
//! # Panics
//!
//! No reader panics. Every `View::new`, [`Packet::parse`] and [`frame::dissect`] answers any bytes with a
//! value or a [`WireError`], and every accessor of a `View` returns a value. The writers (`emit`, `seal`)
//! panic if the caller's own buffer is shorter than the length they publish: that is a bug of the caller's,
//! never the peer's doing.

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
pub use frame::{Address, Class, Egress, Endpoint, Ingress, Lease, Origin, Peer, Start};
pub use opcode::{Opcode, Operation, Service};
pub use packet::{Extensions, Packet};
pub use psn::Psn;
pub use qpn::Qpn;

/// The UDP destination port of RoCE v2 (IBTA volume 1, annex A17).
pub const ROCE_PORT: u16 = 4791;
