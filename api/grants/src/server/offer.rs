//! The regions that a server grants.

use remora_verbs::rma::{Client, RegionKey, Rights, RmaRegion};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::message::RegionGrant;

/// A region that a server grants, with a name and rights.
pub struct Offer {
    /// The name by which clients ask for the region.
    pub(super) name: String,
    rights: Rights,
    region: Mutex<RmaRegion>,
    next: Mutex<Option<Next>>,
}

/// The announced key and the time at which it takes effect.
pub(super) struct Next {
    pub(super) key: RegionKey,
    pub(super) due: Instant,
}

impl Offer {
    /// Creates an offer of a region with the given rights, which may be fewer than those of the region
    /// itself.
    pub fn new(name: impl Into<String>, rights: Rights, region: RmaRegion) -> Offer {
        Offer { name: name.into(), rights, region: Mutex::new(region), next: Mutex::default() }
    }

    /// Locks the region and returns it.
    pub fn region(&self) -> MutexGuard<'_, RmaRegion> {
        self.region.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next(&self) -> MutexGuard<'_, Option<Next>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the client's grant under the current key.
    pub(super) fn grant(&self, client: &Client) -> RegionGrant {
        let grant = self.region().grant(client).restricted(self.rights);
        RegionGrant { name: self.name.clone(), rights: self.rights, grant }
    }

    /// Computes the client's grant under the announced key, with the time until that key takes effect. `None`
    /// if no key is announced.
    pub(super) fn announcement(&self, client: &Client) -> Option<(Duration, RegionGrant)> {
        let next = self.next();
        let next = next.as_ref()?;
        let grant = self.region().grant_under(client, &next.key).restricted(self.rights);
        let granted = RegionGrant { name: self.name.clone(), rights: self.rights, grant };
        Some((next.due.saturating_duration_since(Instant::now()), granted))
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}
