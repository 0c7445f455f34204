//! Deadlines of numbered operations, ordered by time.
//!
//! Nearly all deadlines have the same duration, so a sorted list is enough: a new deadline is appended at
//! the end in constant time. An operation that ends leaves nothing behind.

use crate::Instant;

const NONE: u32 = u32::MAX;

#[derive(Copy, Clone, Debug)]
struct Link {
    previous: u32,
    next: u32,
    until: Option<Instant>,
}

/// A sorted list with at most one deadline for each of a fixed number of operations.
#[derive(Debug)]
pub(crate) struct Deadlines {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Deadlines {
    /// Returns a list without deadlines for the operations 0 to `max - 1`.
    pub(crate) fn new(max: usize) -> Deadlines {
        let free = Link { previous: NONE, next: NONE, until: None };
        Deadlines { links: vec![free; max], first: NONE, last: NONE }
    }

    /// Sets the deadline of an operation, replacing an earlier one.
    #[inline]
    pub(crate) fn set(&mut self, index: u16, until: Instant) {
        self.clear(index);
        let index = u32::from(index);
        let mut previous = self.last;
        while previous != NONE && self.links[previous as usize].until.is_some_and(|time| time > until) {
            previous = self.links[previous as usize].previous;
        }
        let next = match previous {
            NONE => std::mem::replace(&mut self.first, index),
            _ => std::mem::replace(&mut self.links[previous as usize].next, index),
        };
        match next {
            NONE => self.last = index,
            _ => self.links[next as usize].previous = index,
        }
        self.links[index as usize] = Link { previous, next, until: Some(until) };
    }

    /// Removes the deadline of an operation.
    #[inline]
    pub(crate) fn clear(&mut self, index: u16) {
        let Link { previous, next, until } = self.links[usize::from(index)];
        if until.is_none() {
            return;
        }
        match previous {
            NONE => self.first = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[usize::from(index)] = Link { previous: NONE, next: NONE, until: None };
    }

    /// Returns the deadline of an operation.
    #[inline]
    pub(crate) fn of(&self, index: u16) -> Option<Instant> {
        self.links[usize::from(index)].until
    }

    /// Returns the earliest deadline, or [`Instant::NEVER`].
    #[inline]
    pub(crate) fn first(&self) -> Instant {
        self.links.get(self.first as usize).and_then(|link| link.until).unwrap_or(Instant::NEVER)
    }

    /// Removes the earliest deadline if it has passed at `now`, and returns its operation.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u16> {
        let index = self.first;
        if self.first() > now || index == NONE {
            return None;
        }
        self.clear(index as u16);
        Some(index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_sorted_map(steps in proptest::collection::vec((0_u16..8, 0_u64..20, 0..4), 0..200)) {
            let mut list = Deadlines::new(8);
            let mut model = std::collections::BTreeMap::new();
            for (index, time, step) in steps {
                match step {
                    0 => {
                        list.clear(index);
                        model.remove(&index);
                    }
                    1 => {
                        let due = list.pop(Instant(time));
                        let first = model.values().min().copied().filter(|first| *first <= time);
                        prop_assert_eq!(due.map(|due| model.remove(&due).unwrap()), first);
                    }
                    _ => {
                        list.set(index, Instant(time));
                        model.insert(index, time);
                    }
                }
                let first = model.values().min().map_or(Instant::NEVER, |time| Instant(*time));
                prop_assert_eq!(list.first(), first);
                prop_assert_eq!(list.of(index), model.get(&index).map(|time| Instant(*time)));
            }
        }
    }
}
