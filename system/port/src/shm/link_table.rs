//! The table of a port's links: it is bounded, and knows which links are polled at every turn ("hot"
//! links).
//!
//! A link keeps its number until its owner releases the number, even if the link is dead: queue pairs may
//! still use the number, and their frames must not reach a later peer.

use super::link::Link;
use crate::Endpoint;

/// Number of links up to which all links are polled at every turn.
const ALWAYS_HOT: usize = 8;
/// Number of empty polls after which a link is polled less often, if there are more than [`ALWAYS_HOT`]
/// links.
const COOLS_AFTER: u32 = 4096;
/// Number of cool links that are polled in each turn.
const COOL_PER_TURN: u32 = 4;

/// An entry of the table.
#[derive(Debug)]
pub(super) struct LinkEntry {
    pub(super) state: State,
    /// Endpoint of the NIC at the other end; `None` until it is known.
    pub(super) endpoint: Option<Endpoint>,
    /// Number of empty polls since the last frame.
    pub(super) empty: u32,
    /// True while frames arrive faster than they are taken, so that checking for another one at once is
    /// worth its cost.
    pub(super) streaming: bool,
    /// True if the link is in the list of links polled at every turn. Set by `warm` and `note_empty` only.
    pub(super) hot: bool,
}

/// The state of an entry.
#[derive(Debug)]
pub(super) enum State {
    /// No link: the entry is free.
    Free,
    /// A link to a living peer.
    Open(Link),
    /// A link whose peer has gone, and the number of frames that may still be read from it.
    Leaving(Link, u32),
    /// A closed link whose number its owner has not released yet.
    Lost,
}

/// The table of links, indexed by their numbers.
#[derive(Debug)]
pub(super) struct LinkTable {
    all: Vec<LinkEntry>,
    limit: usize,
    hot: Vec<u32>,
    /// Index into `hot` of the link that begins the next turn.
    turn: usize,
    /// The next entry to check for cool links.
    cool: u32,
}

impl LinkTable {
    /// Creates a table of up to `limit` entries. Only adding links makes it grow.
    pub(super) fn new(limit: usize) -> LinkTable {
        LinkTable { all: Vec::with_capacity(limit), limit, hot: Vec::with_capacity(limit), turn: 0, cool: 0 }
    }

    /// Returns the number that the next link would get; `None` if the table is full.
    pub(super) fn vacant(&self) -> Option<u32> {
        let free = self.all.iter().position(|entry| matches!(entry.state, State::Free));
        free.or((self.all.len() < self.limit).then_some(self.all.len())).map(|index| index as u32)
    }

    /// Stores `link` under the number `index`, which must come from [`LinkTable::vacant`].
    pub(super) fn put(&mut self, index: u32, link: Link) {
        let fresh =
            LinkEntry { state: State::Open(link), endpoint: None, empty: 0, streaming: false, hot: false };
        match self.all.get_mut(index as usize) {
            Some(old) => *old = fresh,
            None => self.all.push(fresh),
        }
        self.warm(index);
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&LinkEntry> {
        self.all.get(index as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut LinkEntry> {
        self.all.get_mut(index as usize)
    }

    /// Iterates over all entries with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut LinkEntry)> {
        (0..).zip(&mut self.all)
    }

    /// Returns the number of the open link to this endpoint.
    pub(super) fn to(&self, endpoint: &Endpoint) -> Option<u32> {
        let leads = |entry: &LinkEntry| {
            matches!(entry.state, State::Open(_)) && entry.endpoint.as_ref() == Some(endpoint)
        };
        self.all.iter().position(leads).map(|index| index as u32)
    }

    /// Replaces the state at `index` and returns the old one. An entry without a link is not polled.
    pub(super) fn replace(&mut self, index: u32, state: State) -> State {
        let Some(entry) = self.all.get_mut(index as usize) else {
            return State::Free;
        };
        let old = std::mem::replace(&mut entry.state, state);
        if matches!(entry.state, State::Free | State::Lost) && entry.hot {
            entry.hot = false;
            self.hot.retain(|&hot| hot != index);
        }
        old
    }

    /// Returns the number of links that are polled at every turn.
    #[inline]
    pub(super) fn hot_count(&self) -> usize {
        self.hot.len()
    }

    /// Returns the `step`-th link of this turn, if it still exists.
    #[inline]
    pub(super) fn nth(&self, step: usize) -> Option<u32> {
        let position = self.turn + step;
        let position =
            if position >= self.hot.len() { position.checked_sub(self.hot.len())? } else { position };
        self.hot.get(position).copied()
    }

    /// Ends a turn, so that the next one begins with another link.
    #[inline]
    pub(super) fn next_turn(&mut self) {
        self.turn = if self.turn + 1 >= self.hot.len() { 0 } else { self.turn + 1 };
    }

    /// Returns the number of entries in the table, used or free.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the link `index` is polled at every turn.
    #[inline]
    pub(super) fn is_hot(&self, index: u32) -> bool {
        self.get(index).is_some_and(|entry| entry.hot)
    }

    /// Returns whether there are entries that are not polled at every turn.
    #[inline]
    pub(super) fn has_cool(&self) -> bool {
        self.hot.len() < self.all.len()
    }

    /// Returns the next few entries to be checked for cool links.
    pub(super) fn next_cool(&mut self) -> impl Iterator<Item = u32> + use<> {
        let first = self.cool;
        let count = self.all.len() as u32;
        self.cool = if first + COOL_PER_TURN >= count { 0 } else { first + COOL_PER_TURN };
        first..count.min(first + COOL_PER_TURN)
    }

    /// Returns the number of turns in which every entry is polled at least once.
    pub(super) fn turns(&self) -> u32 {
        if self.has_cool() { (self.all.len() as u32).div_ceil(COOL_PER_TURN) } else { 1 }
    }

    /// Makes `index` polled at every turn from now on.
    #[inline]
    pub(super) fn warm(&mut self, index: u32) {
        if let Some(entry) = self.all.get_mut(index as usize)
            && !entry.hot
        {
            entry.hot = true;
            entry.empty = 0;
            self.hot.push(index);
        }
    }

    /// Records an empty poll of `index`. If there are many links, one that stays empty becomes cool.
    #[inline]
    pub(super) fn note_empty(&mut self, index: u32) {
        let Some(entry) = self.all.get_mut(index as usize) else {
            return;
        };
        entry.streaming = false;
        entry.empty = entry.empty.saturating_add(1);
        if entry.empty > COOLS_AFTER && entry.hot && self.hot.len() > ALWAYS_HOT {
            entry.hot = false;
            self.hot.retain(|&hot| hot != index);
        }
    }

    /// Makes every link cool at once.
    #[cfg(test)]
    pub(super) fn cool_all(&mut self) {
        self.hot.clear();
        self.all.iter_mut().for_each(|entry| entry.hot = false);
    }
}
