//! Send windows: limits of the packets in flight of a flow, as in HPCC's programs.

use crate::Flow;
use crate::path::Paths;
use crate::scenario::Scenario;

/// The send windows of a scenario's flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// No limit other than that of the NIC.
    None,
    /// A limit in packets that is equal for all flows.
    Longest(u32),
    /// The bandwidth-delay product of each flow's own path.
    OfPair,
}

impl Window {
    /// Returns the windows of a scenario: the bandwidth-delay product of the longest path or of each flow's
    /// own path, or no limit.
    pub(crate) fn new(scenario: &Scenario, paths: &Paths) -> Window {
        let control = &scenario.control;
        if control.window != Some(true) {
            return Window::None;
        }
        if control.window_of_pair == Some(true) {
            return Window::OfPair;
        }
        Window::Longest(packets(paths.window(scenario.mtu).into(), scenario.mtu))
    }

    /// Returns the largest number of packets of a flow in flight, or `None` without a limit.
    pub(crate) fn of(self, paths: &Paths, flow: &Flow, mtu: u32) -> Option<u32> {
        match self {
            Window::None => None,
            Window::Longest(window) => Some(window),
            Window::OfPair => Some(packets(paths.product(flow.src, flow.dst, mtu), mtu)),
        }
    }
}

/// Returns the number of full packets that fill a window. ns-3 sends another packet while less than the
/// window is in flight, so a partial packet counts as a full one.
fn packets(bytes: u64, mtu: u32) -> u32 {
    u32::try_from(bytes.div_ceil(mtu.into())).unwrap_or(u32::MAX).max(1)
}
