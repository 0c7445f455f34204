//! The configuration of a simulation.

use super::charging::Charging;
use super::host::MAX_QPS;
use super::spec::Connection;
use crate::network::NetworkConfig;

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// Links, switches, PFC and ECN.
    pub network: NetworkConfig,
    /// Configuration of every NIC. Endpoint, traffic classes and ICRC check are overwritten for each host.
    pub nic: remora_nic::Config,
    /// Bytes that a frame occupies on links and in buffers.
    pub charging: Charging,
    /// Additional bytes that each data packet occupies.
    pub extra_header: u16,
    /// Traffic class of data.
    pub data_class: u8,
    /// Traffic class of acknowledgements and CNPs.
    pub ack_class: u8,
    /// If true, frames carry an ICRC and receivers check it.
    pub icrc: bool,
    /// If true, all bytes of a frame are stored. Otherwise the data is zeros and is not stored.
    pub whole: bool,
    /// Settings of connections.
    pub connection: Connection,
    /// Largest size of a work request, in bytes; longer flows use several.
    pub message: u32,
}

impl Default for SimulationConfig {
    fn default() -> SimulationConfig {
        SimulationConfig {
            network: NetworkConfig::default(),
            nic: remora_nic::Config {
                max_qps: MAX_QPS,
                max_cqs: 4,
                max_srqs: 1,
                max_xrc_domains: 1,
                max_address_handles: 1,
                max_groups: 1,
                max_group_members: 1,
                max_events: 16,
                max_free_lists: 1,
                max_kernels: 1,
                ..remora_nic::Config::default()
            },
            charging: Charging::Ethernet,
            extra_header: 0,
            data_class: 3,
            ack_class: 3,
            icrc: false,
            whole: false,
            connection: Connection::default(),
            message: 64 << 10,
        }
    }
}
