//! What a manager is made with: its adapter and its bounds.

/// What a manager is made with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// The GUID of the channel adapter, which peers use to tell ids of different managers apart.
    pub ca_guid: u64,
    /// The key of the permutation that communication ids come from. Outside a simulation it must be random
    /// and secret: a stranger who knows a connection's ids can end it.
    pub seed: u64,
    /// Ids at most, 1 to 65,536: connections, those that end, and questions for datagram services.
    pub max_ids: u32,
    /// Listeners at most.
    pub max_listeners: u32,
    /// MADs that wait to leave at most, 2 or more.
    pub max_outgoing: u32,
    /// Events that wait to be taken at most, 2 or more.
    pub max_events: u32,
    /// The code of the time that a queue pair of this adapter takes to acknowledge, 5 bits.
    pub target_ack_delay: u8,
    /// The code of the time that a program may take to answer, which a MRA says, 5 bits.
    pub service_timeout: u8,
    /// The code of the longest path MTU that is accepted: 1 for 256 bytes to 5 for 4096.
    pub max_mtu: u8,
}

impl CmConfig {
    /// For an adapter: times as Linux has them, and bounds for ten thousand connections.
    pub const fn new(ca_guid: u64, seed: u64) -> CmConfig {
        CmConfig {
            ca_guid,
            seed,
            max_ids: 16_384,
            max_listeners: 1_024,
            max_outgoing: 1_024,
            max_events: 1_024,
            target_ack_delay: 15,
            service_timeout: 24,
            max_mtu: 5,
        }
    }
}
