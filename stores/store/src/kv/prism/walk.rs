//! The path of a client from slot to slot and from table to table, while slots may be moving to the next
//! table.

use super::chain::{self, Part};
use super::client::{Client, MOST_PASSED, Next, OwnedOutcome};
use super::client_config::FRONT_WORD;
use super::flight::{Frozen, State};
use super::moves::SwapIds;
use super::object::SlotContent;
use super::slot::{MOVED, SLOT, TableSlot};
use super::tables::Front;
use crate::kv::lookup::MOST_TRIES;
use crate::kv::{Operation, Outcome, Refusal};
use crate::{Broken, PostPrism};

/// The place of a READ that belongs to no operation.
const NO_FLIGHT: u16 = u16::MAX;

impl Client {
    /// Continues with the next slot.
    pub(super) fn pass(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        flight.passed += 1;
        let slots = self.tables.slots(flight.table);
        if u64::from(flight.passed) >= u64::from(MOST_PASSED).min(slots) {
            return self.passed_all(place, nic);
        }
        flight.slot = (flight.slot + 1) % slots;
        flight.address = self.tables.address(flight.table, flight.slot);
        self.look(place, nic)?;
        Ok(Next::On)
    }

    /// Continues in the next table, if there is one by now, because all slots of the run are bound to other
    /// hashes for ever.
    #[cold]
    fn passed_all(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let table = self.flights[usize::from(place)].table;
        if table + 1 < self.front.count {
            return self.next_table(place, nic);
        }
        if table + 1 == self.tables.most() {
            return Ok(self.nowhere(place));
        }
        let flight = &mut self.flights[usize::from(place)];
        flight.state = State::Asking;
        flight.round_trips += 1;
        let landing = self.landing(place);
        chain::ask(self.remote(self.tables.front()), place, landing, &self.arena, nic)?;
        Ok(Next::On)
    }

    /// Ends an operation for whose key no table has a slot.
    fn nowhere(&mut self, place: u16) -> Next {
        let flight = &self.flights[usize::from(place)];
        Next::End(OwnedOutcome::Other(match flight.operation {
            // A frozen object always has a slot in the next table, so the server's memory is inconsistent.
            _ if flight.frozen.is_some() => Outcome::Contended,
            Operation::Put => Outcome::Refused(Refusal::TableFull),
            Operation::Get | Operation::Delete | Operation::List => Outcome::Absent,
        }))
    }

    /// Processes the word in front of the tables.
    #[cold]
    pub(super) fn fronted(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let asked = self.flights.get(usize::from(place)).is_some_and(|flight| flight.state == State::Asking);
        let offset = match place {
            NO_FLIGHT if std::mem::take(&mut self.looks_in_front) => self.arena.front(),
            place if asked => self.landing(place),
            _ => return Err(Broken::Protocol),
        };
        let mut word = [0; FRONT_WORD];
        self.arena.block.read(offset, &mut word);
        let front = Front::parse(u64::from_le_bytes(word), self.tables.most()).ok_or(Broken::Protocol)?;
        self.front.count = self.front.count.max(front.count);
        self.front.base = self.front.base.max(front.base);
        if !asked {
            return Ok(Next::On);
        }
        match self.flights[usize::from(place)].table + 1 < self.front.count {
            true => self.next_table(place, nic),
            false => Ok(self.nowhere(place)),
        }
    }

    /// Follows a key whose run ends at a slot that has moved. If that slot is in the first table in use,
    /// this table may have been emptied since; the word in front is read once more.
    #[cold]
    pub(super) fn follow(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let table = self.flights[usize::from(place)].table;
        if table == self.front.base && !self.looks_in_front {
            self.looks_in_front = true;
            let front = self.remote(self.tables.front());
            chain::ask(front, NO_FLIGHT, self.arena.front(), &self.arena, nic)?;
        }
        self.next_table(place, nic)
    }

    fn next_table(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        let next = flight.table + 1;
        if next == self.tables.most() {
            return Err(Broken::Protocol);
        }
        flight.go_home(&self.tables, next);
        self.front.count = self.front.count.max(next + 1);
        self.look(place, nic)?;
        Ok(Next::On)
    }

    /// Reads the same slot once more.
    pub(super) fn retry(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        flight.tries += 1;
        if flight.tries >= MOST_TRIES {
            return Ok(Next::End(OwnedOutcome::Other(Outcome::Contended)));
        }
        self.look(place, nic)?;
        Ok(Next::On)
    }

    /// Starts at the key's home slot, because the remembered slot is out of date.
    #[cold]
    pub(super) fn restart(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        self.known.forget(flight.hash);
        flight.frozen = None;
        flight.go_home(&self.tables, self.front.base);
        self.retry(place, nic)
    }

    /// Processes a CAS that found its slot moving to the next table. If the slot is frozen, its object must
    /// be in the next table before it can be changed. The client moves it without waiting for another mover.
    #[cold]
    pub(super) fn met_a_move(
        &mut self,
        place: u16,
        old: TableSlot,
        nic: &mut impl PostPrism,
    ) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        if old.hash != flight.hash || old.generation & MOVED != 0 {
            return self.retry(place, nic);
        }
        flight.frozen = Some(Frozen { address: flight.address, words: old });
        self.next_table(place, nic)
    }

    /// Processes the next table's slot for a frozen object: moves the object there, unless that was done.
    #[cold]
    pub(super) fn help(
        &mut self,
        place: u16,
        seen: SlotContent,
        nic: &mut impl PostPrism,
    ) -> Result<Next, Broken> {
        let flight = &mut self.flights[usize::from(place)];
        let (Some(frozen), SlotContent::Gone { .. } | SlotContent::Mine { .. } | SlotContent::Twin) =
            (flight.frozen, seen)
        else {
            // The object was moved earlier, and so were the slots after it.
            return self.restart(place, nic);
        };
        flight.state = State::Helping;
        flight.round_trips += 1;
        let address = flight.address;
        let source = self.remote(frozen.address);
        let target = self.remote(address);
        let old = self.arena.block.sge(self.arena.old(place), SLOT);
        let hand = SwapIds { id: Part::Move.id(place), quiet: Part::Quiet.id(place), old };
        hand.hand_over(source, &frozen.words, target, nic)?;
        Ok(Next::On)
    }

    /// Continues in the next table after this client or another mover has moved the frozen object.
    #[cold]
    pub(super) fn handed_over(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = self.flights.get_mut(usize::from(place)).ok_or(Broken::Protocol)?;
        if flight.state != State::Helping {
            return Err(Broken::Protocol);
        }
        flight.frozen = None;
        self.moves += 1;
        self.retry(place, nic)
    }
}
