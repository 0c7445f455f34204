//! The options of 1RMA on a device.

use remora_transport::rma::Settings;
use remora_transport::rma::executor::CongestionSettings;

/// The options of 1RMA on a device. A daemon's NIC uses the options of the daemon, except `congestion`.
#[derive(Copy, Clone, Debug)]
pub struct RmaOptions {
    /// The engine that speaks 1RMA, counted from 0.
    pub engine: usize,
    /// Sizes and times of the protocol.
    pub settings: Settings,
    /// The greatest number of regions, including those for local operands.
    pub regions: u32,
    /// The number of expanded key schedules that the engine caches.
    pub keys: usize,
    /// Congestion control: the pacing of transfers.
    pub congestion: CongestionSettings,
}

impl Default for RmaOptions {
    fn default() -> RmaOptions {
        RmaOptions {
            engine: 0,
            settings: Settings::software(),
            regions: 1024,
            keys: 1024,
            congestion: CongestionSettings::software(),
        }
    }
}
