//! Port `linked`: a UDP port on a shared address, with shared-memory links to neighbours.
//!
//! Neighbours are programs of this host that have other QPN ranges of the same address. A frame to any peer
//! can be sent by UDP; a frame to a neighbour can also be sent over its link, which is faster. A link is
//! therefore never required. The start of a frame, and whether it has an ICRC, depend on the peer.
//!
//! The port may have further addresses, with the same QPN range at each. A remote endpoint has one peer
//! number for each local address that sends to it.
//!
//! Security: a neighbour writes only to the rings of its own link, as on port [`shm`](crate::shm). Its
//! frames must have an address of this host as their source, so that it cannot impersonate another host.

mod further;
mod linked_port;
mod ranges;
mod wanted;

pub use linked_port::LinkedPort;
pub use wanted::Wanted;
