//! The command portal: a ring of commands, the slots that they may take, and a completion queue, as one
//! construct of one program (1RMA paper, §4.4).

use std::collections::VecDeque;

use remora_memory::Pd;

use crate::config::NicError;
use crate::ring::Ring;
use crate::wqe::SLOT;

/// What a portal is made of.
pub struct PortalInit {
    /// Memory of the ring of commands. Each slot has at most one, so as many as there are slots fit.
    pub ring: Ring,
    /// Slots: operations at once.
    pub slots: u16,
    /// Protection domain of its local operands.
    pub pd: Pd,
    /// Completion queue.
    pub cq: u32,
    /// The process, as the NIC's owner knows it.
    pub pid: u32,
    /// A random number of the NIC's start, or of the program's attachment.
    pub incarnation: u32,
}

/// A portal that exists.
pub(crate) struct Portal {
    pub ring: Ring,
    /// Commands fetched since its creation.
    pub fetched: u64,
    pub first: u16,
    pub slots: u16,
    pub pd: Pd,
    pub cq: u32,
    pub pid: u32,
    pub incarnation: u32,
    /// Its commands are of the bulk class only.
    pub bulk_only: bool,
    /// It is known to have commands that are not fetched.
    pub due: bool,
}

impl Portal {
    /// Overwrites the commands that the NIC has not fetched: they have keys.
    pub fn wipe(&self) {
        (self.fetched..self.fetched + self.ring.slots()).for_each(|index| self.ring.store(index, &[0; SLOT]));
    }
}

/// Portals of one engine at most.
const MAX_PORTALS: usize = 256;

/// No portal.
const NOBODY: u16 = u16::MAX;

/// The portals of one engine, and whose each slot is.
pub struct Portals {
    pub(crate) places: Vec<Option<Portal>>,
    owners: Vec<u16>,
    /// Portals with commands to fetch, each once.
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

    /// Makes a portal: its number, and the first of its slots, which are consecutive.
    pub(crate) fn create(&mut self, init: PortalInit) -> Result<(u32, u16), NicError> {
        let place = self.places.iter().position(Option::is_none).ok_or(NicError::Full)?;
        let wanted = usize::from(init.slots);
        if wanted == 0 {
            return Err(NicError::TooSmall);
        }
        let free = |slots: &[u16]| slots.iter().all(|owner| *owner == NOBODY);
        let first = self.owners.windows(wanted).position(free).ok_or(NicError::Full)?;
        self.owners[first..first + wanted].fill(place as u16);
        self.places[place] = Some(Portal {
            ring: init.ring,
            fetched: 0,
            first: first as u16,
            slots: init.slots,
            pd: init.pd,
            cq: init.cq,
            pid: init.pid,
            incarnation: init.incarnation,
            bulk_only: false,
            due: false,
        });
        Ok((place as u32, first as u16))
    }

    /// Removes a portal and frees its slots.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Portal> {
        let portal = self.places.get_mut(number as usize)?.take()?;
        self.due.retain(|due| u32::from(*due) != number);
        let first = usize::from(portal.first);
        self.owners[first..first + usize::from(portal.slots)].fill(NOBODY);
        Some(portal)
    }

    /// The number of the portal whose slot it is.
    pub(crate) fn owner_number(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    /// The portal of a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Portal> {
        self.places.get(self.owner_number(slot)?)?.as_ref()
    }

    /// From now on a portal takes commands of the bulk class only.
    pub(crate) fn restrict_to_bulk(&mut self, number: u32) -> Result<(), NicError> {
        let portal = self.places.get_mut(number as usize).and_then(Option::as_mut);
        portal.ok_or(NicError::Unknown)?.bulk_only = true;
        Ok(())
    }

    /// A portal may have commands that are not fetched.
    pub(crate) fn ring(&mut self, number: u32) {
        if let Some(Some(portal)) = self.places.get_mut(number as usize)
            && !std::mem::replace(&mut portal.due, true)
        {
            self.due.push_back(number as u16);
        }
    }

    /// The portal whose turn it is to have commands fetched.
    pub(crate) fn next_due(&self) -> Option<usize> {
        self.due.front().copied().map(usize::from)
    }

    /// The portal whose turn it was has had it. All its commands have been fetched, or it waits for its next
    /// turn.
    pub(crate) fn fetched(&mut self, more: bool) {
        let Some(number) = self.due.pop_front() else { return };
        if more {
            self.due.push_back(number);
        } else if let Some(portal) = &mut self.places[usize::from(number)] {
            portal.due = false;
        }
    }

    /// Has any portal commands to fetch?
    pub(crate) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }
}
