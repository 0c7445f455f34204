//! The state of a network.

use remora_fault::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::buffer::Account;
use super::config::NetworkConfig;
use super::failure::Failure;
use super::findings::{Findings, Totals};
use super::flow_hash::FlowKey;
use super::mark::Marks;
use super::observation::Observation;
use super::out_of_order::OutOfOrder;
use super::packet::Packets;
use super::port::{End, Port};
use super::port_id::PortId;
use super::switch::Switch;
use super::watchdog::Watchdog;
use crate::engine::{Calendar, Picos};
use crate::topology::{Routes, Topology};

/// A pause frame that takes effect later than it arrives: time, port and contents.
pub(super) type Reaction = (Picos, u32, u32);

/// A simulated network: links, switches and the packets on their way.
pub struct Network {
    pub(super) config: NetworkConfig,
    pub(super) now: Picos,
    pub(super) calendar: Calendar,
    pub(super) packets: Packets,
    pub(super) ports: Vec<Port>,
    /// For each port: the bytes that arrived by it and wait in the switch at its far end.
    pub(super) accounts: Vec<Account>,
    /// For each port: its number among the ports of its sender.
    pub(super) numbers: Vec<u16>,
    /// For each port: random numbers for losses and marks.
    pub(super) random: Vec<Random>,
    /// For each port: probability that its link loses a packet.
    pub(super) loss: Vec<f64>,
    /// For each port: its ECN thresholds. Empty if no switch marks.
    pub(super) marks: Vec<Option<Marks>>,
    pub(super) switches: Vec<Switch>,
    /// For each host: the ports by which it sends.
    pub(super) uplinks: Vec<Vec<PortId>>,
    /// For each node: the host or switch with its number. For each host: its node.
    pub(super) ends: Vec<End>,
    pub(super) host_nodes: Vec<u32>,
    pub(super) topology: Topology,
    pub(super) routes: Routes,
    pub(super) failures: Vec<Failure>,
    /// ECMP keys of flows, if switches use the hash of another simulator.
    pub(super) keys: Vec<FlowKey>,
    pub(super) reactions: BinaryHeap<Reverse<Reaction>>,
    pub(super) out_of_order: OutOfOrder,
    pub(super) watchdog: Watchdog,
    pub(super) totals: Totals,
    pub(super) findings: Findings,
    pub(super) observes_pauses: bool,
    pub(super) observations: Vec<Observation>,
}
