//! The configuration of a network.

use super::buffer::BufferConfig;
use super::mark::MarkConfig;
use super::pause_frame::PauseConfig;
use super::route::Balancing;
use crate::engine::Picos;

/// The configuration of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Packet buffers of all switches.
    pub buffer: BufferConfig,
    /// PFC. Without it, switches drop packets that do not fit into their buffers.
    pub pause: Option<PauseConfig>,
    /// ECN marking. Without it, no packet is marked.
    pub marks: Option<MarkConfig>,
    /// Choice among several shortest paths.
    pub balancing: Balancing,
    /// Mask of the traffic classes with strict priority at every port. Among them the highest number goes
    /// first.
    pub urgent: u8,
    /// Interval between two searches for deadlocks and pause storms, in picoseconds.
    pub watch_period: u64,
}

impl Default for NetworkConfig {
    /// FIFO switches with 1 MiB per output port, without PFC and ECN.
    fn default() -> NetworkConfig {
        NetworkConfig {
            seed: 0,
            buffer: BufferConfig::Fifo { limit: 1 << 20, pause: None, per_port: false },
            pause: None,
            marks: None,
            balancing: Balancing::Flow,
            urgent: 0,
            watch_period: 1_000 * Picos::MICROSECOND,
        }
    }
}
