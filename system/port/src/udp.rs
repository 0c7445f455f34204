//! The `udp` port: RoCE v2 frames over one plain UDP socket, unprivileged, on any network.
//!
//! | file | holds |
//! |---|---|
//! | `address.rs` | endpoints (GIDs) to socket addresses and back |
//! | `options.rs` | what may be chosen about a socket, and why opening one failed |
//! | `socket.rs` | [`Socket`]: the socket with the settings RoCE needs |
//! | `datagram.rs` | its four calls: one datagram or a train of them, out and in |
//! | `train.rs` | the frames that wait to leave together (no calls) |
//! | `inbox.rs` | the frames that came together and are handed on one by one |
//! | `reading.rs` | which receiving call to use, from recent arrivals (no calls) |
//! | `peers.rs` | the bounded table of peers |
//! | `groups.rs` | multicast groups: a socket for each that the port is a member of |
//! | `mtu.rs` | how long a frame may be on an interface |
//! | `range.rs` | QPN ranges, and the filter by which the kernel steers datagrams among them |
//! | `reuseport.rs` | the sockets of an address that programs share, one for each range |
//! | `shared.rs` | what a program borrows of such an address, and the way of frames that strayed |
//! | `nic.rs` | [`UdpPort`], the port itself |
//!
//! # What the socket must be like
//!
//! The ICRC covers the IPv4 identification, which no UDP socket lets a program choose or see. An
//! *unconnected* socket with `PMTUDISC_DO` sends 0, and `0, 1, 2, …` within a train that the kernel cuts
//! (`UDP_SEGMENT`). A connected one sends numbers nobody can know. So the socket is never connected, and
//! [`remora_wire::frame::Lease`] holds the identification that the frame will carry, for the sealer. The
//! frames of a datagram socket begin at the BTH.
//!
//! # Trains
//!
//! A loopback datagram costs about a microsecond, and nothing but sending many in one call changes that.
//! Frames of equal length to one peer (the last may be shorter) leave as one train. If both ends are Linux,
//! they arrive as one (`UDP_GRO`). A batch of one frame uses the plain calls, which are the quickest for one.
//!
//! Both are optional. A train that is refused, by whatever errno, leaves frame by frame; if that works, no
//! train is made from then on. The same holds for reading. [`UdpCounters`] counts it, and the log has one
//! line about it.
//!
//! # An address that programs share
//!
//! Processes of one host may share an address and RoCE's own UDP port. The kernel steers by the QPN range, so
//! that all frames of one range reach one socket. It steers a train by its first frame: the frames of a train
//! are therefore for one range. Where the peer's UDP port is not RoCE's own, it is one NIC's alone, and
//! trains do not care.
//!
//! # Why so much is `inline(always)`
//!
//! With the return-thunk mitigation of recent AMD kernels the CPU has forgotten its return addresses after
//! each system call. The first `ret` after one was measured to cost 85 ns after an empty `recvfrom`, and 600
//! ns after a `sendto` (it also slows the next entry). So the calls of the fast path are inlined into the
//! loop that makes them.

mod address;
mod datagram;
mod groups;
mod inbox;
mod mtu;
mod nic;
mod options;
mod peers;
mod range;
mod reading;
mod reuseport;
mod shared;
mod socket;
mod train;

pub use address::{endpoint, socket_address};
pub use datagram::Arrival;
pub use groups::GroupError;
pub use nic::{Errnos, UdpCounters, UdpPort};
pub use options::{OpenError, Options};
pub use peers::PeerError;
pub use range::{RANGES, Steering, range_of};
pub use reuseport::{ReuseportGroup, SteeredBy};
pub use shared::{Handover, SharedEndpoint, SharedPage};
pub(crate) use socket::last_errno;
pub use socket::{Socket, bind_source};
