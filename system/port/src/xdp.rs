//! The `xdp` port: whole Ethernet frames straight from and to a network interface (AF_XDP), past the kernel's network
//! stack.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | what may be chosen about a port, and why opening one failed |
//! | `interface.rs` | what an interface is: MAC address, MTU, IP addresses |
//! | `netlink.rs` | asking the kernel about its network |
//! | `neighbours.rs` | routes and neighbours (ARP, ND), asked for and followed |
//! | `resolver.rs` | waiting until the way to a peer is known |
//! | `peers.rs` | the bounded table of peers (no calls) |
//! | `program.rs` | the program that picks our frames out (no calls) |
//! | `bpf.rs` | giving it to the kernel, and the link that holds it on the interface |
//! | `umem.rs` | the memory that frames stand in |
//! | `ring.rs` | a ring that we share with the kernel (no calls) |
//! | `socket.rs` | an AF_XDP socket |
//! | `queue.rs` | [`Queue`]: one queue of an interface, a socket with its memory and rings |
//! | `attachment.rs` | [`Attachment`]: all queues of an interface and the program, put together and taken apart |
//! | `nic.rs` | [`XdpPort`], the port itself |
//! | `probe.rs` | what a port could do here, without touching any interface |
//!
//! # What passes
//!
//! The program lets UDP to the port's own address and UDP port through to us and everything else to the kernel, so the
//! interface stays what it was for all others: ARP and ND are answered by the kernel, ping and ssh work. It hangs on the
//! interface by a link, a descriptor of this process, so it goes when the process goes, however that happens. An interface
//! that has a program already is refused.
//!
//! The IPv4 identification is seen here, so the ICRC of what comes is checked exactly; what leaves has identification 0
//! and "don't fragment" set.
//!
//! # Copies
//!
//! A driver that can is asked to move frames straight between the wire and our memory; otherwise the kernel copies each
//! once ([`XdpPort::is_zero_copy`] says which it is). In copy mode a frame leaves within the call that flushes it: the
//! kernel's half of a veth pair, the receiver's program and the write to its ring all happen there.

mod attachment;
mod bpf;
mod interface;
mod neighbours;
mod netlink;
mod nic;
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
pub use options::{OpenError, Options};
pub use peers::PeerError;
pub use probe::{Candidate, Driver, probe};
pub use queue::{Flushed, Queue};
pub use resolver::Resolver;
pub use socket::KernelCounters;

use crate::udp::last_errno;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Time for which something that is taken is asked for again.
const PATIENCE: Duration = Duration::from_secs(3);

/// Tries until it is not refused as `taken` any more, at most for a while: what a closed socket had is not always free at
/// once.
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
