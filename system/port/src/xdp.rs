//! Port `xdp`: whole Ethernet frames directly from and to a network interface (AF_XDP), bypassing the
//! kernel's network stack.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | the options of a port, and the errors of opening it |
//! | `interface.rs` | facts about an interface: MAC address, MTU, IP addresses |
//! | `netlink.rs` | requests to the kernel about its network |
//! | `neighbours.rs` | routes and neighbours (ARP, ND): look-ups and notifications |
//! | `on_link.rs` | [`OnLinkHost`]: whether the kernel knows the hardware address of a host |
//! | `resolver.rs` | waiting until the route to a peer is known |
//! | `peers.rs` | the bounded table of peers (no system calls) |
//! | `program.rs` | the BPF program that selects our frames (no system calls) |
//! | `bpf.rs` | loading the program into the kernel, and the link that attaches it to the interface |
//! | `umem.rs` | the memory that holds the frames |
//! | `ring.rs` | a ring that is shared with the kernel (no system calls) |
//! | `socket.rs` | an AF_XDP socket |
//! | `queue.rs` | [`Queue`]: one queue of an interface, a socket with its memory and rings |
//! | `attachment.rs` | [`Attachment`]: an interface's queues and the program, created and dropped in order |
//! | `nic.rs` | [`XdpPort`], the port itself |
//! | `probe.rs` | the capabilities of this machine, found without touching an interface |
//!
//! # Frames that reach the port
//!
//! The BPF program passes UDP datagrams for the port's own address and UDP port to us, and everything else
//! to the kernel. So the interface works as before for all other traffic: the kernel answers ARP and ND,
//! and ping and ssh work. The program is attached to the interface by a link, which is a descriptor of this
//! process; it is detached when the process ends for any reason. An interface that already has a program is
//! refused.
//!
//! The IPv4 identification is visible here, so the ICRC of a received frame is checked exactly. A sent
//! frame has identification 0 and "don't fragment" set.
//!
//! # Copies
//!
//! A driver with zero-copy support moves frames directly between the wire and our memory. Otherwise the
//! kernel copies each frame once; [`XdpPort::is_zero_copy`] tells which. In copy mode a frame is sent
//! within the call that flushes it: the kernel's half of a veth pair, the receiver's program and the write
//! to its ring all run in that call.

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
mod rtnetlink;
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

/// Time for which an occupied resource is requested repeatedly. The kernel frees the queue of a closed
/// socket in a worker thread, which takes more than three seconds on a machine whose cores are all busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Retries while the attempt fails with the errno `taken`, for at most [`PATIENCE`]: the resources of a
/// closed socket are not always free at once.
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
