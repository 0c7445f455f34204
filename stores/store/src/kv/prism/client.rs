//! The PRISM-KV client: a window of operations on one queue pair.

use std::collections::VecDeque;

use remora_nic::prism::Verdict as Ended;
use remora_nic::{CompletionKind, Remote, WorkCompletion};
use remora_transport::Status;

use super::chain::{self, Part};
use super::client_config::{Arena, ClientConfig};
use super::flight::{Flight, State};
use super::grant::Grant;
use super::object::{HEADER, SlotContent, binding, header, see};
use super::slot_cache::SlotCache;
use super::tables::{Front, Tables};
use crate::heap::Returns;
use crate::kv::{Finished, Operation, Outcome, Refusal, Refused, SessionError, Slot};
use crate::{Broken, PostPrism, Registered};

/// Maximum number of slots of other keys that a key may pass in a table. So a key is within this distance
/// from its home slot, or absent.
pub(super) const MOST_PASSED: u32 = 512;

/// The result of an operation, before the value is borrowed.
#[derive(Copy, Clone)]
pub(super) enum OwnedOutcome {
    /// Start and length of the value in `landed`.
    Value(usize, usize),
    Other(Outcome<'static>),
}

/// The consequence of a completion.
pub(super) enum Next {
    /// The operation has ended.
    End(OwnedOutcome),
    /// The operation continues with another round trip.
    On,
}

/// A PRISM-KV client. It does no input or output itself: the owner of the queue pair passes completions to
/// it. No operation allocates memory.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    grant: Grant,
    pub(super) tables: Tables,
    /// The last known value of the word in front of the tables.
    pub(super) front: Front,
    /// True while a READ of that word is under way that belongs to no particular operation.
    pub(super) looks_in_front: bool,
    pub(super) arena: Arena,
    pub(super) flights: Vec<Flight>,
    /// The keys of the operations in flight, `max_key` bytes per place.
    keys: Vec<u8>,
    idle: Vec<u16>,
    /// Operations whose CAS waits until there is space to return the buffer that it may unlink.
    waiting: VecDeque<u16>,
    /// Number of CASes under way. Each may unlink a buffer that must be returned.
    swaps: usize,
    pub(super) known: SlotCache,
    returns: Returns,
    /// The data that arrived last, in memory that the NIC cannot access.
    landed: Vec<u8>,
    /// Number of slots that this client moved to the next table.
    pub(super) moves: u64,
    broken: Option<Broken>,
}

impl Client {
    /// Returns a client of the server that sent `grant`, with its memory in `arena`.
    ///
    /// # Errors
    /// The configuration is invalid, or the arena is too small.
    pub fn new(config: ClientConfig, grant: &Grant, arena: Registered) -> Result<Client, SessionError> {
        let tables = grant.places().filter(|_| config.is_sound()).ok_or(SessionError::Malformed)?;
        let needed = config.arena_len();
        if arena.bytes.len() < needed {
            return Err(SessionError::ArenaTooSmall { needed });
        }
        let window = config.window as usize;
        let arena = Arena::new(arena, config);
        // One half of the space fills while the buffers of the other half are sent.
        let most = (2 * window).max(64);
        Ok(Client {
            returns: Returns::new(arena.block.clone(), arena.returns(), most),
            config,
            grant: grant.clone(),
            tables,
            front: Front { count: grant.base + 1, base: grant.base },
            looks_in_front: false,
            arena,
            flights: vec![Flight::IDLE; window],
            keys: vec![0; window * config.max_key as usize],
            idle: (0..config.window as u16).rev().collect(),
            waiting: VecDeque::with_capacity(window),
            swaps: 0,
            known: SlotCache::new(config.known),
            landed: vec![0; config.object_len()],
            moves: 0,
            broken: None,
        })
    }

    /// Posts the receive request. Call it once, before the first operation.
    ///
    /// # Errors
    /// The queue did not take the request.
    pub fn start(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        self.returns.listen(Part::Listen.id(0), nic)
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.idle.len()
    }

    /// Returns true unless the queue pair has failed.
    pub(super) fn is_whole(&self) -> bool {
        self.broken.is_none()
    }

    /// Returns the free places, the places whose CAS waits, and the number of CASes under way.
    pub(super) fn counts(&self) -> (&[u16], &VecDeque<u16>, usize) {
        (&self.idle, &self.waiting, self.swaps)
    }

    /// Returns the number of slots that this client found frozen and moved to the next table itself, because
    /// no other client had.
    pub fn helped(&self) -> u64 {
        self.moves
    }

    /// Starts reading the value of `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    #[inline]
    pub fn get(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        let place = self.begin(Operation::Get, key)?;
        // Most keys are in their home slot. Looking up the remembered slot would cost a cache miss and save
        // nothing.
        if self.known.may_be_displaced(self.flights[usize::from(place)].hash) {
            self.recall(place);
        }
        let first = (self.config.first_read as usize).max(HEADER + key.len());
        self.flights[usize::from(place)].asked = first.min(self.config.object_len()) as u32;
        let posted = self.look(place, nic);
        self.started(place, posted)
    }

    /// Starts storing `value` under `key`. Both are copied before this returns.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    pub fn put(&mut self, key: &[u8], value: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        let fits = value.len() <= self.config.max_value.min(self.grant.max_value) as usize;
        let len = HEADER as u64 + key.len() as u64 + value.len() as u64;
        if !fits || self.grant.classes.for_len(len).is_none() {
            return Err(Refused::ValueTooLong);
        }
        let place = self.begin(Operation::Put, key)?;
        let flight = &mut self.flights[usize::from(place)];
        flight.value_len = value.len() as u32;
        let offset = self.arena.object(place);
        self.arena.block.write(offset, &header(0, flight.hash, key.len(), value.len()));
        self.arena.block.write(offset + HEADER, key);
        self.arena.block.write(offset + HEADER + key.len(), value);
        // The entry of the slot cache that `begin` prefetched has arrived.
        self.recall(place);
        let posted = self.change(place, nic);
        self.started(place, posted)
    }

    /// Starts removing `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    pub fn delete(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        let place = self.begin(Operation::Delete, key)?;
        self.recall(place);
        let posted = self.change(place, nic);
        self.started(place, posted)
    }

    /// Processes a completion of this client's queue pair, and returns the operation that the completion
    /// ends.
    ///
    /// # Errors
    /// The queue pair has failed. [`abandon`](Client::abandon) returns the operations in flight.
    #[inline]
    pub fn complete(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl PostPrism,
    ) -> Result<Option<Finished<'_>>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let ended = self.take(completion, nic).inspect_err(|broken| self.broken = Some(*broken))?;
        if let Some((place, _)) = ended {
            self.release(place);
        }
        // A failure is noted, and the next call returns it, because this call must return the ended
        // operation.
        if let Err(broken) = self.proceed(nic) {
            self.broken = Some(broken);
        }
        self.checked();
        Ok(ended.map(|(place, end)| {
            let outcome = match end {
                OwnedOutcome::Value(start, len) => Outcome::Value(&self.landed[start..start + len]),
                OwnedOutcome::Other(outcome) => outcome,
            };
            finished(place, &self.flights[usize::from(place)], outcome)
        }))
    }

    /// Returns the operations in flight after a failure, one per call, and `None` when none is left.
    pub fn abandon(&mut self) -> Option<Finished<'static>> {
        let broken = self.broken?;
        let place = self.flights.iter().position(|flight| flight.state != State::Idle)? as u16;
        self.release(place);
        Some(finished(place, &self.flights[usize::from(place)], Outcome::Failed(broken)))
    }

    /// Marks the client as failed, for instance because its server is gone. [`abandon`](Client::abandon)
    /// then returns the operations in flight.
    pub fn give_up(&mut self, status: Status) {
        self.broken.get_or_insert(Broken::Completion(status));
    }

    /// Takes a place for an operation on `key`.
    #[inline]
    fn begin(&mut self, operation: Operation, key: &[u8]) -> Result<u16, Refused> {
        if let Some(broken) = self.broken {
            return Err(Refused::Broken(broken));
        }
        if key.len() > self.config.max_key.min(self.grant.max_key) as usize {
            return Err(Refused::KeyTooLong);
        }
        let place = self.idle.pop().ok_or(Refused::WindowFull)?;
        let key_at = usize::from(place) * self.config.max_key as usize;
        self.keys[key_at..key_at + key.len()].copy_from_slice(key);
        let hash = binding(self.grant.hash_seed, key);
        let flight = &mut self.flights[usize::from(place)];
        *flight = Flight {
            state: State::Waiting,
            operation,
            hash,
            key_len: key.len() as u32,
            asked: (HEADER + key.len()) as u32,
            phase: (operation != Operation::Get).then(|| self.returns.begin()),
            ..Flight::IDLE
        };
        flight.go_home(&self.tables, self.front.base);
        if operation != Operation::Get {
            self.known.announce(hash);
        }
        Ok(place)
    }

    /// Moves the operation to the slot in which its key was last seen, if that is known.
    #[inline]
    fn recall(&mut self, place: u16) {
        let flight = &mut self.flights[usize::from(place)];
        if let Some((address, generation)) = self.known.get(flight.hash) {
            (flight.address, flight.generation, flight.remembered) = (address, generation, true);
        }
    }

    /// Returns the place of an operation that was started. Frees the place if the queue pair failed.
    #[inline]
    fn started(&mut self, place: u16, posted: Result<(), Broken>) -> Result<Slot, Refused> {
        if let Err(broken) = posted {
            self.broken = Some(broken);
            self.release(place);
            return Err(Refused::Broken(broken));
        }
        self.checked();
        Ok(Slot(place))
    }

    #[inline]
    fn release(&mut self, place: u16) {
        let flight = &mut self.flights[usize::from(place)];
        flight.state = State::Idle;
        if let Some(phase) = flight.phase.take() {
            self.returns.end(phase);
        }
        self.idle.push(place);
    }

    #[inline]
    pub(super) fn remote(&self, addr: u64) -> Remote {
        Remote { addr, rkey: self.grant.table.rkey }
    }

    /// Posts a READ through the operation's current slot.
    #[inline]
    pub(super) fn look(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let landing = self.landing(place);
        let flight = &mut self.flights[usize::from(place)];
        flight.state = State::Reading;
        flight.round_trips += 1;
        let address = flight.address;
        let asked = flight.asked;
        chain::look(self.remote(address), place, asked, landing, &self.arena, nic)
    }

    /// Returns the arena offset to which an operation's READs go.
    #[inline]
    pub(super) fn landing(&self, place: u16) -> usize {
        match self.flights[usize::from(place)].operation {
            Operation::Get | Operation::List => self.arena.object(place),
            // The object to be stored must not be overwritten.
            Operation::Put | Operation::Delete => self.arena.probe(place),
        }
    }

    /// Posts the CAS of a PUT or DELETE if its slot is known, else a READ to find the slot.
    fn change(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<(), Broken> {
        if self.flights[usize::from(place)].remembered {
            self.swap(place, nic)
        } else {
            self.look(place, nic)
        }
    }

    /// Posts the CAS of the slot now, or later if there is no space to return the buffer that it may unlink.
    fn swap(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<(), Broken> {
        if self.returns.space() > self.swaps && self.waiting.is_empty() {
            return self.post_swap(place, nic);
        }
        self.flights[usize::from(place)].state = State::Waiting;
        self.waiting.push_back(place);
        Ok(())
    }

    fn post_swap(&mut self, place: u16, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let flight = &mut self.flights[usize::from(place)];
        flight.state = State::Swapping;
        flight.round_trips += 1;
        self.swaps += 1;
        let flight = self.flights[usize::from(place)];
        let slot = self.remote(flight.address);
        if flight.operation == Operation::Delete {
            return chain::delete(slot, place, &flight, &self.arena, nic);
        }
        let class = self.class_of(&flight).ok_or(Broken::Protocol)?;
        chain::put(slot, place, &flight, &self.grant.classes.all()[class], &self.arena, nic)
    }

    /// Returns the size class from which a PUT allocates its buffer, or `None` if no class is large enough.
    #[inline]
    fn class_of(&self, flight: &Flight) -> Option<usize> {
        let len = HEADER as u64 + u64::from(flight.key_len) + u64::from(flight.value_len);
        let class = self.grant.classes.for_len(len)? + usize::from(flight.larger);
        (class < self.grant.classes.all().len()).then_some(class)
    }

    /// Sends the buffers to return, and posts CASes that waited for that.
    #[inline]
    fn proceed(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let idle = self.in_flight() == 0 || !self.waiting.is_empty();
        if self.returns.is_due(idle) {
            self.returns.send(Part::Return.id(0), idle, nic)?;
        }
        while self.returns.space() > self.swaps {
            let Some(place) = self.waiting.pop_front() else { break };
            self.post_swap(place, nic)?;
        }
        Ok(())
    }

    /// Processes a completion.
    #[inline]
    fn take(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl PostPrism,
    ) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let (part, place) = Part::of(completion.id).ok_or(Broken::Protocol)?;
        let then = match part {
            Part::Look => self.landed(place, completion.byte_len as usize, nic)?,
            Part::Swap => self.swapped(place, completion.outcome, nic)?,
            Part::Front => self.fronted(place, nic)?,
            Part::Move => self.handed_over(place, nic)?,
            Part::Return => {
                self.returns.sent();
                Next::On
            }
            Part::Listen if completion.kind == CompletionKind::Receive => {
                self.returns.received(completion.byte_len, Part::Listen.id(0), nic)?;
                Next::On
            }
            Part::Listen | Part::Quiet => return Err(Broken::Protocol),
        };
        Ok(match then {
            Next::End(end) => Some((place, end)),
            Next::On => None,
        })
    }

    /// Processes a READ that has returned the object to which a slot points.
    #[inline]
    fn landed(&mut self, place: u16, len: usize, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let flight = self.flights.get(usize::from(place)).ok_or(Broken::Protocol)?;
        if flight.state != State::Reading || len > flight.asked as usize {
            return Err(Broken::Protocol);
        }
        let hash = flight.hash;
        let operation = flight.operation;
        let helps = flight.frozen.is_some();
        let key_at = usize::from(place) * self.config.max_key as usize;
        let key = &self.keys[key_at..key_at + flight.key_len as usize];
        let offset = self.landing(place);
        let landed = &mut self.landed[..len];
        self.arena.block.read(offset, landed);
        let seen = see(landed, hash, key).ok_or(Broken::Protocol)?;
        match (operation, seen) {
            (_, SlotContent::Free | SlotContent::Other | SlotContent::Moved) if flight.remembered => {
                self.restart(place, nic)
            }
            (_, SlotContent::Other) => self.pass(place, nic),
            (_, seen) if helps => self.help(place, seen, nic),
            (_, SlotContent::Moved) => self.follow(place, nic),
            (Operation::Get | Operation::List, SlotContent::Mine { generation, len: whole }) => {
                self.found(place, generation, whole, len, nic)
            }
            (Operation::Put, SlotContent::Twin) => {
                Ok(Next::End(OwnedOutcome::Other(Outcome::Refused(Refusal::TableFull))))
            }
            (Operation::Put, SlotContent::Free) => self.swap_from(place, 0, nic),
            (Operation::Put, SlotContent::Gone { generation }) => self.swap_from(place, generation, nic),
            (Operation::Put | Operation::Delete, SlotContent::Mine { generation, .. }) => {
                self.swap_from(place, generation, nic)
            }
            (
                Operation::Get | Operation::Delete | Operation::List,
                SlotContent::Free | SlotContent::Gone { .. } | SlotContent::Twin,
            ) => Ok(Next::End(OwnedOutcome::Other(Outcome::Absent))),
        }
    }

    /// Processes a GET whose READ returned its key's object. An object longer than the READ is read once
    /// more.
    ///
    /// Always inlined: remembering the slot stores to a distant line. A result stored behind it in pieces
    /// and loaded whole would wait for that store.
    #[inline(always)]
    fn found(
        &mut self,
        place: u16,
        generation: u64,
        whole: u64,
        len: usize,
        nic: &mut impl PostPrism,
    ) -> Result<Next, Broken> {
        self.remember(place, generation);
        let flight = &mut self.flights[usize::from(place)];
        if whole <= len as u64 {
            let start = HEADER + flight.key_len as usize;
            return Ok(Next::End(OwnedOutcome::Value(start, whole as usize - start)));
        }
        if len < flight.asked as usize {
            // The slot's bound and the object's header contradict each other.
            return Err(Broken::Protocol);
        }
        if whole > self.config.object_len() as u64 {
            return Ok(Next::End(OwnedOutcome::Other(Outcome::TooLong)));
        }
        flight.asked = whole as u32;
        self.retry(place, nic)
    }

    /// Remembers the slot in which an operation has found its key, and marks keys that are not in the slot
    /// where a lookup starts.
    #[inline]
    fn remember(&mut self, place: u16, generation: u64) {
        let flight = &self.flights[usize::from(place)];
        self.known.set(flight.hash, flight.address, generation);
        let at_home = flight.passed == 0 && flight.table == self.front.base;
        if !flight.remembered && !at_home {
            self.known.displaced(flight.hash);
        }
    }

    fn swap_from(&mut self, place: u16, generation: u64, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        self.flights[usize::from(place)].generation = generation;
        self.swap(place, nic)?;
        Ok(Next::On)
    }

    /// Processes the completion of a CAS, which ends a DELETE or the chain of a PUT.
    fn swapped(&mut self, place: u16, outcome: Ended, nic: &mut impl PostPrism) -> Result<Next, Broken> {
        let old = chain::old(&self.arena, place);
        let flight = self.flights.get_mut(usize::from(place)).ok_or(Broken::Protocol)?;
        if flight.state != State::Swapping {
            return Err(Broken::Protocol);
        }
        self.swaps -= 1;
        if flight.operation != Operation::Delete {
            let flight = *flight;
            return self.chained(place, flight, outcome, nic);
        }
        self.known.forget(flight.hash);
        match outcome {
            Ended::Done => {
                self.give_old(place);
                Ok(Next::End(OwnedOutcome::Other(Outcome::Done)))
            }
            Ended::NotSwapped if flight.remembered => self.restart(place, nic),
            Ended::NotSwapped if old.is_moving() => self.met_a_move(place, old, nic),
            // A slot with an odd generation changes its generation only by a DELETE. So the key was deleted
            // after it was read.
            Ended::NotSwapped => Ok(Next::End(OwnedOutcome::Other(Outcome::Absent))),
            _ => Err(Broken::Protocol),
        }
    }

    /// Processes the end of a PUT's chain.
    fn chained(
        &mut self,
        place: u16,
        flight: Flight,
        outcome: Ended,
        nic: &mut impl PostPrism,
    ) -> Result<Next, Broken> {
        match outcome {
            Ended::Done => {
                self.remember(place, flight.next_generation());
                self.give_old(place);
                Ok(Next::End(OwnedOutcome::Other(Outcome::Done)))
            }
            Ended::NotSwapped => {
                self.returns.give(chain::taken(&self.arena, place));
                if flight.remembered {
                    return self.restart(place, nic);
                }
                let old = chain::old(&self.arena, place);
                if old.is_moving() {
                    return self.met_a_move(place, old, nic);
                }
                if flight.overwrites() {
                    // The key was deleted since its slot was read. The PUT counts as done just before that
                    // DELETE.
                    return Ok(Next::End(OwnedOutcome::Other(Outcome::Done)));
                }
                self.retry(place, nic)
            }
            // There was no free buffer, so the CAS was skipped. A larger buffer holds the object, too.
            _ => {
                self.returns.send(Part::Return.id(0), true, nic)?;
                let larger = Flight { larger: flight.larger + 1, ..flight };
                if self.class_of(&larger).is_some() {
                    self.flights[usize::from(place)].larger = larger.larger;
                    self.swap(place, nic)?;
                    return Ok(Next::On);
                }
                self.known.forget(flight.hash);
                Ok(Next::End(OwnedOutcome::Other(Outcome::Refused(Refusal::NoSpace))))
            }
        }
    }

    /// Returns the buffer that the CAS unlinked from the slot, if there was one.
    fn give_old(&mut self, place: u16) {
        let old = chain::old(&self.arena, place);
        if old.generation & 1 == 1 {
            self.returns.give(old.pointer);
        }
    }
}

fn finished<'a>(place: u16, flight: &Flight, outcome: Outcome<'a>) -> Finished<'a> {
    Finished {
        slot: Slot(place),
        operation: flight.operation,
        outcome,
        round_trips: flight.round_trips,
        tries: flight.tries,
    }
}
