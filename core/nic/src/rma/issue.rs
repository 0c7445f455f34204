//! Processing of commands: from the ring of a portal to the queue for the window, and from the end of an
//! operation to its completion.

use remora_memory::{Access, Mem, Pd, Span};
use remora_transport::Instant;
use remora_transport::rma::{self, OperationEnd, Party, Status};
use remora_wire::rma::{Class, Kind};

use super::command::Malformed;
use super::keys::wipe;
use super::{Command, Completion, Operand, Rma};
use crate::ring::Word;
use crate::shared::Shared;
use crate::wqe::SLOT;

/// Maximum number of commands fetched in one turn, and from one portal before the next portal's turn, so that
/// programs do not block each other.
const FETCHED: u64 = 64;
const FETCHED_OF_ONE: u64 = 16;

/// Slot number of a completion that belongs to no command.
const NO_SLOT: u16 = u16::MAX;

impl Rma {
    /// Fetches commands of the portals that have some, in round robin.
    pub(crate) fn fetch(&mut self, now: Instant, mem: Mem<'_>, shared: &mut Shared) {
        let mut left = FETCHED;
        while left > 0 {
            let Some(number) = self.portals.next_due() else { return };
            let most = left.min(FETCHED_OF_ONE);
            left -= self.fetch_of(now, mem, number, most, shared).clamp(1, most);
        }
    }

    /// Fetches up to `most` commands of portal `number`, and returns their number.
    fn fetch_of(&mut self, now: Instant, mem: Mem<'_>, number: usize, most: u64, shared: &mut Shared) -> u64 {
        let Some(portal) = &self.portals.places[number] else { return 0 };
        let ring = portal.ring.clone();
        let first = portal.first;
        let slots = portal.slots;
        let begun = portal.fetched;
        let mut fetched = begun;
        let produced = ring.word(Word::Produced);
        if produced.wrapping_sub(begun) > ring.slots() {
            // The producer index is beyond the capacity of the ring. Nothing is fetched until the program
            // rings again.
            self.refuse_command(number, NO_SLOT, shared);
            self.portals.fetched(false);
            return 0;
        }
        let end = produced.min(begun + most);
        while fetched < end {
            // The command is copied once, because the program may change it at any time.
            let mut bytes = [0; SLOT];
            ring.load(fetched, &mut bytes);
            let parsed = Command::parse(&bytes);
            // The ring may exist for a long time, so the key is wiped as early as possible.
            ring.store(fetched, &[0; SLOT]);
            wipe(&mut bytes);
            fetched += 1;
            let slot = match &parsed {
                Ok(command) => command.slot,
                Err(Malformed { slot }) => *slot,
            };
            let own = (first..first.saturating_add(slots)).contains(&slot);
            let issued = parsed.is_ok_and(|command| own && self.issue(now, mem, number, command));
            if !issued {
                self.refuse_command(number, slot, shared);
            }
        }
        ring.set_word(Word::Consumed, fetched);
        if let Some(portal) = &mut self.portals.places[number] {
            portal.fetched = fetched;
        }
        self.portals.fetched(fetched < produced);
        fetched - begun
    }

    /// Completes an invalid command with an error.
    fn refuse_command(&self, number: usize, slot: u16, shared: &mut Shared) {
        shared.counters_mut().rma_malformed_commands += 1;
        let refused = OperationEnd { slot, status: Status::LocalError, issue_delay: 0, total_delay: 0 };
        self.write_completion(number, &Completion::entry(&refused, Kind::Read, 0), shared);
    }

    /// Queues a command. Returns false if the command is invalid.
    fn issue(&mut self, now: Instant, mem: Mem<'_>, number: usize, command: Command) -> bool {
        let Some(portal) = &self.portals.places[number] else { return false };
        let fits = u32::from(command.cq) == portal.cq
            && command.server.address.is_host()
            && !(portal.bulk_only && command.class == Class::Latency)
            && self.local(mem, portal.pd, &command, 0, command.size).is_some();
        let Command { kind, class, size, server, .. } = command;
        let wanted = rma::Command { kind, class, size, server };
        if !fits || self.requester.issue(now, command.slot, wanted, &mut self.solicitation).is_err() {
            return false;
        }
        let slot = usize::from(command.slot);
        self.commands[slot] = Some(command);
        true
    }

    /// Returns the local memory `offset..offset + len` of a command; `None` if the program has no access to
    /// it.
    pub(crate) fn local<'m>(
        &self,
        mem: Mem<'m>,
        pd: Pd,
        command: &Command,
        offset: u32,
        len: u32,
    ) -> Option<Span<'m>> {
        let Operand { region, offset: start } = command.local;
        let memory = self.regions.get(region)?.memory;
        let begin = start.checked_add(u64::from(offset))?;
        let fits = begin.checked_add(u64::from(len)).is_some_and(|end| end <= memory.len);
        if !fits || mem.domain(memory.key) != Some(pd) {
            return None;
        }
        let access = if command.kind == Kind::Read { Access::LOCAL_WRITE } else { Access::NONE };
        mem.check(pd, memory.key, memory.base + begin, len as usize, access).ok()
    }

    /// Writes the completion of an operation that has ended.
    pub(crate) fn complete(&mut self, ended: &OperationEnd, shared: &mut Shared) {
        let slot = usize::from(ended.slot);
        let Some((kind, size)) = self.commands.get_mut(slot).and_then(forget) else { return };
        self.delays.ended(ended);
        match ended.status {
            Status::Timeout => shared.counters_mut().rma_timeouts += 1,
            Status::DispatchTimeout => shared.counters_mut().rma_dispatch_timeouts += 1,
            Status::Nack => shared.counters_mut().rma_nacks_received += 1,
            _ => {}
        }
        let entry = Completion::entry(ended, kind, size);
        if let Some(number) = self.portals.owner_number(ended.slot) {
            self.write_completion(number, &entry, shared);
        }
    }

    fn write_completion(&self, number: usize, entry: &crate::cqe::Cqe, shared: &mut Shared) {
        if let Some(portal) = &self.portals.places[number] {
            shared.write(portal.cq, entry);
        }
    }

    /// Runs the timers that are due at `now`.
    pub(crate) fn expire(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(waiting) = self.solicitation.expire(now) {
            // The queue may be empty now, and then no turn follows that would notice it.
            self.delays.look(now, &self.solicitation);
            match waiting.party {
                Party::Command(slot) => {
                    let ended = self.requester.not_dispatched(now, slot);
                    self.complete(&ended, shared);
                }
                Party::Served(slot) => {
                    self.responder.not_dispatched(slot);
                    shared.counters_mut().rma_nacks_sent += 1;
                }
            }
        }
        while let Some(ended) = self.requester.expire(now, &mut self.solicitation) {
            self.complete(&ended, shared);
        }
        while self.responder.expire(now, &mut self.solicitation).is_some() {
            shared.counters_mut().rma_served_timeouts += 1;
        }
    }
}

/// Removes a command from its table entry and wipes its key. `None` if the entry is empty.
pub(super) fn forget(place: &mut Option<Command>) -> Option<(Kind, u32)> {
    let command = place.as_mut()?;
    wipe(&mut command.key);
    let ended = (command.kind, command.size);
    *place = None;
    Some(ended)
}
