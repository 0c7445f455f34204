//! How much of a flow may be in flight: the windows of HPCC's programs.

use crate::Flow;
use crate::path::Paths;
use crate::scenario::Scenario;

/// The windows of a scenario's flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// That of the NIC.
    None,
    /// So many packets for every flow.
    Longest(u32),
    /// The product of each flow's own path.
    OfPair,
}

impl Window {
    /// Those of a scenario: the bandwidth-delay product of the longest path, or of each flow's own.
    pub fn new(scenario: &Scenario, paths: &Paths) -> Window {
        let control = &scenario.control;
        if control.window != Some(true) {
            return Window::None;
        }
        if control.window_of_pair == Some(true) {
            return Window::OfPair;
        }
        Window::Longest(packets(paths.window(scenario.mtu).into(), scenario.mtu))
    }

    /// Packets of a flow in flight at most.
    pub fn of(self, paths: &Paths, flow: &Flow, mtu: u32) -> Option<u32> {
        match self {
            Window::None => None,
            Window::Longest(window) => Some(window),
            Window::OfPair => Some(packets(paths.product(flow.src, flow.dst, mtu), mtu)),
        }
    }
}

/// Full packets with which a window is full: another one leaves as long as less than the window is in flight.
fn packets(bytes: u64, mtu: u32) -> u32 {
    u32::try_from(bytes.div_ceil(mtu.into())).unwrap_or(u32::MAX).max(1)
}
