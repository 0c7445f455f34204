//! Chains: work requests that wait for, enable and rewrite each other (RedN, §3).
//!
//! WAIT and ENABLE are allowed in every send queue. A WAIT blocks its queue until a completion queue has
//! received a number of completions. An ENABLE raises the fetch limit of another queue of the same protection
//! domain. Rewriting a work request has no effect once the NIC has fetched it; so a chain first WAITs for the
//! rewriting request and then ENABLEs the rewritten one.
//!
//! A *loopback queue pair* is connected to itself: it accesses the memory of its own protection domain, with
//! all checks and without packets. The calculations exist on loopback queue pairs only.
//!
//! The queue pairs of an engine share the state of `control.rs`, which knows none of them. Submission calls
//! `start.rs`, and the turn of a loopback queue pair `execute.rs`.

mod bytes;
mod control;
mod execute;
mod look;
mod nic;
mod start;

pub(crate) use control::{Control, Start};
pub(crate) use execute::transmit_to_itself;
pub use look::SendQueueFacts;
pub(crate) use start::may_start;

use remora_memory::Pd;
use serde::{Deserialize, Serialize};

use crate::part_number::PartNumber;
use crate::send_queue::Fetching;

/// The parameters with which a loopback queue pair is created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopbackInit {
    /// Protection domain of the object.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: PartNumber,
    /// Memory of the receive queue.
    pub receive_ring: PartNumber,
    /// Maximum number of scatter/gather elements of a receive work request.
    pub receive_max_sge: u32,
    /// Number of the send queue's completion queue.
    pub send_cq: u32,
    /// Number of the receive queue's completion queue.
    pub receive_cq: u32,
    /// Fetch mode of the send queue.
    pub fetching: Fetching,
}
