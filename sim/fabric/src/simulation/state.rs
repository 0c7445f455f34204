//! The state of a simulation.

use super::config::SimulationConfig;
use super::far_end::FarEnds;
use super::flows::Flows;
use super::host::Host;
use super::observer::Observer;
use crate::frames::Frames;
use crate::network::{Network, Observation};

/// A running simulation.
pub struct Simulation {
    pub(super) network: Network,
    pub(super) hosts: Vec<Host>,
    pub(super) frames: Frames,
    pub(super) flows: Flows,
    pub(super) far_ends: FarEnds,
    pub(super) config: SimulationConfig,
    pub(super) observer: Option<Box<dyn Observer>>,
    /// Scratch space for the observations that are being reported.
    pub(super) observations: Vec<Observation>,
}
