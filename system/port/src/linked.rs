//! Port `linked`: a UDP port on a shared address, with shared-memory links to neighbours.
//!
//! Neighbours are programs of this host that have other QPN ranges of the same address. A frame to any peer
//! may leave by UDP; frames to a neighbour may leave by its link, which is faster. So a link is never needed.
//! Where frames begin, and whether they are sealed, depends on the peer.
//!
//! The port may have further addresses, with the same QPN range at each. A peer has a number for each address
//! from which frames go to it.
//!
//! What a neighbour can do: it writes into the rings of its own link, as on port [`shm`](crate::shm). Its
//! frames must name an address of this host as their source, so that it cannot speak for another host.

mod further;
mod linked_port;
mod ranges;
mod wanted;

pub use linked_port::LinkedPort;
pub use wanted::Wanted;
