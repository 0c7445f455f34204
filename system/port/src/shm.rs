//! Port `shm`: rings in shared memory between processes of one host.
//!
//! Frames begin at the IPv4 or IPv6 header. Their ICRC is left zero by agreement, because the bytes cross
//! no wire. A pair of NICs shares a [`Link`]: two rings in a memfd, one for each direction. `ring`
//! implements the protocol, `map` the memory, and `setup` the exchange by which two processes come to share
//! it. [`ShmPort`] holds the links of a NIC and is the port. [`ring()`] and [`Link::rings`] give access to
//! the bare rings, to measure the cost of the port and of the layers above it.
//!
//! Security: a peer shares only the rings of its own link with us, never other memory. Lengths and
//! positions are checked before use, and a link whose words make no sense is cut off. The memory cannot be
//! truncated by the peer. When a peer dies, its socket hangs up. Frames of other users (if these are
//! admitted at all) are read through a private copy.

mod ends;
mod link;
mod link_table;
mod map;
mod outgoing;
mod ring;
mod setup;
mod shm_port;
mod watch;

#[cfg(test)]
mod tests;

pub use ends::{Receiver, Sender, ring};
pub use link::Link;
pub use ring::{Broken, Cells, Consumer, Found, Geometry, Producer, SLOT, WORD, slots_of};
pub use setup::{Admit, Listener, SetupError, connect, introduce, peer_process, take};
pub use shm_port::{EVERYONE, Limits, ShmPort};

/// Bytes of headers and trailer that a frame may have in addition to its payload: IPv6, UDP, BTH, the
/// longest extension headers and the ICRC, with some to spare.
const OVERHEAD: u32 = 188;

/// Small rings for a program that has many links: 256 slots (16 KiB) in each direction, and frames of the
/// same size as in [`DEFAULT_GEOMETRY`].
pub const SMALL_GEOMETRY: Geometry = match Geometry::new(256, 4096 + OVERHEAD) {
    Some(geometry) => geometry,
    None => panic!("the small geometry is within its own bounds"),
};

/// Default rings: 4096 slots (256 KiB) in each direction, and frames of path MTU 4096 with their headers.
pub const DEFAULT_GEOMETRY: Geometry = match Geometry::new(4096, 4096 + OVERHEAD) {
    Some(geometry) => geometry,
    None => panic!("the default geometry is within its own bounds"),
};
