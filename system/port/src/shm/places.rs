//! The links of a port: a bounded table of places, and which of them are polled at every turn.
//!
//! A place keeps its number until its owner gives it up, even if the link is dead: queue pairs may still name it, and
//! their frames must not reach whoever came later.

use super::link::Link;

/// Up to so many links are all polled at every turn.
const ALWAYS_HOT: usize = 8;
/// Empty polls after which a link, of more than those, is polled less often.
const COOLS_AFTER: u32 = 4096;
/// Cool links looked at in each turn.
const COOL_PER_TURN: u32 = 4;

/// One place of the table.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) state: State,
    /// Empty polls since the last frame.
    pub(super) empty: u32,
    /// Frames come faster than they are taken, so looking for another at once is worth its cost.
    pub(super) streaming: bool,
    /// Is it in the list of links polled at every turn? Set by `warm` and `note_empty` alone.
    pub(super) hot: bool,
}

/// What is at a place.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing: may be taken.
    Free,
    /// A link to a living peer.
    Open(Link),
    /// A link whose peer is gone; so many frames may still be read from it.
    Leaving(Link, u32),
    /// The link is closed, and its owner has not given the place up.
    Lost,
}

/// The table.
#[derive(Debug)]
pub(super) struct Places {
    all: Vec<Place>,
    limit: usize,
    hot: Vec<u32>,
    /// Whose turn it is first, as an index into `hot`.
    turn: usize,
    /// The next cool place to look at.
    cool: u32,
}

impl Places {
    /// A table of up to `limit` places; nothing grows after this but by adding links.
    pub(super) fn new(limit: usize) -> Places {
        Places { all: Vec::with_capacity(limit), limit, hot: Vec::with_capacity(limit), turn: 0, cool: 0 }
    }

    /// The number that the next link would get; `None`: the table is full.
    pub(super) fn vacant(&self) -> Option<u32> {
        let free = self.all.iter().position(|place| matches!(place.state, State::Free));
        free.or((self.all.len() < self.limit).then_some(self.all.len())).map(|at| at as u32)
    }

    /// Puts `link` at `place`, which must come from [`Places::vacant`].
    pub(super) fn put(&mut self, place: u32, link: Link) {
        let fresh = Place { state: State::Open(link), empty: 0, streaming: false, hot: false };
        match self.all.get_mut(place as usize) {
            Some(old) => *old = fresh,
            None => self.all.push(fresh),
        }
        self.warm(place);
    }

    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&Place> {
        self.all.get(place as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Place> {
        self.all.get_mut(place as usize)
    }

    /// All places with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Place)> {
        (0..).zip(&mut self.all)
    }

    /// Leaves `state` at `place` and returns what was there; a place without a link is not polled.
    pub(super) fn replace(&mut self, place: u32, state: State) -> State {
        let Some(at) = self.all.get_mut(place as usize) else {
            return State::Free;
        };
        let old = std::mem::replace(&mut at.state, state);
        if matches!(at.state, State::Free | State::Lost) && at.hot {
            at.hot = false;
            self.hot.retain(|&hot| hot != place);
        }
        old
    }

    /// How many links are polled at every turn.
    #[inline]
    pub(super) fn hot_count(&self) -> usize {
        self.hot.len()
    }

    /// The `step`-th link of this turn, if it still exists.
    #[inline]
    pub(super) fn nth(&self, step: usize) -> Option<u32> {
        let at = self.turn + step;
        let at = if at >= self.hot.len() { at.checked_sub(self.hot.len())? } else { at };
        self.hot.get(at).copied()
    }

    /// Ends a turn: the next begins with another link.
    #[inline]
    pub(super) fn next_turn(&mut self) {
        self.turn = if self.turn + 1 >= self.hot.len() { 0 } else { self.turn + 1 };
    }

    /// How many places there are, whatever is at them.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Is `place` polled at every turn?
    #[inline]
    pub(super) fn is_hot(&self, place: u32) -> bool {
        self.get(place).is_some_and(|at| at.hot)
    }

    /// Are there links that are not polled at every turn?
    #[inline]
    pub(super) fn has_cool(&self) -> bool {
        self.hot.len() < self.all.len()
    }

    /// The next few cool places.
    pub(super) fn next_cool(&mut self) -> impl Iterator<Item = u32> + use<> {
        let (from, count) = (self.cool, self.all.len() as u32);
        self.cool = if from + COOL_PER_TURN >= count { 0 } else { from + COOL_PER_TURN };
        from..count.min(from + COOL_PER_TURN)
    }

    /// Turns in which every place is looked at.
    pub(super) fn turns(&self) -> u32 {
        if self.has_cool() { (self.all.len() as u32).div_ceil(COOL_PER_TURN) } else { 1 }
    }

    /// Polls `place` at every turn from now on.
    #[inline]
    pub(super) fn warm(&mut self, place: u32) {
        if let Some(at) = self.all.get_mut(place as usize)
            && !at.hot
        {
            at.hot = true;
            at.empty = 0;
            self.hot.push(place);
        }
    }

    /// Notes an empty poll of `place`; one of many links that stays empty cools.
    #[inline]
    pub(super) fn note_empty(&mut self, place: u32) {
        let Some(at) = self.all.get_mut(place as usize) else {
            return;
        };
        at.streaming = false;
        at.empty = at.empty.saturating_add(1);
        if at.empty > COOLS_AFTER && at.hot && self.hot.len() > ALWAYS_HOT {
            at.hot = false;
            self.hot.retain(|&hot| hot != place);
        }
    }

    /// Lets every link cool at once.
    #[cfg(test)]
    pub(super) fn cool_all(&mut self) {
        self.hot.clear();
        self.all.iter_mut().for_each(|at| at.hot = false);
    }
}
