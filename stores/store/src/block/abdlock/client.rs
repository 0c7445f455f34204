//! The ABDLOCK client: a window of operations, each under its own locks at a majority of replicas.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::super::grant::WORD;
use super::super::replica_set::ReplicaSet;
use super::super::slots::Slots;
use super::super::{
    Canary, ClientConfig, Design, Finished, Grant, Lost, Machine, Operation, Outcome, Refused, Slot, Tag,
};
use super::flight::{Flight, State, Step};
use super::verbs::{self, copy_len, sealed_len, tag_at, value_at, whole_len};
use crate::backoff::pause;
use crate::random::Random;
use crate::words::u64_at;
use crate::{Broken, Connections, QueueNeeds, Registered};

/// Nanoseconds for which an operation that holds locks waits for an answer before it releases them. The time
/// doubles with each attempt.
const PATIENCE: u64 = 500_000;
/// Number of times that the patience doubles: up to 2^7 times [`PATIENCE`].
const DOUBLINGS: u32 = 7;

/// An ABDLOCK client. It does no input or output itself: its caller owns the queue pairs. Its registered
/// memory is one block, and no operation allocates memory.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    arena: Registered,
    replica_set: ReplicaSet,
    random: Random,
    flights: Vec<Flight>,
    slots: Slots,
    /// Lower bound of the time at which an operation needs attention.
    deadline: Instant,
    /// The value that is read or written, with tags and checksum, in memory that the NIC cannot access.
    value: Vec<u8>,
}

impl Client {
    /// Returns a client with [`Client::arena_len`] bytes of memory and no connections. `seed` seeds its
    /// pauses. Returns `None` if the configuration is invalid or the arena too short.
    pub fn new(config: ClientConfig, arena: Registered, seed: u64) -> Option<Client> {
        if !config.is_sound() || arena.bytes.len() < Client::arena_len(&config) {
            return None;
        }
        Some(Client {
            replica_set: ReplicaSet::new(&config),
            random: Random::new(seed),
            flights: vec![Flight::new(); config.slots()],
            slots: Slots::new(&config),
            deadline: Instant::NEVER,
            value: vec![0; sealed_len(&config.layout)],
            config,
            arena,
        })
    }

    /// Returns the bytes of registered memory that the client needs.
    pub fn arena_len(config: &ClientConfig) -> usize {
        Client::buffer_at(config, config.slots(), 0)
    }

    /// Returns the sizes that each queue pair needs.
    pub fn needs(config: &ClientConfig) -> QueueNeeds {
        let slots = config.slots() as u32;
        QueueNeeds { send: slots + 1, receive: 1, sges: 1, completions: slots + 1 }
    }
}

impl Machine for Client {
    fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    fn is_quiet(&self) -> bool {
        self.slots.are_all_free()
    }

    fn lost(&self) -> Option<Lost> {
        self.replica_set.lost()
    }

    fn connect(
        &mut self,
        replica: usize,
        grant: Grant,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        if grant.design != Design::AbdLock || grant.layout != self.config.layout || grant.lease == 0 {
            return Err(Broken::Protocol);
        }
        self.replica_set.join(replica, grant);
        self.ask_for_all(replica, connections);
        Ok(())
    }

    /// Removes a connection; the replica itself breaks the locks of the connection.
    fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections) {
        self.replica_set.leave(replica);
        for slot in 0..self.flights.len() {
            let flight = &mut self.flights[slot];
            flight.busy[replica] = None;
            flight.held.remove(replica);
            // For an operation that waited only for this release, no other completion would report its end.
            let released = flight.state == State::Releasing && flight.held.is_empty();
            if released || matches!(flight.state, State::Locking | State::Reading | State::Writing) {
                flight.state = State::Waiting(now);
                self.deadline = now;
            } else if flight.state == State::Over && flight.is_free() {
                flight.state = State::Idle;
                self.slots.free(slot);
            }
            self.ask_all(slot, connections);
        }
    }

    fn start(
        &mut self,
        now: Instant,
        operation: Operation,
        block: u64,
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        let writes = operation == Operation::Write;
        if writes && value.len() != self.config.layout.block_len as usize {
            return Err(Refused::WrongLength);
        }
        let slot = self.slots.begin(block)?;
        if writes {
            self.arena.write(Client::buffer_at(&self.config, slot, 0) + WORD, value);
        }
        self.flights[slot].begin(operation, block, now);
        self.deadline = self.deadline.min(deadline(&self.flights[slot]));
        self.ask_all(slot, connections);
        self.slots.checked(|slot| self.flights[slot].state == State::Idle);
        Ok(Slot(slot as u16))
    }

    #[inline]
    fn next_deadline(&self) -> Instant {
        self.deadline
    }

    fn expire(&mut self, now: Instant, connections: &mut impl Connections) {
        if self.deadline > now {
            return;
        }
        for slot in 0..self.flights.len() {
            if deadline(&self.flights[slot]) > now {
                continue;
            }
            if matches!(self.flights[slot].state, State::Waiting(_)) {
                self.flights[slot].lock(now);
                self.ask_all(slot, connections);
            } else {
                self.give_up(slot, now, connections);
            }
        }
        self.deadline = self.flights.iter().map(deadline).min().unwrap_or(Instant::NEVER);
    }

    fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>> {
        let slot = usize::from(self.replica_set.take(replica, completion)?.slot);
        let step = self.flights.get_mut(slot)?.busy[replica].take()?;
        let flight = &mut self.flights[slot];
        let counts = flight.asked.has(replica);
        match step {
            Step::Lock => self.lock_answered(slot, replica),
            Step::Unlock => {
                flight.held.remove(replica);
                flight.released += 1;
            }
            Step::Tags if counts && flight.state == State::Reading => self.tags_came(slot, replica),
            Step::Read if counts && flight.state == State::Reading => {
                flight.values.add(replica);
                self.tags_came(slot, replica);
            }
            Step::Write if counts && flight.state == State::Writing => flight.has.add(replica),
            Step::Tags | Step::Read | Step::Write => {}
        }
        let exhausted = self.advance(slot, now, connections);
        self.ask(slot, replica, connections);
        let over = self.end(slot, replica, exhausted);
        if self.replica_set.caught_up(replica, true) {
            self.ask_for_all(replica, connections);
        }
        self.slots.checked(|slot| self.flights[slot].state == State::Idle);
        over.then(|| self.finished(slot, exhausted))
    }
}

impl Client {
    fn ask_all(&mut self, slot: usize, connections: &mut impl Connections) {
        (0..self.replica_set.len()).for_each(|replica| self.ask(slot, replica, connections));
    }

    fn ask_for_all(&mut self, replica: usize, connections: &mut impl Connections) {
        (0..self.flights.len()).for_each(|slot| self.ask(slot, replica, connections));
    }

    /// Posts the next request of the operation to a replica.
    fn ask(&mut self, slot: usize, replica: usize, connections: &mut impl Connections) {
        let Some(step) = self.flights[slot].next(replica) else { return };
        if self.replica_set.grant(replica).is_none()
            || (step == Step::Lock && !self.replica_set.takes(replica, true))
        {
            return;
        }
        let flight = &mut self.flights[slot];
        flight.busy[replica] = Some(step);
        let id = self.replica_set.id(replica, step as u8, slot);
        let Some(grant) = self.replica_set.grant(replica) else { return };
        let config = &self.config;
        let arena = &self.arena;
        let layout = &grant.layout;
        let buffer =
            |buffer: usize, offset, len| arena.sge(Client::buffer_at(config, slot, buffer) + offset, len);
        let old = arena.sge(Client::lock_at(config, slot, replica), WORD);
        let nic = &mut connections.endpoint(replica);
        let posted = match step {
            Step::Lock => {
                flight.asked.add(replica);
                verbs::swap_lock(grant, flight.block, [0, grant.lease], id, old, nic)
            }
            Step::Unlock => verbs::swap_lock(grant, flight.block, [grant.lease, 0], id, old, nic),
            Step::Read => {
                verbs::read(grant, flight.block, id, buffer(1 + replica, 0, whole_len(layout)), nic)
            }
            Step::Tags => {
                let landing = buffer(1 + replica, tag_at(layout, 0), verbs::TAGS);
                verbs::read_tags(grant, flight.block, id, landing, nic)
            }
            Step::Write => {
                let older = 1 - flight.newer[replica];
                let source = buffer(0, verbs::copy_in_sealed(older), copy_len(layout));
                verbs::write(grant, flight.block, older, id, source, nic)
            }
        };
        if let Err(error) = posted {
            self.replica_set.lose(replica, error.into());
        }
    }

    fn lock_answered(&mut self, slot: usize, replica: usize) {
        let mut old = [0; WORD];
        self.arena.read(Client::lock_at(&self.config, slot, replica), &mut old);
        if u64_at(&old, 0) == 0 {
            self.flights[slot].held.add(replica);
        }
    }

    /// Processes the tags that were read under the lock, and decides which of the two copies is newer.
    fn tags_came(&mut self, slot: usize, replica: usize) {
        let layout = &self.config.layout;
        let offset = Client::buffer_at(&self.config, slot, 1 + replica);
        let mut words = [0; verbs::TAGS];
        self.arena.read(offset + tag_at(layout, 0), &mut words);
        let tags = [Tag(u64_at(&words, 0)), Tag(u64_at(&words, 2 * WORD))];
        let newer = usize::from(tags[1] > tags[0]);
        let flight = &mut self.flights[slot];
        (flight.seen[replica], flight.newer[replica]) = (tags[newer], newer);
        flight.read.add(replica);
    }

    /// Moves the operation to its next state if its answers suffice. Returns true if the block's tags are
    /// exhausted.
    fn advance(&mut self, slot: usize, now: Instant, connections: &mut impl Connections) -> bool {
        let quorum = self.config.quorum();
        let client = u64::from(self.config.id.get());
        let flight = &mut self.flights[slot];
        let (locks, coming) = flight.locks();
        let mut exhausted = false;
        match flight.state {
            State::Locking if locks >= quorum => flight.read(flight.block.wrapping_add(client)),
            State::Locking if locks + coming < quorum => return self.give_up(slot, now, connections),
            State::Reading if flight.read.len() >= quorum => {
                if self.lacks_value(slot) {
                    self.ask_all(slot, connections);
                    return false;
                }
                exhausted = !self.decide(slot);
            }
            State::Writing if flight.has.len() >= quorum => flight.enter(State::Releasing),
            _ => return false,
        }
        let flight = &mut self.flights[slot];
        if flight.state == State::Writing && flight.has.len() >= quorum {
            flight.state = State::Releasing;
        }
        if flight.state == State::Releasing {
            flight.released = 0;
        }
        self.ask_all(slot, connections);
        exhausted
    }

    /// Returns true if the operation needs a value that it has not read, after a quorum's tags were read.
    /// Unless the value is on its way, a replica that has it is selected.
    fn lacks_value(&mut self, slot: usize) -> bool {
        let flight = &mut self.flights[slot];
        let (_, holders) = flight.newest();
        if flight.tag.is_some()
            || flight.operation == Operation::Write
            || !holders.and(flight.values).is_empty()
        {
            return false;
        }
        if !flight.is_coming() && holders.and(flight.wanted).is_empty() {
            flight.wanted.add(holders.first());
            flight.round_trips += 1;
        }
        true
    }

    /// Decides, after a quorum was read, what is written to which replicas. Returns false if the block's
    /// tags are exhausted.
    fn decide(&mut self, slot: usize) -> bool {
        let flight = &mut self.flights[slot];
        let (newest, holders) = flight.newest();
        let source = holders.and(flight.values).first();
        flight.enter(State::Writing);
        let operation = flight.operation;
        let block = flight.block;
        let known = flight.tag;
        let newer = flight.newer[source];
        let tag = match (known, operation) {
            // An operation that begins again keeps its tag, because some replicas may have been written
            // already.
            (Some(tag), _) => Some(tag),
            (None, Operation::Read) => Some(newest),
            (None, Operation::Write) => self.next_tag(block, newest),
        };
        let Some(tag) = tag else {
            self.flights[slot].state = State::Releasing;
            return false;
        };
        if known.is_none() {
            // The value to write never changes, whatever a later attempt reads.
            let layout = &self.config.layout;
            let offset = Client::buffer_at(&self.config, slot, 0);
            let copy = Client::buffer_at(&self.config, slot, 1 + source) + value_at(layout, newer);
            let len = WORD + layout.block_len as usize;
            if operation == Operation::Read {
                // The copied bytes include the checksum.
                self.arena.read(copy, &mut self.value[WORD..WORD + len]);
                verbs::set_tag(&mut self.value, tag);
            } else {
                self.arena.read(offset, &mut self.value);
                verbs::seal(&mut self.value, tag);
            }
            self.arena.write(offset, &self.value);
        }
        let checks = self.config.canary != Canary::NoTagCheck;
        let flight = &mut self.flights[slot];
        flight.tag = Some(tag);
        if operation == Operation::Read && self.config.canary == Canary::NoWriteBack {
            flight.state = State::Releasing;
        }
        flight
            .read
            .iter()
            .filter(|replica| checks && flight.seen[*replica] >= tag)
            .for_each(|replica| flight.has.add(replica));
        true
    }

    /// Returns a tag above the newest that a quorum knows, and above those of this client's writes that are
    /// under way. Returns `None` if the tags are exhausted.
    fn next_tag(&self, block: u64, newest: Tag) -> Option<Tag> {
        let ours = self.flights.iter().filter(|flight| flight.is_active() && flight.block == block);
        let own = ours.filter_map(|flight| flight.tag).map(Tag::time).max().unwrap_or(0);
        Tag::after(newest.time().max(own), self.config.id)
    }

    /// Releases the locks of the operation, which begins again after a pause.
    fn give_up(&mut self, slot: usize, now: Instant, connections: &mut impl Connections) -> bool {
        let pause = pause(self.flights[slot].tries, &mut self.random);
        let flight = &mut self.flights[slot];
        flight.tries += 1;
        flight.state = State::Waiting(now.after(pause));
        self.deadline = self.deadline.min(now.after(pause));
        self.ask_all(slot, connections);
        false
    }

    /// Returns true if the operation is over for its user. Requests that are left at slow replicas are
    /// released as they complete.
    fn end(&mut self, slot: usize, replica: usize, exhausted: bool) -> bool {
        let quorum = self.config.quorum();
        let flight = &mut self.flights[slot];
        let rests =
            |flight: &Flight, replica: usize| flight.held.has(replica) || flight.busy[replica].is_some();
        let released = flight.held.is_empty() || flight.released >= quorum;
        let over = exhausted || (flight.state == State::Releasing && released);
        if over {
            flight.state = State::Over;
            self.slots.end();
            (0..self.replica_set.len())
                .filter(|r| rests(flight, *r))
                .for_each(|r| self.replica_set.tail(r, true));
            let offset = Client::buffer_at(&self.config, slot, 0);
            self.arena.read(offset, &mut self.value);
        } else if flight.state == State::Over && !rests(flight, replica) {
            self.replica_set.tail(replica, false);
        }
        if flight.state == State::Over && flight.is_free() {
            flight.state = State::Idle;
            self.slots.free(slot);
        }
        over
    }

    fn finished(&self, slot: usize, exhausted: bool) -> Finished<'_> {
        let Flight { operation, block, tag, round_trips, .. } = self.flights[slot];
        let len = self.config.layout.block_len as usize;
        let outcome = match operation {
            _ if exhausted => Outcome::Exhausted,
            Operation::Read => Outcome::Value(&self.value[WORD..WORD + len]),
            Operation::Write => Outcome::Done,
        };
        let tag = tag.unwrap_or(Tag::NEVER);
        Finished { slot: Slot(slot as u16), operation, block, tag, outcome, round_trips }
    }

    /// Returns the arena offset to which the CAS of a replica's lock returns the old value.
    fn lock_at(config: &ClientConfig, slot: usize, replica: usize) -> usize {
        (slot * config.replicas + replica) * WORD
    }

    /// Returns the arena offset of a slot's buffer. Buffer 0 holds the slot's own block; buffer 1 + r holds
    /// what replica r returned.
    fn buffer_at(config: &ClientConfig, slot: usize, buffer: usize) -> usize {
        let locks = Client::lock_at(config, config.slots(), 0).next_multiple_of(64);
        let stride = verbs::stride(&config.layout);
        locks + (slot * (config.replicas + 1) + buffer) * stride
    }
}

/// Returns the time at which an operation continues without further answers.
fn deadline(flight: &Flight) -> Instant {
    match flight.state {
        State::Waiting(until) => until,
        State::Locking | State::Reading | State::Writing => {
            flight.since.after(PATIENCE << flight.tries.min(DOUBLINGS))
        }
        _ => Instant::NEVER,
    }
}
