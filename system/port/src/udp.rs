//! Port `udp`: RoCE v2 frames over one plain UDP socket, unprivileged, on any network.
//!
//! | file | holds |
//! |---|---|
//! | `address.rs` | conversion between endpoints (GIDs) and socket addresses |
//! | `options.rs` | the options of a socket, and the errors of opening it |
//! | `socket.rs` | [`Socket`]: the socket with the settings that RoCE needs |
//! | `datagram.rs` | the socket's four calls: send and receive one datagram or a train |
//! | `train.rs` | the frames that wait to be sent together (no system calls) |
//! | `inbox.rs` | the frames that were received together and are handed on one by one |
//! | `reading.rs` | the choice of the receive call from recent arrivals (no system calls) |
//! | `peers.rs` | the bounded table of peers |
//! | `groups.rs` | multicast groups: one socket for each group that the port is a member of |
//! | `mtu.rs` | the largest frame that fits an interface |
//! | `range.rs` | QPN ranges, and the filter by which the kernel steers datagrams among them |
//! | `reuseport.rs` | the sockets of a shared address, one for each range |
//! | `shared.rs` | a program's share of such an address, and the forwarding of misdirected frames |
//! | `nic.rs` | [`UdpPort`], the port itself |
//!
//! # Requirements on the socket
//!
//! The ICRC covers the IPv4 identification, which a UDP socket lets a program neither choose nor see. An
//! *unconnected* socket with `PMTUDISC_DO` sends 0, and `0, 1, 2, …` within a train that the kernel cuts
//! (`UDP_SEGMENT`). A connected socket sends unpredictable numbers. Therefore the socket is never
//! connected, and [`remora_wire::frame::Lease`] tells the code that computes the ICRC which identification
//! the frame will carry. The frames of a datagram socket begin at the BTH.
//!
//! # Trains
//!
//! A loopback datagram costs about a microsecond; only sending many in one call reduces that. Frames of
//! equal length to one peer (the last may be shorter) are sent as one train. If both ends are Linux, they
//! are received as one (`UDP_GRO`). A batch of one frame uses the plain calls, which are the fastest for
//! one.
//!
//! Both are optional. A train that is refused, with whatever errno, is sent frame by frame; if that
//! succeeds, no more trains are sent. Receiving is handled likewise. [`UdpCounters`] counts the fallback,
//! and one line is logged.
//!
//! # Shared addresses
//!
//! Processes of one host may share an address with RoCE's own UDP port. The kernel steers by QPN range, so
//! that all frames of one range reach one socket. It steers a train by its first frame; therefore all
//! frames of a train are for one range. If the peer's UDP port is not RoCE's own, it belongs to a single
//! NIC, and trains may mix ranges.
//!
//! # Reason for `inline(always)`
//!
//! With the return-thunk mitigation of recent AMD kernels, the CPU has forgotten its return addresses after
//! each system call. The first `ret` after a system call was measured to cost 85 ns after an empty
//! `recvfrom`, and 600 ns after a `sendto` (it also slows the next entry). Therefore the calls of the fast
//! path are inlined into the loop that makes them. After each call the port fills the CPU's stack of return
//! addresses (`return_stack.rs`), so that the returns to the program are quick, too.

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
