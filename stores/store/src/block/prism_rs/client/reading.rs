//! The read phase: one replica is asked for tag and value, the others for their tags.

use super::*;

impl Client {
    /// The read phase begins, and chooses the replica to ask for the value. Blocks spread over the replicas,
    /// each client's differently.
    pub(super) fn aim(&mut self, slot: usize, now: Instant) {
        let flight = &mut self.flights[slot];
        if (flight.state, flight.operation) == (State::Reading, Operation::Read) {
            let place = flight.block.wrapping_add(self.config.id.get().into());
            let source = self.sources.choose(place, |replica| self.replica_set.is_free(replica));
            flight.wanted = Set::of(source);
            flight.since = now;
        }
    }

    /// A tag came, or a tag with its value.
    pub(super) fn read_answered(
        &mut self,
        slot: usize,
        replica: usize,
        now: Instant,
        connections: &mut impl Connections,
    ) -> Option<OwnedOutcome> {
        let seen = Tag(self.word(Client::buffer_at(&self.config, slot, 1 + replica)));
        let flight = self.flights.get_mut(slot)?;
        flight.reading.remove(replica);
        let was_silent = self.sources.answered(replica);
        if flight.state != State::Reading {
            self.tail_ends(slot, replica);
            return None;
        }
        if flight.stale[0].has(replica) {
            flight.stale[0].remove(replica);
            self.ask(slot, replica, connections);
            return None;
        }
        flight.seen[replica] = seen;
        flight.answered.add(replica);
        if flight.operation == Operation::Write {
            return self.tags_came(slot, connections);
        }
        if flight.whole.has(replica) {
            flight.values.add(replica);
            if !was_silent {
                self.sources.came(replica, now.since(flight.since));
            }
        } else if flight.wanted.has(replica) {
            // Its value has been asked for since.
            flight.asked.remove(replica);
        }
        self.decide(slot, replica, now, connections)
    }

    /// Tags came for a write. With those of a quorum it can choose its own.
    fn tags_came(&mut self, slot: usize, connections: &mut impl Connections) -> Option<OwnedOutcome> {
        let flight = &self.flights[slot];
        if flight.answered.len() < self.config.quorum() {
            return None;
        }
        let (block, newest) = (flight.block, flight.newest());
        let Some(tag) = self.next_tag(block, newest) else {
            return Some(OwnedOutcome::Other(Outcome::Exhausted));
        };
        self.arena.write(Client::buffer_at(&self.config, slot, 0), &tag.0.to_le_bytes());
        self.flights[slot].write(tag, None, Set::NONE);
        self.ask_all(slot, connections);
        None
    }

    /// Can the READ end with the answers so far, this replica's last? If not, which replica does it ask for
    /// the value?
    fn decide(
        &mut self,
        slot: usize,
        replica: usize,
        now: Instant,
        connections: &mut impl Connections,
    ) -> Option<OwnedOutcome> {
        let quorum = self.config.quorum();
        let flight = &mut self.flights[slot];
        if let Some((tag, from, holders)) = flight.readable(quorum) {
            flight.tag = tag;
            if holders.len() >= quorum || self.config.canary == Canary::NoWriteBack {
                return Some(OwnedOutcome::Value(from));
            }
            flight.write(tag, Some(from), holders);
            self.ask_all(slot, connections);
            return None;
        }
        if flight.answered.len() >= quorum {
            self.wait_for_value(slot, now, connections);
        }
        self.ask(slot, replica, connections);
        None
    }

    /// A quorum has answered its tags, and the value of the newest has not arrived.
    fn wait_for_value(&mut self, slot: usize, now: Instant, connections: &mut impl Connections) {
        let flight = &self.flights[slot];
        if flight.wanted == Set::all(self.config.replicas) {
            return;
        }
        let coming = flight.coming();
        if coming.is_empty() {
            // No replica is late: the one that was asked has an older value. One of those with the newest
            // will do.
            let newest = flight.newest();
            let holders = flight.answered.filter(|replica| flight.seen[replica] == newest);
            let takes = |replica| holders.has(replica) && self.replica_set.is_free(replica);
            let source = self.sources.best(holders.first(), takes);
            self.want(slot, Set::of(source), now, connections);
        }
        let silent = !coming.is_empty() && self.sources.are_silent(coming);
        let flight = &mut self.flights[slot];
        flight.until = if silent { now } else { flight.since.after(self.sources.patience()) };
        self.deadline = self.deadline.min(flight.until);
    }

    /// Asks these for their values: at once those that have said their tags, the others when they have.
    pub(super) fn want(
        &mut self,
        slot: usize,
        replicas: Set,
        now: Instant,
        connections: &mut impl Connections,
    ) {
        let flight = &mut self.flights[slot];
        flight.wanted = flight.wanted.or(replicas);
        flight.asked = flight.asked.without(replicas.and(flight.answered).without(flight.values));
        flight.since = now;
        flight.round_trips += 1;
        self.ask_all(slot, connections);
    }
}
