//! What a daemon is started with.

use super::limits::Limits;
use crate::rma::Settings;

/// Attributes of a daemon that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits of each user.
    pub limits: Limits,
    /// Programs of all users attached at a time.
    pub attachments: usize,
    /// Kept tenants of all users at most, attached or not.
    pub tenants: usize,
    /// Users that may attach beside the daemon's own.
    pub allow: Vec<u32>,
    /// Sizes and times of 1RMA, for all tenants together.
    pub rma: Settings,
    /// Regions of 1RMA of all tenants together.
    pub rma_regions: u32,
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
        }
    }
}
