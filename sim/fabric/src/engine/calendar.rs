//! A calendar queue (Brown, CACM 1988): the near future in buckets of equal width, the rest in a heap.
//!
//! A bucket is sorted when its time comes. Events leave in the order of time and key, regardless of the order
//! in which they were added and of the width of the buckets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Picos;

/// A future event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Time of the event.
    pub at: Picos,
    /// Kind and subject of the event. Of two events at the same time, the one with the smaller key comes
    /// first.
    pub key: u32,
}

impl Event {
    /// Returns the order of events as a single number, which is compared without a branch.
    #[inline]
    fn order(&self) -> u128 {
        u128::from(self.at.0) << u32::BITS | u128::from(self.key)
    }
}

/// Number of buckets in a year of the calendar; a power of two.
const BUCKETS: usize = 1 << 13;
/// End of a list.
const NONE: u32 = u32::MAX;
/// Range of the mean number of events per bucket within which the width stays unchanged. Memory that the
/// events of a bucket use is prefetched when the preceding bucket opens, so that bucket must have enough
/// events to hide the latency.
const FEW: u32 = 8;
const MANY: u32 = 32;
/// Number of non-empty buckets between two checks of the width.
const LOOK: u32 = 4096;

#[derive(Copy, Clone)]
struct Entry {
    event: Event,
    /// Next entry of the same bucket, or of the free list.
    next: u32,
}

/// A queue of events, ordered by time.
pub struct Calendar {
    /// Events of the open bucket, sorted; the next event is the last element.
    open: Vec<Event>,
    /// Number of the open bucket: its time divided by the width.
    today: u64,
    /// Binary logarithm of the width of a bucket in picoseconds.
    shift: u32,
    /// First entry of each bucket of the year that began with the open bucket.
    buckets: Box<[u32]>,
    /// Bitmap of the buckets that have entries.
    filled: Box<[u64]>,
    entries: Vec<Entry>,
    free: u32,
    /// Events beyond the year.
    far: BinaryHeap<Reverse<Event>>,
    len: usize,
    has_opened: bool,
    /// Number of buckets opened since the last check of the width, and of their events.
    opened: u32,
    emptied: u32,
    /// Scratch space for all events while the width changes, so that a steady simulation does not allocate.
    moved: Vec<Event>,
}

/// Initial capacity of that scratch space, in events.
const MOVED: usize = 256;

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar::new()
    }
}

impl Calendar {
    /// Returns an empty queue at time 0.
    pub fn new() -> Calendar {
        Calendar {
            open: Vec::new(),
            today: 0,
            shift: 9,
            buckets: vec![NONE; BUCKETS].into(),
            filled: vec![0; BUCKETS / 64].into(),
            entries: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            len: 0,
            has_opened: false,
            opened: 0,
            emptied: 0,
            moved: Vec::with_capacity(MOVED),
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no event.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. An event that is earlier than the last removed one becomes the next.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.len += 1;
        let day = event.at.0 >> self.shift;
        if day <= self.today {
            // The open bucket has few events, and most new ones are late in it.
            let index = self.open.partition_point(|later| *later > event);
            self.open.insert(index, event);
        } else if day - self.today < BUCKETS as u64 {
            self.file(day, event);
        } else {
            self.far.push(Reverse(event));
        }
    }

    /// Returns the time of the next event, or [`Picos::NEVER`] if there is none.
    #[inline]
    pub fn next_time(&mut self) -> Picos {
        if self.open.is_empty() {
            self.open_next();
        }
        self.open.last().map_or(Picos::NEVER, |event| event.at)
    }

    /// Removes the next event if its time is not after `limit`.
    #[inline]
    pub fn pop(&mut self, limit: Picos) -> Option<Event> {
        if self.open.is_empty() {
            self.open_next();
        }
        let event = self.open.pop_if(|event| event.at <= limit)?;
        self.len -= 1;
        Some(event)
    }

    /// Returns the events of the open bucket; the next event is the last element.
    #[inline]
    pub fn soon(&self) -> &[Event] {
        &self.open
    }

    /// Returns true if a bucket was opened since the last call.
    #[inline]
    pub fn has_opened(&mut self) -> bool {
        std::mem::take(&mut self.has_opened)
    }

    /// Returns the events of the next bucket that are known so far, in any order.
    pub fn next_bucket(&self) -> impl Iterator<Item = Event> {
        let first = self.next_filled().map_or(NONE, |day| self.buckets[day as usize % BUCKETS]);
        let entry = |place: u32| (place != NONE).then(|| &self.entries[place as usize]);
        std::iter::successors(entry(first), move |current| entry(current.next)).map(|entry| entry.event)
    }

    #[inline]
    fn file(&mut self, day: u64, event: Event) {
        let bucket = day as usize % BUCKETS;
        let entry = Entry { event, next: self.buckets[bucket] };
        let place = if self.free == NONE {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let place = self.free;
            self.free = self.entries[place as usize].next;
            self.entries[place as usize] = entry;
            place
        };
        self.buckets[bucket] = place;
        self.filled[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Opens the next bucket that has events. Events beyond the year move into it as the year advances.
    #[inline(never)]
    fn open_next(&mut self) {
        if self.len == 0 {
            return;
        }
        if self.opened >= LOOK {
            self.adapt();
            if !self.open.is_empty() {
                return;
            }
        }
        let near = self.next_filled();
        let far = self.far.peek().map_or(u64::MAX, |event| event.0.at.0 >> self.shift);
        self.today = near.unwrap_or(u64::MAX).min(far);
        self.take_in_far();
        let bucket = self.today as usize % BUCKETS;
        let mut place = std::mem::replace(&mut self.buckets[bucket], NONE);
        self.filled[bucket / 64] &= !(1 << (bucket % 64));
        while place != NONE {
            let entry = &mut self.entries[place as usize];
            self.open.push(entry.event);
            let next = std::mem::replace(&mut entry.next, self.free);
            self.free = place;
            place = next;
        }
        self.open.sort_unstable_by_key(|event| !event.order());
        self.has_opened = true;
        self.opened += 1;
        self.emptied += self.open.len() as u32;
    }

    /// Returns the number of the first bucket of the year that has events.
    fn next_filled(&self) -> Option<u64> {
        let start = (self.today + 1) as usize % BUCKETS;
        let words = self.filled.len();
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.filled[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (bucket + BUCKETS - start) % BUCKETS;
                return Some(self.today + 1 + ahead as u64);
            }
        }
        None
    }

    /// Moves events into buckets that are now within a year of the open bucket.
    fn take_in_far(&mut self) {
        let today = self.today;
        let shift = self.shift;
        while let Some(Reverse(event)) = self.far.peek().copied() {
            let day = event.at.0 >> shift;
            if day - today >= BUCKETS as u64 {
                return;
            }
            self.far.pop();
            self.file(day, event);
        }
    }

    /// Halves or doubles the width of the buckets if they had too many or too few events.
    fn adapt(&mut self) {
        let mean = self.emptied / self.opened.max(1);
        (self.opened, self.emptied) = (0, 0);
        let shift = match mean {
            MANY.. if self.shift > 4 => self.shift - 1,
            0..FEW if self.shift < 24 => self.shift + 1,
            _ => return,
        };
        let now = self.today << self.shift;
        let mut all = std::mem::take(&mut self.moved);
        for bucket in 0..BUCKETS {
            let mut place = std::mem::replace(&mut self.buckets[bucket], NONE);
            while place != NONE {
                all.push(self.entries[place as usize].event);
                place = self.entries[place as usize].next;
            }
        }
        self.filled.fill(0);
        self.entries.clear();
        self.free = NONE;
        all.extend(self.far.drain().map(|event| event.0));
        all.append(&mut self.open);
        self.shift = shift;
        // All remaining events are after the bucket that was open.
        self.today = now >> shift;
        self.len = 0;
        all.drain(..).for_each(|event| self.push(event));
        self.moved = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_fault::Random;

    fn event(time: u64, key: u32) -> Event {
        Event { at: Picos(time), key }
    }

    #[test]
    fn events_leave_by_time_and_then_by_key_whatever_order_they_came_in() {
        let mut calendar = Calendar::new();
        let events = [event(5, 2), event(5, 1), event(0, 9), event(1 << 40, 0), event(700, 3), event(5, 0)];
        events.into_iter().for_each(|event| calendar.push(event));
        let mut sorted = events;
        sorted.sort_unstable();
        for expected in sorted {
            assert_eq!(calendar.next_time(), expected.at);
            assert_eq!(
                calendar.pop(Picos(expected.at.0 - u64::from(expected.at.0 > 0))).is_some(),
                expected.at.0 == 0
            );
            if expected.at.0 > 0 {
                assert_eq!(calendar.pop(expected.at), Some(expected));
            }
        }
        assert_eq!((calendar.next_time(), calendar.is_empty()), (Picos::NEVER, true));
    }

    /// Compares with a plain heap: near and far events, idle times and bursts that change the width.
    #[test]
    fn it_has_the_order_of_a_heap() {
        let mut random = Random::new(7);
        for spread in [1, 100, 10_000, 3_000_000, 1 << 34] {
            let mut calendar = Calendar::new();
            let mut heap = BinaryHeap::new();
            let mut now = 0;
            for step in 0..200_000_u32 {
                let more = if step % 40_000 < 20_000 { 3 } else { 1 };
                for _ in 0..random.below(more + 1) {
                    let far = if random.below(50) == 0 { spread * 1000 } else { spread };
                    let event = event(now + random.below(far), random.below(64) as u32);
                    calendar.push(event);
                    heap.push(Reverse(event));
                }
                let expected = heap.pop().map(|event| event.0);
                assert_eq!(calendar.pop(Picos::NEVER), expected, "spread {spread}, step {step}");
                now = expected.map_or(now, |event| event.at.0);
                assert_eq!(calendar.len(), heap.len());
            }
        }
    }
}
