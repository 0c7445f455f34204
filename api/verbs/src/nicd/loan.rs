//! A queue pair that a daemon lends, as the program receives it.

use remora_host::connect::SetupConnection;
use remora_nic::Ring;

/// The parts of a lent queue pair.
pub(crate) struct Loan {
    /// The rings of the send queue and the receive queue.
    pub rings: [Ring; 2],
    /// The connection of the set-up, if the queue pair is connected and the connection is kept.
    pub connection: Option<SetupConnection>,
}
