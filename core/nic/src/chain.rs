//! Chains: work requests that wait for, enable and rewrite each other (RedN, §3).
//!
//! WAIT and ENABLE may stand in any send queue. WAIT holds its queue until a completion queue has reached a
//! count. ENABLE lets a queue of the same protection domain be fetched up to a count. Changes to work
//! requests that are fetched already have no effect: a barrier is an ENABLE behind a WAIT.
//!
//! A *loopback queue pair* is connected to itself: it works on the memory of its own protection domain, with
//! all checks and without packets. Only loopback queue pairs have the calculations.

mod bytes;
mod calculate;
mod control;
mod execute;
mod look;
mod nic;
mod start;

pub use calculate::Calculation;
pub(crate) use control::{Control, Start};
pub(crate) use execute::transmit_to_itself;
pub use look::SendQueueFacts;
pub(crate) use start::may_start;

use remora_memory::Pd;

use crate::ring::Ring;
use crate::send_queue::Fetching;

/// Work requests that a loopback queue pair executes in a turn, by default.
pub(crate) const TURN: usize = 64;

/// What a loopback queue pair is made of.
pub struct LoopbackInit {
    /// Its protection domain.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: Ring,
    /// Memory of the receive queue.
    pub receive_ring: Ring,
    /// Elements of a receive work request.
    pub receive_max_sge: u32,
    /// Completion queue of the send queue.
    pub send_cq: u32,
    /// Completion queue of the receive queue.
    pub receive_cq: u32,
    /// How far the send queue is fetched.
    pub fetching: Fetching,
}
