//! The configuration of a world.

use remora_fault::Rules;
use remora_wire::frame::Start;

use crate::network::Marks;

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of NICs; 2 or more.
    pub nodes: usize,
    /// Settings of every link, in both directions.
    pub link: LinkConfig,
    /// If true, all links from a node share a queue and a rate, like a node with a single port. Otherwise
    /// each link has its own. Always the case with a switch.
    pub shared_ports: bool,
    /// Switch between the nodes, with a port for each node; `None` for direct links.
    pub switch: Option<SwitchConfig>,
    /// Fault rules for frames.
    pub rules: Rules,
    /// First header of the frames.
    pub start: Start,
    /// If true, addresses are IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Configuration of every NIC.
    pub nic: remora_nic::Config,
    /// Configuration of every NIC's memory.
    pub memory: remora_memory::Config,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            nodes: 2,
            link: LinkConfig::default(),
            shared_ports: false,
            switch: None,
            rules: Rules::default(),
            start: Start::Ip,
            ipv6: false,
            nic: remora_nic::Config {
                max_qps: 64,
                max_cqs: 64,
                max_events: 256,
                ..remora_nic::Config::default()
            },
            memory: remora_memory::Config {
                max_regions: 1 << 10,
                max_ranges: 1 << 12,
                ..remora_memory::Config::default()
            },
        }
    }
}

/// The settings of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Propagation delay in nanoseconds, at most ten seconds.
    pub latency_ns: u64,
    /// Rate in bit/s; at 0 a frame takes no time.
    pub rate: u64,
    /// Largest number of frames that wait for departure, including the one that is being sent.
    pub queue: usize,
}

impl Default for LinkConfig {
    /// A cable within a rack: 100 Gb/s, 1 µs.
    fn default() -> LinkConfig {
        LinkConfig { latency_ns: 1_000, rate: 100_000_000_000, queue: 64 }
    }
}

/// The settings of the switch, for every port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Propagation delay from the switch to a node in nanoseconds, at most ten seconds.
    pub latency_ns: u64,
    /// Rate in bit/s; at 0 a frame takes no time.
    pub rate: u64,
    /// Largest number of bytes that wait for a port, without the frame that is being sent.
    pub buffer: usize,
    /// ECN thresholds, or `None` if the switch does not mark.
    pub marks: Option<Marks>,
}
