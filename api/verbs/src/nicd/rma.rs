//! 1RMA of the daemon's NIC, and what each user holds of it over all of its tenants.

use remora_wire::frame::Endpoint;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::limits::Limits;
use crate::rma::{OwnRma, Reached, RmaOptions, Settings};
use crate::{Context, CreateError, PortKind};

/// 1RMA of the daemon's engine, which speaks it as soon as a program asks for it.
pub(super) struct RmaService {
    context: Context,
    options: RmaOptions,
    opened: Mutex<Option<OwnRma>>,
}

impl RmaService {
    pub fn new(context: &Context, options: RmaOptions) -> RmaService {
        RmaService { context: context.clone(), options, opened: Mutex::new(None) }
    }

    /// The engine's 1RMA.
    pub fn open(&self) -> Result<OwnRma, CreateError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rma) = &*opened {
            return Ok(rma.clone());
        }
        let rma = OwnRma::open(&self.context, &self.options)?;
        *opened = Some(rma.clone());
        Ok(rma)
    }

    /// Its sizes and times.
    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// Finds the way to a server where the network must be asked for it; `None` where it need not be asked.
    pub fn find(&self, server: Endpoint) -> Result<Option<Reached>, String> {
        if self.context.port().kind != PortKind::Xdp {
            return Ok(None);
        }
        if !server.address.is_host() {
            return Err("this is no address of a host".to_owned());
        }
        let rma = self.open().map_err(|error| error.to_string())?;
        rma.find(server).map(Some).map_err(|error| error.to_string())
    }
}

/// So many of each thing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub portals: usize,
    pub slots: usize,
    pub latency_slots: usize,
    pub regions: usize,
}

/// What a user's programs hold of 1RMA together.
#[derive(Debug, Default)]
pub(super) struct User {
    uid: u32,
    held: Mutex<Held>,
}

impl User {
    /// Takes so many more; they come back when the claim is dropped. `Err`: the text of the limit.
    pub fn claim(self: &Arc<User>, more: Held, limits: &Limits) -> Result<Claim, String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = Held {
            portals: held.portals.saturating_add(more.portals),
            slots: held.slots.saturating_add(more.slots),
            latency_slots: held.latency_slots.saturating_add(more.latency_slots),
            regions: held.regions.saturating_add(more.regions),
        };
        let bounds = [
            (sum.portals, limits.rma_portals, "command portals", "rma-portals"),
            (sum.slots, limits.rma_slots, "command slots", "rma-slots"),
            (sum.latency_slots, limits.rma_latency_slots, "slots of the latency class", "rma-latency-slots"),
            (sum.regions, limits.rma_regions, "regions of 1RMA", "rma-regions"),
        ];
        for (sum, most, what, option) in bounds {
            if sum > most {
                return Err(format!(
                    "{sum} {what} are over the {most} that user {} may have: give some back, or start `remora nicd` with a larger --{option}",
                    self.uid
                ));
            }
        }
        *held = sum;
        Ok(Claim { user: Arc::clone(self), held: more })
    }
}

/// A part of what a user may hold.
#[derive(Debug)]
pub(super) struct Claim {
    user: Arc<User>,
    held: Held,
}

impl Claim {
    pub fn held(&self) -> &Held {
        &self.held
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.user.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.portals -= self.held.portals;
        held.slots -= self.held.slots;
        held.latency_slots -= self.held.latency_slots;
        held.regions -= self.held.regions;
    }
}

/// The users that have tenants.
#[derive(Debug, Default)]
pub(super) struct Users {
    users: Mutex<BTreeMap<u32, Weak<User>>>,
}

impl Users {
    pub fn of(&self, uid: u32) -> Arc<User> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, user| user.strong_count() > 0);
        if let Some(user) = users.get(&uid).and_then(Weak::upgrade) {
            return user;
        }
        let user = Arc::new(User { uid, held: Mutex::default() });
        users.insert(uid, Arc::downgrade(&user));
        user
    }
}
