//! A queue pair that a daemon lends, as it arrives in the program.

use remora_host::connect::SetupConnection;
use remora_nic::Ring;

/// The parts of a queue pair that a daemon lends.
pub(crate) struct Loan {
    /// The rings of its send and receive queue.
    pub rings: [Ring; 2],
    /// The connection of its set-up, if it was connected.
    pub connection: Option<SetupConnection>,
}
