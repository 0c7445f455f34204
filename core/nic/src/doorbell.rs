//! Doorbells, by which programs tell a NIC that they have posted work.

use remora_wire::Qpn;
use serde::{Deserialize, Serialize};

/// The owner of a doorbell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BellOwner {
    /// A queue pair, whose queues have new work.
    QueuePair(Qpn),
    /// A command portal of 1RMA, by its number.
    Portal(u32),
}

/// A doorbell, by which a program tells a NIC that it has posted work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// The owner of the doorbell.
    pub owner: BellOwner,
    /// The place of the doorbell among those of its program.
    pub index: u32,
}
