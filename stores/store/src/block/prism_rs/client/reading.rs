//! The read phase: one replica is asked for tag and value, the others only for their tags.

use super::*;

impl Client {
    /// Starts the read phase, and chooses the replica to ask for the value. Blocks are spread over the
    /// replicas, differently for each client.
    pub(super) fn aim(&mut self, slot: usize, now: Instant) {
        let flight = &mut self.flights[slot];
        if (flight.state, flight.operation) == (State::Reading, Operation::Read) {
            let place = flight.block.wrapping_add(self.config.id.get().into());
            let source = self.sources.choose(place, |replica| self.replica_set.is_free(replica));
            flight.wanted = Set::of(source);
            flight.since = now;
        }
    }

    /// Processes an answer of a replica: a tag, or a tag with its value.
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
            // The value was requested after the tag, so this replica must be asked once more.
            flight.asked.remove(replica);
        }
        self.decide(slot, replica, now, connections)
    }

    /// Processes the tag of an answer for a WRITE. With the tags of a quorum, the WRITE can choose its own
    /// tag.
    fn tags_came(&mut self, slot: usize, connections: &mut impl Connections) -> Option<OwnedOutcome> {
        let flight = &self.flights[slot];
        if flight.answered.len() < self.config.quorum() {
            return None;
        }
        let block = flight.block;
        let newest = flight.newest();
        let Some(tag) = self.next_tag(block, newest) else {
            return Some(OwnedOutcome::Other(Outcome::Exhausted));
        };
        self.arena.write(Client::buffer_at(&self.config, slot, 0), &tag.0.to_le_bytes());
        self.flights[slot].write(tag, None, Set::NONE);
        self.ask_all(slot, connections);
        None
    }

    /// Ends the READ if the answers so far suffice, and returns its outcome. Otherwise decides which replica
    /// to ask for the value.
    fn decide(
        &mut self,
        slot: usize,
        replica: usize,
        now: Instant,
        connections: &mut impl Connections,
    ) -> Option<OwnedOutcome> {
        let quorum = self.config.quorum();
        let flight = &mut self.flights[slot];
        if let Some((tag, source, holders)) = flight.readable(quorum) {
            flight.tag = tag;
            if holders.len() >= quorum || self.config.canary == Canary::NoWriteBack {
                return Some(OwnedOutcome::Value(source));
            }
            flight.write(tag, Some(source), holders);
            self.ask_all(slot, connections);
            return None;
        }
        if flight.answered.len() >= quorum {
            self.wait_for_value(slot, now, connections);
        }
        self.ask(slot, replica, connections);
        None
    }

    /// Waits for the value of the newest tag, after a quorum has sent its tags.
    fn wait_for_value(&mut self, slot: usize, now: Instant, connections: &mut impl Connections) {
        let flight = &self.flights[slot];
        if flight.wanted == Set::all(self.config.replicas) {
            return;
        }
        let coming = flight.coming();
        if coming.is_empty() {
            // No replica is late: the one that was asked has an older value. Any replica with the newest tag
            // can be asked.
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

    /// Requests the values of these replicas: at once from those that have sent their tags, later from the
    /// others.
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
