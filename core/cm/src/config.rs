//! The configuration of a communication manager.

/// The configuration of a manager.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// GUID of the channel adapter, by which peers tell ids of different managers apart.
    pub ca_guid: u64,
    /// Key of the permutation that communication ids come from. Outside a simulation the seed must be
    /// random and secret: a stranger who knows the ids of a connection can end it.
    pub seed: u64,
    /// Maximum number of ids, 1 to 65,536: connections (also those that are ending) and service id
    /// resolutions.
    pub max_ids: u32,
    /// Maximum number of listeners.
    pub max_listeners: u32,
    /// Maximum number of MADs that wait to be sent, 2 or more.
    pub max_outgoing: u32,
    /// Maximum number of events that wait to be taken, 2 or more.
    pub max_events: u32,
    /// Code of the time that a queue pair of this adapter takes to acknowledge a packet, 5 bits.
    pub target_ack_delay: u8,
    /// Code of the time that a program may take to answer, as announced by an MRA, 5 bits.
    pub service_timeout: u8,
    /// Code of the largest path MTU that is accepted: 1 for 256 bytes to 5 for 4096 bytes.
    pub max_mtu: u8,
}

impl CmConfig {
    /// Creates the configuration of an adapter, with the times that Linux uses and bounds for ten thousand
    /// connections.
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
