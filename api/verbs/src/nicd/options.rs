//! The options of a daemon.

use super::limits::Limits;
use crate::KernelLoader;
use crate::rma::Settings;

/// Attributes of a new daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// The limits of each user.
    pub limits: Limits,
    /// Programs of each user that may be attached at a time.
    pub attachments: usize,
    /// Kept tenants of each user at a time, attached or not.
    pub tenants: usize,
    /// Users that may attach in addition to the daemon's own.
    pub allow: Vec<u32>,
    /// Sizes and times of 1RMA, shared by all tenants.
    pub rma: Settings,
    /// 1RMA regions of all tenants at a time.
    pub rma_regions: u32,
    /// The loader of users' kernels. `None`: only shipped kernels are deployed. The daemon's engine executes
    /// the lanes, so the loader must confine them.
    pub loader: Option<KernelLoader>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            attachments: 64,
            tenants: 64,
            allow: Vec::new(),
            rma: Settings { slots: 1024, ..Settings::software() },
            rma_regions: 1 << 14,
            loader: None,
        }
    }
}
