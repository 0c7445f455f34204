//! The command portal of a program: a ring of commands, a set of slots, and a completion queue (1RMA paper,
//! §4.4).

use std::collections::VecDeque;

use remora_memory::Pd;
use serde::{Deserialize, Serialize};

use crate::config::NicError;
use crate::part_number::PartNumber;
use crate::ring::Ring;
use crate::wqe::SLOT;

/// The parameters with which a portal is created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalInit {
    /// Memory of the ring of commands. Each slot has at most one command, so the ring needs as many entries
    /// as there are slots.
    pub ring: PartNumber,
    /// Number of slots: the maximum number of concurrent operations.
    pub slots: u16,
    /// Protection domain of the local operands.
    pub pd: Pd,
    /// Number of the completion queue.
    pub cq: u32,
    /// Process id, as the owner of the NIC knows it.
    pub pid: u32,
    /// Random number of the NIC's start, or of the program's attachment.
    pub incarnation: u32,
    /// True if the portal takes commands of the bulk class only. Other commands complete with an error.
    pub bulk_only: bool,
}

/// The number and the slots of a portal.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalFacts {
    /// The number of the portal.
    pub number: u32,
    /// The first of the consecutive slots of the portal.
    pub first: u16,
}

/// A command portal.
pub(crate) struct Portal {
    pub ring: Ring,
    /// Number of commands fetched since the portal was created.
    pub fetched: u64,
    pub first: u16,
    pub slots: u16,
    pub pd: Pd,
    pub cq: u32,
    pub pid: u32,
    pub incarnation: u32,
    /// Only commands of the bulk class are allowed.
    pub bulk_only: bool,
    /// The portal has commands that are not fetched.
    pub due: bool,
}

impl Portal {
    /// Overwrites the commands that the NIC has not fetched, because they contain keys.
    pub(crate) fn wipe(&self) {
        (self.fetched..self.fetched + self.ring.slots()).for_each(|index| self.ring.store(index, &[0; SLOT]));
    }
}

/// Maximum number of portals of one engine.
const MAX_PORTALS: usize = 256;

/// The owner of a free slot.
const NOBODY: u16 = u16::MAX;

/// The portals of one engine, and the owner of each slot.
pub struct Portals {
    pub(crate) places: Vec<Option<Portal>>,
    owners: Vec<u16>,
    /// Portals with commands to fetch, each at most once.
    due: VecDeque<u16>,
}

impl Portals {
    pub(crate) fn new(slots: u16) -> Portals {
        Portals {
            places: (0..MAX_PORTALS).map(|_| None).collect(),
            owners: vec![NOBODY; usize::from(slots)],
            due: VecDeque::with_capacity(MAX_PORTALS),
        }
    }

    /// Creates a portal. Returns its number, and the first of its consecutive slots.
    pub(crate) fn create(&mut self, init: &PortalInit, ring: Ring) -> Result<PortalFacts, NicError> {
        let place = self.places.iter().position(Option::is_none).ok_or(NicError::Full)?;
        let wanted = usize::from(init.slots);
        if wanted == 0 {
            return Err(NicError::TooSmall);
        }
        let free = |slots: &[u16]| slots.iter().all(|owner| *owner == NOBODY);
        let first = self.owners.windows(wanted).position(free).ok_or(NicError::Full)?;
        self.owners[first..first + wanted].fill(place as u16);
        self.places[place] = Some(Portal {
            ring,
            fetched: 0,
            first: first as u16,
            slots: init.slots,
            pd: init.pd,
            cq: init.cq,
            pid: init.pid,
            incarnation: init.incarnation,
            bulk_only: init.bulk_only,
            due: false,
        });
        Ok(PortalFacts { number: place as u32, first: first as u16 })
    }

    /// Removes a portal and frees its slots.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Portal> {
        let portal = self.places.get_mut(number as usize)?.take()?;
        self.due.retain(|due| u32::from(*due) != number);
        let first = usize::from(portal.first);
        self.owners[first..first + usize::from(portal.slots)].fill(NOBODY);
        Some(portal)
    }

    /// Returns the number of the portal that owns a slot.
    pub(crate) fn owner_number(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    /// Returns the portal that owns a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Portal> {
        self.places.get(self.owner_number(slot)?)?.as_ref()
    }

    /// Records that a portal may have commands to fetch.
    pub(crate) fn ring(&mut self, number: u32) {
        if let Some(Some(portal)) = self.places.get_mut(number as usize)
            && !std::mem::replace(&mut portal.due, true)
        {
            self.due.push_back(number as u16);
        }
    }

    /// Returns the portal whose commands are fetched next.
    pub(crate) fn next_due(&self) -> Option<usize> {
        self.due.front().copied().map(usize::from)
    }

    /// Ends the turn of the current portal. With `more`, the portal waits for its next turn; otherwise all
    /// its commands were fetched.
    pub(crate) fn fetched(&mut self, more: bool) {
        let Some(number) = self.due.pop_front() else { return };
        if more {
            self.due.push_back(number);
        } else if let Some(portal) = &mut self.places[usize::from(number)] {
            portal.due = false;
        }
    }

    /// Returns true if any portal has commands to fetch.
    pub(crate) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }
}
