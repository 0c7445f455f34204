//! The membership of a replica: its store, the other replicas, and the client numbers that it may issue.
//!
//! A replica's memory ends with its process. So a new process is empty, and its operator says whether the
//! store is new or exists. A *new* replica belongs to no store until all replicas are new at the same time.
//! Then replica 0 begins the store. A replica that returns is *repaired* first, in a higher incarnation than
//! all before it. `docs/internals/stores/blocks.md` proves that nothing is lost.

use super::numbers::Numbers;
use super::{ClientId, MAX_REPLICAS};
use serde::{Deserialize, Serialize};

/// The state that a replica knows of itself and of the others. The replica sends it to each peer that
/// connects.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Index of the replica.
    pub replica: usize,
    /// Number of replicas: odd.
    pub replicas: usize,
    /// The store to which the replica belongs; 0 while it belongs to none.
    pub store: u64,
    /// The newest known incarnation of each replica.
    pub incarnations: [u64; MAX_REPLICAS],
    /// The mark of each replica's client numbers, as far as this replica knows.
    pub marks: [u32; MAX_REPLICAS],
}

impl State {
    /// Returns true if the replica belongs to a store.
    pub fn is_whole(&self) -> bool {
        self.store != 0
    }

    /// Returns the replica's own incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnations[self.replica]
    }

    /// Returns true if the numbers of replicas are possible.
    pub(super) fn is_sound(&self) -> bool {
        self.replicas % 2 == 1 && self.replicas <= MAX_REPLICAS && self.replica < self.replicas
    }

    /// Merges the incarnations and marks that another replica of the store knows.
    fn learn(&mut self, other: &State) {
        for replica in 0..MAX_REPLICAS {
            let incarnation = &mut self.incarnations[replica];
            *incarnation = other.incarnations[replica].max(*incarnation);
            self.marks[replica] = other.marks[replica].max(self.marks[replica]);
        }
    }
}

/// The reason for which a replica or client is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// This replica is meant to begin a store, but the replica with this index serves a store already.
    #[error(
        "the store lives, replica {0} serves it: start this replica without --new, and it will be \
         repaired from the others"
    )]
    Lives(usize),
    /// The replica is new, and its store has not begun.
    #[error("it waits until all replicas of the new store have begun")]
    NotBegun,
    /// The peer belongs to another store.
    #[error("it belongs to another store, or to one that was initialized again since")]
    OtherStore,
    /// A newer incarnation of the replica with this index is known.
    #[error("another replica {0} has taken this one's place: end one of the two")]
    Superseded(usize),
    /// The replica has no client number to issue until other replicas know its next mark.
    #[error("it has no number for a writer at the moment")]
    NoNumber,
    /// The replica has issued all its client numbers.
    #[error("it has given all its numbers to writers")]
    UsedUp,
}

/// A replica's membership in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    state: State,
    /// The incarnation of replica 0 that asked last while this replica was new. This replica can join only a
    /// store that this incarnation begins.
    promised: u64,
    numbers: Numbers,
}

impl Membership {
    /// Returns the membership of a replica whose store has not begun. The incarnation must not have been
    /// used before. Returns `None` if the numbers are invalid.
    pub fn new(replica: usize, replicas: usize, incarnation: u64) -> Option<Membership> {
        let sound = replicas % 2 == 1 && replicas <= MAX_REPLICAS && replica < replicas && incarnation != 0;
        let mut incarnations = [0; MAX_REPLICAS];
        *incarnations.get_mut(replica)? = incarnation;
        let marks = std::array::from_fn(Numbers::first_mark);
        let state = State { replica, replicas, store: 0, incarnations, marks };
        sound.then(|| Membership { state, promised: 0, numbers: Numbers::first(replica) })
    }

    /// Returns the membership of a replica that has read all blocks from the replicas whose states are
    /// `sources`. Returns `None` if these are no majority, or belong to different stores.
    pub fn repaired(replica: usize, incarnation: u64, sources: &[State]) -> Option<Membership> {
        let mut state = *sources.first()?;
        let same = |source: &State| source.store == state.store && source.replicas == state.replicas;
        if !state.is_whole() || sources.len() <= state.replicas / 2 || !sources.iter().all(same) {
            return None;
        }
        sources.iter().for_each(|source| state.learn(source));
        (state.replica, state.incarnations[replica]) = (replica, incarnation);
        let numbers = Numbers::behind(replica, state.marks[replica]);
        Some(Membership { state, promised: 0, numbers })
    }

    /// Returns an incarnation above all that a majority knows of a replica. The random number `drawn` makes
    /// the incarnations of concurrent attempts differ.
    pub fn next_incarnation(replica: usize, answers: &[State], drawn: u32) -> u64 {
        let last = answers.iter().map(|answer| answer.incarnations[replica]).max().unwrap_or(0);
        last.saturating_add(1 + u64::from(drawn))
    }

    /// Returns the state that this replica sends to its peers.
    pub fn state(&self) -> State {
        self.state
    }

    /// Notes that another replica asked for the state.
    pub fn asked(&mut self, replica: usize, incarnation: u64) {
        if replica == 0 && incarnation != 0 && !self.state.is_whole() {
            self.promised = incarnation;
        }
    }

    /// Processes the answers of other replicas in one round while this replica is new. Returns true if the
    /// store has begun and this replica serves it.
    ///
    /// # Errors
    /// [`MembershipError::Lives`]: the store began without this replica.
    pub fn take_answers(&mut self, answers: &[State]) -> Result<bool, MembershipError> {
        let own = self.state;
        if let Some(whole) = answers.iter().find(|answer| answer.is_whole()) {
            let founder = whole.incarnations[own.replica] == own.incarnation();
            if own.replica == 0 || !founder || whole.store != self.promised {
                return Err(MembershipError::Lives(whole.replica));
            }
            self.state.store = whole.store;
            self.state.learn(whole);
            return Ok(true);
        }
        let all = (0..own.replicas).filter(|replica| *replica != own.replica);
        let answered = |replica: usize| answers.iter().any(|answer| answer.replica == replica);
        if own.replica == 0 && all.into_iter().all(answered) {
            self.state.store = own.incarnation();
            answers.iter().for_each(|answer| {
                self.state.incarnations[answer.replica] = answer.incarnation();
            });
        }
        Ok(self.state.is_whole())
    }

    /// Checks that clients may use this replica.
    ///
    /// # Errors
    /// [`MembershipError::NotBegun`].
    pub fn serves(&self) -> Result<(), MembershipError> {
        if self.state.is_whole() { Ok(()) } else { Err(MembershipError::NotBegun) }
    }

    /// Notes that a newer incarnation replaces another replica. That incarnation may read the blocks here
    /// after all connections of clients have ended.
    ///
    /// # Errors
    /// The incarnation is not the newest, or the replica belongs to another store.
    pub fn replaced(&mut self, replica: usize, incarnation: u64, store: u64) -> Result<(), MembershipError> {
        self.serves()?;
        if store != self.state.store {
            return Err(MembershipError::OtherStore);
        }
        self.know(replica, incarnation)
    }

    /// Learns another replica's new mark.
    ///
    /// # Errors
    /// The incarnation is not the newest.
    pub fn marked(&mut self, replica: usize, incarnation: u64, mark: u32) -> Result<(), MembershipError> {
        self.serves()?;
        self.know(replica, incarnation)?;
        self.state.marks[replica] = self.state.marks[replica].max(mark);
        Ok(())
    }

    fn know(&mut self, replica: usize, incarnation: u64) -> Result<(), MembershipError> {
        let known = &mut self.state.incarnations[replica];
        if incarnation < *known || replica == self.state.replica {
            return Err(MembershipError::Superseded(replica));
        }
        *known = incarnation;
        Ok(())
    }

    /// Issues a client number to a writer.
    ///
    /// # Errors
    /// No number can be issued, for now or for ever.
    pub fn number(&mut self) -> Result<ClientId, MembershipError> {
        let used_up = self.numbers.are_used_up();
        self.numbers.give().ok_or(if used_up { MembershipError::UsedUp } else { MembershipError::NoNumber })
    }

    /// Returns the mark that f other replicas must learn before more numbers can be issued, if it is time to
    /// move the mark.
    pub fn wanted_mark(&self) -> Option<u32> {
        self.numbers.wanted().filter(|_| self.state.is_whole())
    }

    /// Moves this replica's mark after f other replicas have learned it.
    pub fn mark(&mut self, mark: u32) {
        self.numbers.moved(mark);
        let own = &mut self.state.marks[self.state.replica];
        *own = mark.max(*own);
    }
}

/// The replicas as a client knows them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    store: u64,
    incarnations: [u64; MAX_REPLICAS],
}

impl View {
    /// Merges the state of a replica that the client has connected to. Connections to replicas that are no
    /// longer [current](View::is_current) must be closed before anything is requested from this replica.
    ///
    /// # Errors
    /// The replica must not be used.
    pub fn meet(&mut self, state: &State) -> Result<(), MembershipError> {
        if !state.is_whole() {
            return Err(MembershipError::NotBegun);
        }
        if self.store != 0 && self.store != state.store {
            return Err(MembershipError::OtherStore);
        }
        if state.incarnation() < self.incarnations[state.replica] {
            return Err(MembershipError::Superseded(state.replica));
        }
        self.store = state.store;
        for (mine, theirs) in self.incarnations.iter_mut().zip(state.incarnations) {
            *mine = theirs.max(*mine);
        }
        Ok(())
    }

    /// Returns true if no newer incarnation of the replica is known.
    pub fn is_current(&self, replica: usize, incarnation: u64) -> bool {
        incarnation >= self.incarnations[replica]
    }
}

#[cfg(test)]
mod tests;
