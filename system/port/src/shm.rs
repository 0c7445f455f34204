//! Port `shm`: rings in shared memory between processes of one host.
//!
//! Frames begin at the IPv4 or IPv6 header, and their ICRC is left zero by agreement: the bytes cross no
//! wire. A pair of NICs shares a [`Link`]: two rings in a memfd, one for each direction. `ring` has the
//! protocol, `map` the memory, and `setup` how two processes come to share it. [`ShmPort`] holds a NIC's
//! links and is the port. [`ring()`] and [`Link::rings`] are the same rings bare, to measure what the port
//! and the layers above it cost.
//!
//! What a peer can do: it shares only its own link's rings with us, never other memory. Lengths and positions
//! are checked before use, and a link whose words make no sense is cut off. The memory cannot be truncated
//! under us. The socket of a peer that dies hangs up. Frames of other users (if admitted at all) are read
//! through a private copy.

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

/// Bytes of headers and trailer that a frame may have beyond its payload: IPv6, UDP, BTH, the longest
/// extension headers and ICRC, with some to spare.
const OVERHEAD: u32 = 188;

/// Small rings, for a program that has many links: 256 slots (16 KiB) each way, and the same frames.
pub const SMALL_GEOMETRY: Geometry = match Geometry::new(256, 4096 + OVERHEAD) {
    Some(geometry) => geometry,
    None => panic!("the small geometry is within its own bounds"),
};

/// Rings as the design wants them: 4096 slots (256 KiB) each way, frames of path MTU 4096 and their headers.
pub const DEFAULT_GEOMETRY: Geometry = match Geometry::new(4096, 4096 + OVERHEAD) {
    Some(geometry) => geometry,
    None => panic!("the default geometry is within its own bounds"),
};
