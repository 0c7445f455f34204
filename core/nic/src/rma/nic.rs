//! The interface of 1RMA for the NIC's driver and for programs.

use remora_memory::Mem;
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_wire::frame::{Egress, Ingress, Origin, Peer, Start};
use remora_wire::{ethernet, rma};
use serde::{Deserialize, Serialize};

use super::issue::forget;
use super::{Delays, Init, PortalFacts, PortalInit, Rma};
use crate::arrived::Arrived;
use crate::config::NicError;
use crate::fair_scheduler::{RMA, RMA_TENANT};
use crate::nic::Nic;
use crate::turn::{TURN_BYTES, TurnEnd, TurnUsage};

/// The state of 1RMA on an engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Size of the window in bytes.
    pub window: u32,
    /// Free part of the window in bytes.
    pub free: u32,
    /// Number of operations that wait for the window.
    pub waiting: u64,
    /// Number of operations that the engine serves.
    pub serving: u64,
    /// Size of the tables in bytes.
    pub bytes: u64,
    /// Number of keys derived since the start.
    pub derivations: u64,
    /// Number of keys expanded since the start.
    pub expansions: u64,
}

impl Nic {
    /// Enables 1RMA on this engine.
    pub fn enable_rma(&mut self, init: Init) {
        self.rma = Some(Box::new(Rma::new(init)));
    }

    /// Returns true while the user of 1RMA on this engine exists.
    pub fn rma_is_in_use(&self) -> bool {
        self.rma.as_ref().is_some_and(|rma| rma.user.strong_count() > 0)
    }

    /// Creates a command portal.
    pub(crate) fn create_portal(&mut self, init: &PortalInit) -> Result<PortalFacts, NicError> {
        let ring = self.parts.ring(init.ring)?;
        let rma = self.rma.as_mut().ok_or(NicError::NotThisService)?;
        if ring.slots() < u64::from(init.slots) {
            return Err(NicError::TooSmall);
        }
        let cq = init.cq;
        let pd = init.pd;
        self.shared.cqs_mut().join(cq, pd)?;
        rma.portals.create(init, ring).inspect_err(|_| self.shared.cqs_mut().leave(cq, pd))
    }

    /// Destroys a portal, whose operations end without completions.
    pub(crate) fn destroy_portal(&mut self, now: Instant, number: u32) -> Result<(), NicError> {
        let rma = self.rma.as_mut().ok_or(NicError::Unknown)?;
        let portal = rma.portals.remove(number).ok_or(NicError::Unknown)?;
        portal.wipe();
        for slot in portal.first..portal.first + portal.slots {
            if forget(&mut rma.commands[usize::from(slot)]).is_some() {
                rma.requester.end(now, slot, Status::Timeout, &mut rma.solicitation);
            }
        }
        self.shared.cqs_mut().leave(portal.cq, portal.pd);
        Ok(())
    }

    /// Handles a doorbell: the producer index of a portal's ring has moved.
    #[inline]
    pub fn ring_portal(&mut self, number: u32) {
        if let Some(rma) = &mut self.rma {
            rma.portals.ring(number);
        }
    }

    /// Returns the state of 1RMA on this engine; `None` if 1RMA is not enabled.
    pub(crate) fn rma_facts(&self) -> Option<Facts> {
        let rma = self.rma.as_ref()?;
        Some(Facts {
            window: rma.settings.window,
            free: rma.solicitation.free(),
            waiting: rma.solicitation.waiting() as u64,
            serving: rma.responder.serving() as u64,
            bytes: (rma.requester.bytes() + rma.responder.bytes() + rma.keys.bytes()) as u64,
            derivations: rma.keys.derivations,
            expansions: rma.keys.expansions,
        })
    }

    /// Returns the delays of 1RMA commands up to `now`; `None` if 1RMA is not enabled.
    pub fn rma_delays(&self, now: Instant) -> Option<Delays> {
        self.rma.as_ref().map(|rma| rma.delays.at(now))
    }

    /// Processes a frame that is not RoCE: a 1RMA message, or an invalid frame.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive_other(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        frame: &Ingress<'_>,
        arrived: &Arrived<'_>,
    ) {
        let begins = arrived.transport.first().is_some_and(|byte| rma::begins(*byte));
        let mac = || match frame.start {
            Start::Ethernet => Some(Origin::Mac(ethernet::View::new(frame.bytes).ok()?.source())),
            _ => None,
        };
        match &mut self.rma {
            Some(rma) if begins => {
                rma.receive(now, mem, arrived, frame.origin.or_else(mac), &mut self.shared);
            }
            _ => self.shared.counters_mut().malformed_pkts += 1,
        }
    }

    /// Runs a turn of 1RMA before those of queue pairs. Returns the number of messages sent.
    #[inline(never)]
    pub(crate) fn transmit_rma(&mut self, now: Instant, mem: Mem<'_>, out: &mut dyn Egress) -> usize {
        let Some(rma) = &mut self.rma else { return 0 };
        let mut used = TurnUsage::default();
        rma.transmit(now, mem, out, &mut self.shared, usize::MAX, &mut used);
        if used.packets > 0 {
            out.flush();
        }
        used.packets
    }

    /// Runs the turn of 1RMA as one of the tenants, with a turn of equal length. Adds the number of messages
    /// sent to `packets`. Returns false if the port has no free frame.
    pub(crate) fn transmit_rma_scheduled(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut dyn Egress,
        packets: &mut usize,
    ) -> bool {
        let mut used = TurnUsage::default();
        let mut end = TurnEnd::Done;
        let mut more = false;
        if let Some(rma) = &mut self.rma {
            end = rma.transmit(now, mem, out, &mut self.shared, TURN_BYTES, &mut used);
            more = used.packets > 0 && rma.has_work();
        }
        *packets += used.packets;
        match end {
            TurnEnd::Blocked if !out.has_space_per_peer() => {
                self.scheduler.interrupted(RMA, RMA_TENANT, &used);
                return false;
            }
            TurnEnd::Blocked => {
                let peer = self.rma.as_ref().map_or(Peer(RMA), |rma| rma.full_peer);
                self.scheduler.rma_blocked(peer, &used);
            }
            _ => self.scheduler.served(RMA, RMA_TENANT, more, &used),
        }
        true
    }

    /// Runs the timers of 1RMA.
    #[inline(never)]
    pub(crate) fn expire_rma(&mut self, now: Instant) {
        if let Some(rma) = &mut self.rma {
            rma.expire(now, &mut self.shared);
        }
    }
}
