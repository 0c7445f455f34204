//! The `xdp` port: whole Ethernet frames straight from and to a network interface (AF_XDP), past the kernel's
//! network stack.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | what may be chosen about a port, and why opening one failed |
//! | `interface.rs` | what an interface is: MAC address, MTU, IP addresses |
//! | `netlink.rs` | asking the kernel about its network |
//! | `neighbours.rs` | routes and neighbours (ARP, ND), asked for and followed |
//! | `on_link.rs` | [`OnLinkHost`]: whether the kernel knows the hardware address of a host |
//! | `resolver.rs` | waiting until the way to a peer is known |
//! | `peers.rs` | the bounded table of peers (no calls) |
//! | `program.rs` | the program that picks our frames out (no calls) |
//! | `bpf.rs` | giving it to the kernel, and the link that holds it on the interface |
//! | `umem.rs` | the memory that frames stand in |
//! | `ring.rs` | a ring that we share with the kernel (no calls) |
//! | `socket.rs` | an AF_XDP socket |
//! | `queue.rs` | [`Queue`]: one queue of an interface, a socket with its memory and rings |
//! | `attachment.rs` | [`Attachment`]: an interface's queues and the program, made and dropped in order |
//! | `nic.rs` | [`XdpPort`], the port itself |
//! | `probe.rs` | what a port could do here, without touching any interface |
//!
//! # What passes
//!
//! The program lets UDP to the port's own address and UDP port through to us and everything else to the
//! kernel. So the interface stays as it was for all others: the kernel answers ARP and ND, and ping and ssh
//! work. The program hangs on the interface by a link, a descriptor of this process. It goes when the process
//! ends, however that happens. An interface that has a program already is refused.
//!
//! The IPv4 identification is seen here, so the ICRC of a received frame is checked exactly. A sent frame has
//! identification 0 and "don't fragment" set.
//!
//! # Copies
//!
//! A driver that can do so moves frames straight between the wire and our memory. Otherwise the kernel copies
//! each frame once; [`XdpPort::is_zero_copy`] returns which it is. In copy mode a frame leaves within the
//! call that flushes it. The kernel's half of a veth pair, the receiver's program and the write to its ring
//! all happen in that call.

mod attachment;
mod bpf;
mod interface;
mod neighbours;
mod netlink;
mod nic;
mod on_link;
mod options;
mod peers;
mod probe;
mod program;
mod queue;
mod resolver;
mod ring;
mod socket;
mod umem;

#[cfg(test)]
mod tests;

pub use attachment::Attachment;
pub use bpf::Mode;
pub use interface::Interface;
pub use nic::{XdpCounters, XdpPort};
pub use on_link::OnLinkHost;
pub use options::{OpenError, Options};
pub use peers::PeerError;
pub use probe::{Candidate, Driver, probe};
pub use queue::{Flushed, Queue};
pub use resolver::Resolver;
pub use socket::KernelCounters;

use crate::udp::last_errno;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Time for which an occupied resource is asked for again. The kernel frees the queue of a closed socket in a
/// worker thread; on a machine whose cores are all busy this takes more than three seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tries until it is not refused as `taken` any more, at most for a while: the resources of a closed socket
/// are not always free at once.
fn patiently<T>(taken: Errno, mut take: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let started = Instant::now();
    loop {
        match take() {
            Err(errno) if errno == taken && started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}
