//! The regions that a tenant exposes by 1RMA.

use remora_nic::rma::Regions;
use std::sync::Arc;

use super::super::users::Claim;

/// A RegionId of a tenant, with the region that it exposes.
pub(crate) struct Exposed {
    pub(super) id: u32,
    /// The key of the memory region.
    pub region: u32,
    pub(super) regions: Arc<Regions>,
    pub(super) _claim: Claim,
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let ended = self.regions.deregister(self.id);
        debug_assert!(ended.is_ok(), "only this drop deregisters the region");
    }
}
