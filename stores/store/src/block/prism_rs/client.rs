//! The PRISM-RS client: a window of operations at all replicas.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::super::grant::{ENTRY, WORD};
use super::super::replica_set::ReplicaSet;
use super::super::set::Set;
use super::super::slots::Slots;
use super::super::{
    Canary, ClientConfig, Design, Finished, Grant, Lost, Machine, Operation, Outcome, Refused, Slot, Tag,
};
use super::chain::{self, Answers};
use super::flight::{Flight, State};
use super::source::Sources;
use crate::heap::{MOST_RETURNED, Returns};
use crate::words::u64_at;
use crate::{Broken, Connections, QueueNeeds, Registered};

mod reading;

/// Purposes of a request, as its id encodes them.
const READ: u8 = 1;
const WRITE: u8 = 2;
const RETURN: u8 = 3;
const LISTEN: u8 = 4;

/// Bytes for the results of a chain: previous metadata, address of the new buffer.
const ANSWERS: usize = 32;
const MINE: usize = ENTRY;

/// Nanoseconds without an operation after which buffers are returned in groups of any size. A client that
/// starts its next operation at once does not send messages with one buffer each, because it soon has full
/// groups.
const REST_NS: u64 = 20_000;

/// The outcome of an operation, before the value is borrowed.
#[derive(Copy, Clone)]
enum OwnedOutcome {
    /// The value of this replica's answer.
    Value(usize),
    Other(Outcome<'static>),
}

/// A PRISM-RS client. It does no input or output itself: its caller owns the queue pairs. Its registered
/// memory is one block, and no operation allocates memory.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    arena: Registered,
    replica_set: ReplicaSet,
    /// Buffers to return to each replica, and the number of chains under way that may add more.
    returns: Vec<Option<Returns>>,
    chains: Vec<usize>,
    flights: Vec<Flight>,
    slots: Slots,
    /// The replicas that are asked for values, and a lower bound of the time at which the next value is
    /// late.
    sources: Sources,
    deadline: Instant,
    /// Time at which the client counts as idle if no operation has begun by then.
    rested: Instant,
    /// The highest time in a tag of this client whose write ended before f + 1 replicas had it. No tag with
    /// this time or a lower one may be used again.
    floor: u64,
    /// The value that was read last, in memory that the NIC cannot access.
    value: Vec<u8>,
}

impl Client {
    /// Returns a client with [`Client::arena_len`] bytes of memory and no connections. Returns `None` if the
    /// configuration is invalid or the arena too short.
    pub fn new(config: ClientConfig, arena: Registered) -> Option<Client> {
        if !config.is_sound() || arena.bytes.len() < Client::arena_len(&config) {
            return None;
        }
        Some(Client {
            replica_set: ReplicaSet::new(&config),
            returns: (0..config.replicas).map(|_| None).collect(),
            chains: vec![0; config.replicas],
            flights: vec![Flight::new(); config.slots()],
            slots: Slots::new(&config),
            sources: Sources::new(config.replicas),
            deadline: Instant::NEVER,
            rested: Instant::NEVER,
            floor: 0,
            value: vec![0; config.layout.block_len as usize],
            config,
            arena,
        })
    }

    /// Returns the bytes of registered memory that the client needs.
    pub fn arena_len(config: &ClientConfig) -> usize {
        Client::buffer_at(config, config.slots(), 0)
    }

    /// Returns the sizes that each queue pair needs. A request takes up to three slots of the send queue.
    pub fn needs(config: &ClientConfig) -> QueueNeeds {
        let slots = config.slots() as u32;
        QueueNeeds { send: slots * chain::SLOTS + 1, receive: 2, sges: 1, completions: 2 * slots + 4 }
    }
}

impl Machine for Client {
    fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    fn is_quiet(&self) -> bool {
        let all_returned = |returns: &Returns| !returns.is_due(true);
        self.slots.are_all_free() && self.returns.iter().flatten().all(all_returned)
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
        if grant.design != Design::PrismRs || grant.layout != self.config.layout {
            return Err(Broken::Protocol);
        }
        let offset = replica * Returns::ARENA.next_multiple_of(64);
        let returns = Returns::new(self.arena.clone(), offset, self.config.slots() + 2 * MOST_RETURNED);
        self.replica_set.join(replica, grant);
        returns.listen(self.replica_set.id(replica, LISTEN, 0), &mut connections.endpoint(replica))?;
        self.returns[replica] = Some(returns);
        self.ask_for_all(replica, connections);
        Ok(())
    }

    fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections) {
        self.replica_set.leave(replica);
        self.sources.failed(replica);
        (self.returns[replica], self.chains[replica]) = (None, 0);
        for slot in 0..self.flights.len() {
            let flight = &mut self.flights[slot];
            let had = flight.under_way().has(replica);
            flight.reading.remove(replica);
            flight.writing.remove(replica);
            if flight.is_active() {
                flight.restart();
                self.aim(slot, now);
            } else if had && flight.under_way().is_empty() {
                flight.state = State::Idle;
                self.slots.free(slot);
            }
        }
        (0..self.replica_set.len()).for_each(|replica| self.ask_for_all(replica, connections));
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
        if writes && value.len() != self.value.len() {
            return Err(Refused::WrongLength);
        }
        let slot = self.slots.begin(block)?;
        if writes {
            self.arena.write(Client::buffer_at(&self.config, slot, 0) + WORD, value);
        }
        self.flights[slot].begin(operation, block);
        self.aim(slot, now);
        self.ask_all(slot, connections);
        self.checked(0);
        Ok(Slot(slot as u16))
    }

    fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>> {
        let id = self.replica_set.take(replica, completion)?;
        let slot = usize::from(id.slot);
        let end = match (id.step, &mut self.returns[replica]) {
            (READ, _) => self.read_answered(slot, replica, now, connections),
            (WRITE, _) => self.chain_answered(slot, replica, connections),
            (RETURN, Some(returns)) => {
                returns.sent();
                None
            }
            (LISTEN, Some(returns)) => {
                let heard =
                    returns.received(completion.byte_len, completion.id, &mut connections.endpoint(replica));
                if let Err(why) = heard {
                    self.replica_set.lose(replica, why);
                }
                None
            }
            _ => None,
        };
        let over = end.map(|end| self.over(slot, end));
        self.give_back(replica, false, connections);
        if self.slots.in_flight() == 0 && self.rested == Instant::NEVER {
            self.rested = now.after(REST_NS);
        }
        self.checked(replica);
        over.map(|outcome| self.finished(slot, outcome))
    }

    #[inline]
    fn next_deadline(&self) -> Instant {
        self.deadline.min(self.rested)
    }

    /// Asks all replicas for the values that are late. Other operations that wait for the same replicas stop
    /// waiting, too. An idle client returns its buffers.
    fn expire(&mut self, now: Instant, connections: &mut impl Connections) {
        if self.rested <= now {
            self.rested = Instant::NEVER;
            if self.slots.in_flight() == 0 {
                (0..self.replica_set.len()).for_each(|replica| self.give_back(replica, true, connections));
            }
        }
        if self.deadline > now {
            return;
        }
        let due = |flight: &&Flight| flight.waits() && flight.until <= now;
        let late = self.flights.iter().filter(due).fold(Set::NONE, |late, flight| late.or(flight.coming()));
        if !late.is_empty() {
            self.sources.late(late);
        }
        self.deadline = Instant::NEVER;
        for slot in 0..self.flights.len() {
            let flight = &mut self.flights[slot];
            if !flight.waits() {
                continue;
            }
            if flight.until > now && !self.sources.are_silent(flight.coming()) {
                self.deadline = self.deadline.min(flight.until);
                continue;
            }
            flight.until = Instant::NEVER;
            self.want(slot, Set::all(self.config.replicas), now, connections);
        }
    }
}

impl Client {
    /// Asserts the invariants, in debug builds only; those of replicas only for `replica`.
    #[inline(always)]
    fn checked(&self, replica: usize) {
        self.slots.checked(|slot| self.flights[slot].state == State::Idle);
        if cfg!(debug_assertions) {
            let chains = self.flights.iter().filter(|flight| flight.writing.has(replica)).count();
            assert_eq!(
                self.chains[replica], chains,
                "chains under way = operations that write at the replica"
            );
        }
    }

    fn ask_all(&mut self, slot: usize, connections: &mut impl Connections) {
        // Requests for values are posted first, because they take longest.
        let wanted = self.flights[slot].wanted;
        wanted.iter().for_each(|replica| self.ask(slot, replica, connections));
        Set::all(self.replica_set.len())
            .without(wanted)
            .iter()
            .for_each(|replica| self.ask(slot, replica, connections));
    }

    fn ask_for_all(&mut self, replica: usize, connections: &mut impl Connections) {
        (0..self.flights.len()).for_each(|slot| self.ask(slot, replica, connections));
    }

    /// Posts the request of the operation's phase to a replica, unless it was posted or an old request of
    /// the same kind is outstanding.
    fn ask(&mut self, slot: usize, replica: usize, connections: &mut impl Connections) {
        let flight = &mut self.flights[slot];
        if !flight.is_active() || flight.asked.has(replica) || self.replica_set.grant(replica).is_none() {
            return;
        }
        let reading = flight.state == State::Reading;
        let busy = if reading { flight.reading } else { flight.writing };
        let Some(returns) = &mut self.returns[replica] else { return };
        let has_space = reading || returns.space() > self.chains[replica];
        if busy.has(replica) || !self.replica_set.takes(replica, has_space) {
            return;
        }
        flight.asked.add(replica);
        let step = if reading { READ } else { WRITE };
        let id = self.replica_set.id(replica, step, slot);
        let Some(grant) = self.replica_set.grant(replica) else { return };
        let config = &self.config;
        let arena = &self.arena;
        let len = grant.layout.tagged_len();
        let landing = |replica: usize, len| arena.sge(Client::buffer_at(config, slot, 1 + replica), len);
        let nic = &mut connections.endpoint(replica);
        let posted = if reading {
            flight.reading.add(replica);
            if flight.wanted.has(replica) {
                flight.whole.add(replica);
                chain::read(grant, flight.block, id, landing(replica, len), nic)
            } else {
                flight.whole.remove(replica);
                chain::read_tag(grant, flight.block, id, landing(replica, WORD), nic)
            }
        } else {
            flight.writing.add(replica);
            flight.phases[replica] = returns.begin();
            self.chains[replica] += 1;
            let own = || arena.sge(Client::buffer_at(config, slot, 0), len);
            let offset = Client::answers_at(config, slot, replica);
            let answers = Answers { old: arena.sge(offset, ENTRY), mine: arena.sge(offset + MINE, WORD) };
            let source = flight.source.map_or_else(own, |holder| landing(holder, len));
            let checks = config.canary != Canary::NoTagCheck;
            chain::write(grant, flight.block, flight.tag, checks, id, source, &answers, nic)
        };
        if let Err(error) = posted {
            self.replica_set.lose(replica, error.into());
        }
    }

    /// Returns a tag above the newest that a quorum knows, and above those of this client that may not be
    /// known to a quorum. Returns `None` if the tags are exhausted.
    fn next_tag(&self, block: u64, newest: Tag) -> Option<Tag> {
        let ours =
            self.flights.iter().filter(|flight| flight.state == State::Writing && flight.block == block);
        let own = ours.map(|flight| flight.tag.time()).max().unwrap_or(0);
        Tag::after(newest.time().max(own).max(self.floor), self.config.id)
    }

    fn chain_answered(
        &mut self,
        slot: usize,
        replica: usize,
        connections: &mut impl Connections,
    ) -> Option<OwnedOutcome> {
        let offset = Client::answers_at(&self.config, slot, replica);
        let old = Tag(self.word(offset));
        let old_address = self.word(offset + WORD);
        let mine = self.word(offset + MINE);
        let flight = self.flights.get_mut(slot)?;
        flight.writing.remove(replica);
        self.sources.answered(replica);
        self.chains[replica] -= 1;
        let swapped = old < flight.tag || self.config.canary == Canary::NoTagCheck;
        if let (Some(returns), Some(grant)) = (&mut self.returns[replica], self.replica_set.grant(replica)) {
            // Of the old and the new buffer, the one that is not in the table is returned. Nothing is
            // returned if no buffer was allocated.
            let unlinked = if swapped { old_address } else { mine };
            if mine != 0 && grant.class.index(unlinked).is_some() {
                returns.give(unlinked);
            }
            returns.end(flight.phases[replica]);
        }
        if flight.state != State::Writing {
            self.tail_ends(slot, replica);
            return None;
        }
        if flight.stale[1].has(replica) {
            flight.stale[1].remove(replica);
            self.ask(slot, replica, connections);
            return None;
        }
        if mine == 0 {
            flight.refused.add(replica);
        } else {
            flight.answered.add(replica);
        }
        let done = flight.answered.len() >= self.config.quorum();
        let hopeless = flight.refused.len() > self.config.faults();
        if !done && !hopeless {
            return None;
        }
        Some(match (done, flight.operation) {
            (true, Operation::Read) => OwnedOutcome::Value(flight.source.unwrap_or(0)),
            (true, Operation::Write) => OwnedOutcome::Other(Outcome::Done),
            (false, _) => {
                self.floor = self.floor.max(flight.tag.time());
                OwnedOutcome::Other(Outcome::NoBuffer)
            }
        })
    }

    /// Notes that a request of an operation that is over, or in its next phase, has completed.
    fn tail_ends(&mut self, slot: usize, replica: usize) {
        let flight = &mut self.flights[slot];
        if flight.state != State::Over || flight.under_way().has(replica) {
            return;
        }
        self.replica_set.tail(replica, false);
        if flight.under_way().is_empty() {
            flight.state = State::Idle;
            self.slots.free(slot);
        }
    }

    /// Ends the operation for its user.
    fn over(&mut self, slot: usize, end: OwnedOutcome) -> Option<Outcome<'static>> {
        self.slots.end();
        let flight = &mut self.flights[slot];
        flight.state = State::Over;
        let tails = flight.under_way();
        tails.iter().for_each(|replica| self.replica_set.tail(replica, true));
        if tails.is_empty() {
            flight.state = State::Idle;
            self.slots.free(slot);
        }
        match end {
            OwnedOutcome::Value(replica) => {
                let offset = Client::buffer_at(&self.config, slot, 1 + replica) + WORD;
                self.arena.read(offset, &mut self.value);
                None
            }
            OwnedOutcome::Other(outcome) => Some(outcome),
        }
    }

    fn finished(&self, slot: usize, outcome: Option<Outcome<'static>>) -> Finished<'_> {
        let Flight { operation, block, tag, round_trips, .. } = self.flights[slot];
        let outcome = outcome.unwrap_or(Outcome::Value(&self.value));
        Finished { slot: Slot(slot as u16), operation, block, tag, outcome, round_trips }
    }

    /// Returns buffers to a replica if a message is due. If the replica was skipped and has space again, its
    /// requests are posted.
    fn give_back(&mut self, replica: usize, rested: bool, connections: &mut impl Connections) {
        let id = self.replica_set.id(replica, RETURN, 0);
        let Some(returns) = &mut self.returns[replica] else { return };
        if returns.is_due(rested)
            && let Err(why) = returns.send(id, rested, &mut connections.endpoint(replica))
        {
            self.replica_set.lose(replica, why);
        }
        let has_space = returns.space() > self.chains[replica];
        if self.replica_set.caught_up(replica, has_space) {
            self.ask_for_all(replica, connections);
        }
    }

    fn word(&self, offset: usize) -> u64 {
        let mut bytes = [0; WORD];
        self.arena.read(offset, &mut bytes);
        u64_at(&bytes, 0)
    }

    /// Returns the arena offset of the results of a slot's chain at a replica.
    fn answers_at(config: &ClientConfig, slot: usize, replica: usize) -> usize {
        let returns = config.replicas * Returns::ARENA.next_multiple_of(64);
        returns + (slot * config.replicas + replica) * ANSWERS
    }

    /// Returns the arena offset of a slot's buffer. Buffer 0 holds the slot's own value with the tag in
    /// front; buffer 1 + r holds what replica r returned.
    fn buffer_at(config: &ClientConfig, slot: usize, buffer: usize) -> usize {
        let answers = Client::answers_at(config, config.slots(), 0).next_multiple_of(64);
        answers + (slot * (config.replicas + 1) + buffer) * config.layout.buffer_len()
    }
}
