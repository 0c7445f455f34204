//! A program with its clients, and the state of the loop that serves them.

use remora_verbs::{CompletionChannel, CompletionQueue, Context, QueuePair, Ready};
use std::time::Instant;

use super::joining::Admission;
use super::program::{Memory, Program};

/// Protocol extensions of queue pairs, in addition to the standard verbs.
#[derive(Copy, Clone, Debug, Default)]
pub struct Extensions {
    /// Support of PRISM's operations.
    pub prism: bool,
    /// StRoM's RPCs to kernels.
    pub strom: bool,
    /// IRN in place of go-back-N.
    pub irn: bool,
}

/// A connected client.
pub(super) struct Client<C> {
    pub(super) pair: QueuePair<Ready>,
    pub(super) connection: C,
    pub(super) life: Life,
    /// Time since which other clients wait for this one.
    pub(super) late: Option<Instant>,
}

/// The last known liveness of a client. The end of its TCP connection reveals most clients that leave
/// or die. In other cases, as when a machine fails, its NIC must be probed.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// Something arrived from the client recently.
    Seen,
    /// Nothing has arrived for a while.
    Quiet,
    /// A probe was sent.
    Asked,
}

/// A program with its clients, and the loop that serves them.
pub struct Service<P: Program> {
    /// Program of the server.
    pub program: P,
    /// Context of the NIC.
    pub context: Context,
    pub(super) cq: CompletionQueue,
    pub(super) channel: CompletionChannel,
    pub(super) clients: Vec<Client<P::Connection>>,
    pub(super) admission: Admission<P::Connection>,
    pub(super) extensions: Extensions,
    /// Memory of the program, which must live as long.
    pub(super) memory: Memory,
}
