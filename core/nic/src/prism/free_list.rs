//! Free lists: buffers of one size that a server posts, and ALLOCATE takes (PRISM paper, §3.2, §4.2).
//!
//! The paper posts a buffer only when no operation is under way on the NIC. Here a buffer that an operation
//! may still read or write is *pinned*; one that is posted while it is pinned rests, and is free when its
//! last pin goes. So posting never waits, and only ALLOCATE pays. A pin is only recorded; the count, which
//! may be in no cache, is updated later.

use remora_memory::Pd;

use crate::config::NicError;
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;

/// Posted buffers looked at for one ALLOCATE, at most: it takes bounded time.
const LOOK: usize = 64;
/// ALLOCATEs between two looks at what has been posted, while there are buffers: what comes back is taken
/// first, before it leaves the cache.
const LOOK_EVERY: u32 = 16;
/// Pins that came or went and may be uncounted: enough to cover the time in which a count is prefetched.
const DEFERRED_MAX: usize = 64;
/// Buffers of one list.
const MAX_COUNT: u32 = 1 << 24;

/// What a free list is made of: `count` buffers of `size` bytes, one behind the other from `base` on. None is
/// free until it is posted.
pub struct FreeListInit {
    /// Its domain: only queue pairs of it allocate.
    pub pd: Pd,
    /// Where buffers are posted: receive work requests of one element, of which the address counts.
    pub ring: Ring,
    /// Address of the first buffer, as the region that holds them names it.
    pub base: u64,
    /// Bytes of each.
    pub size: u32,
    /// How many, up to 2^24.
    pub count: u32,
}

/// What is with the buffers of a free list.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeListFacts {
    /// All of them.
    pub capacity: u32,
    /// May be taken.
    pub free: u32,
    /// Posted, and free as soon as no operation may touch them any more.
    pub resting: u32,
    /// Posts of what is no buffer of the list, or of one that was free already.
    pub bad_posts: u64,
}

/// Whose a buffer is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// The server's, or a client's that has allocated it.
    Out,
    /// Posted while it was pinned.
    Resting,
    Free,
}

/// A buffer of a list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    list: u64,
    index: u32,
}

/// What an ALLOCATE gets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The buffer at this address.
    Buffer { va: u64, pin: Pin },
    /// There is none.
    Nothing,
    /// None would hold it.
    TooLong,
    /// The list is not the queue pair's to use, or its buffers do not lie under the key.
    Foreign,
}

pub(super) struct FreeList {
    number: u64,
    init: FreeListInit,
    queue: ReceiveQueue,
    /// Of all buffers together: an address is first seen not to be among them, and divided only if it is.
    bytes: u64,
    states: Box<[State]>,
    pins: Box<[u32]>,
    /// Indices, the last one freed is taken first: it is the one in the cache.
    free: Vec<u32>,
    resting: u32,
    bad_posts: u64,
}

impl FreeList {
    fn address(&self, index: u32) -> u64 {
        self.init.base + u64::from(index) * u64::from(self.init.size)
    }

    /// The buffer that holds the byte at `va`.
    fn index(&self, va: u64) -> Option<u32> {
        let at = va.wrapping_sub(self.init.base);
        (at < self.bytes).then(|| (at / u64::from(self.init.size)) as u32)
    }

    /// Takes in all that has been posted: for the server's own questions, in which what was posted must not
    /// count as taken.
    fn look_at_all(&mut self) {
        while self.look() {}
    }

    /// Takes in what has been posted; true if there may be more.
    fn look(&mut self) -> bool {
        for _ in 0..LOOK {
            let Some(posted) = self.queue.take() else { return false };
            self.queue.free(&posted);
            let index =
                self.index(posted.first.addr).filter(|index| self.address(*index) == posted.first.addr);
            match index {
                Some(index) if self.states[index as usize] == State::Out => self.post(index),
                _ => self.bad_posts += 1,
            }
        }
        true
    }

    fn post(&mut self, index: u32) {
        if self.pins[index as usize] > 0 {
            self.states[index as usize] = State::Resting;
            self.resting += 1;
        } else {
            self.states[index as usize] = State::Free;
            self.free.push(index);
        }
    }

    fn pin(&mut self, index: u32) {
        self.pins[index as usize] += 1;
    }

    fn unpin(&mut self, index: u32) {
        let pins = &mut self.pins[index as usize];
        *pins = pins.saturating_sub(1);
        // Mostly none rests, and then there is nothing to look up that is far.
        if *pins == 0 && self.resting > 0 && self.states[index as usize] == State::Resting {
            self.resting -= 1;
            self.post(index);
        }
    }

    /// Which of 64 buffers a word are neither free nor resting.
    pub(super) fn out(&mut self, first: u32, bits: &mut [u64]) {
        self.look_at_all();
        let mut states = self.states.iter().skip(first as usize);
        for word in bits {
            let taken = states.by_ref().take(64).enumerate();
            *word = taken.fold(0, |word, (at, state)| word | u64::from(*state == State::Out) << at);
        }
    }

    /// Asserts that its counts agree with the states of its buffers; `all` of them are looked at, or the one
    /// that is taken next.
    fn check(&self, all: bool) {
        let count = self.init.count as usize;
        assert!(self.free.len() + self.resting as usize <= count, "free + resting buffers <= all buffers");
        if let Some(&index) = self.free.last() {
            assert_eq!(self.states[index as usize], State::Free, "the next buffer of the list is free");
        }
        if !all {
            return;
        }
        let of = |state: State| self.states.iter().filter(|one| **one == state).count();
        assert_eq!(self.free.len(), of(State::Free), "free buffers = buffers in the list");
        assert_eq!(
            self.resting as usize,
            of(State::Resting),
            "resting buffers = those that were posted pinned"
        );
        let mut resting = self.states.iter().zip(&self.pins).filter(|(state, _)| **state == State::Resting);
        assert!(resting.all(|(_, pins)| *pins > 0), "a buffer that rests is pinned");
    }

    pub(super) fn facts(&mut self) -> FreeListFacts {
        self.look_at_all();
        FreeListFacts {
            capacity: self.init.count,
            free: self.free.len() as u32,
            resting: self.resting,
            bad_posts: self.bad_posts,
        }
    }
}

/// All free lists of an engine.
pub struct FreeLists {
    /// As many places as lists existed at once: a search for a buffer walks through them.
    places: Vec<Option<FreeList>>,
    max: usize,
    made: u64,
    /// The list that was pinned last: mostly the next one, too.
    recent: usize,
    /// ALLOCATEs so far.
    takes: u32,
    /// Pins that came (true) or went and are not counted yet, in the order in which they did.
    deferred: Vec<(Pin, bool)>,
}

/// Bits of a list's number that are its place; those above tell it from lists that had the place before.
const PLACE_BITS: u32 = 16;

impl FreeLists {
    pub fn new(max: u32) -> FreeLists {
        FreeLists {
            places: Vec::new(),
            max: max.min(1 << PLACE_BITS) as usize,
            made: 0,
            recent: 0,
            takes: 0,
            deferred: Vec::with_capacity(DEFERRED_MAX),
        }
    }

    /// Ends the list of this number; its buffers stay what they are.
    pub(super) fn destroy(&mut self, number: u64) -> Result<(), NicError> {
        self.get(number).ok_or(NicError::Unknown)?;
        self.places[number as usize & ((1 << PLACE_BITS) - 1)] = None;
        Ok(())
    }

    pub(super) fn create(&mut self, init: FreeListInit) -> Result<u64, NicError> {
        let last = u64::from(init.count).checked_mul(u64::from(init.size));
        let Some(bytes) = last.filter(|bytes| init.base.checked_add(*bytes).is_some()) else {
            return Err(NicError::TooSmall);
        };
        if init.size == 0 || !(1..=MAX_COUNT).contains(&init.count) {
            return Err(NicError::TooSmall);
        }
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        if place == self.max {
            return Err(NicError::Full);
        }
        if place == self.places.len() {
            self.places.push(None);
        }
        self.made += 1;
        let number = self.made << PLACE_BITS | place as u64;
        let count = init.count as usize;
        self.places[place] = Some(FreeList {
            number,
            queue: ReceiveQueue::new(init.ring.clone(), 1),
            init,
            bytes,
            states: vec![State::Out; count].into_boxed_slice(),
            pins: vec![0; count].into_boxed_slice(),
            free: Vec::with_capacity(count),
            resting: 0,
            bad_posts: 0,
        });
        Ok(number)
    }

    fn get(&mut self, number: u64) -> Option<&mut FreeList> {
        let place = number as usize & ((1 << PLACE_BITS) - 1);
        self.places.get_mut(place)?.as_mut().filter(|list| list.number == number)
    }

    /// Takes a buffer for `len` bytes, if `reaches` says that it may be written. Its arguments are the
    /// buffer's address and size, and the address of the next buffer, if that is known.
    #[inline(always)]
    pub fn take(
        &mut self,
        pd: Pd,
        number: u64,
        len: u32,
        reaches: impl FnOnce(u64, usize, Option<u64>) -> bool,
    ) -> Taken {
        self.takes = self.takes.wrapping_add(1);
        let due = self.takes.is_multiple_of(LOOK_EVERY);
        let looks = self.get(number).is_some_and(|list| due || list.free.is_empty());
        if looks {
            // What is posted meets the count.
            self.count();
        }
        let Some(list) = self.get(number).filter(|list| list.init.pd == pd) else { return Taken::Foreign };
        if len > list.init.size {
            return Taken::TooLong;
        }
        if looks {
            list.look();
        }
        let mut free = list.free.iter().rev();
        let Some(&index) = free.next() else { return Taken::Nothing };
        let (va, next) = (list.address(index), free.next().map(|next| list.address(*next)));
        if !reaches(va, list.init.size as usize, next) {
            return Taken::Foreign;
        }
        list.free.pop();
        list.states[index as usize] = State::Out;
        Taken::Buffer { va, pin: Pin { list: number, index } }
    }

    /// Posts a buffer that was taken and whose address was never sent.
    pub fn give_back(&mut self, pin: Pin) {
        self.count();
        if let Some(list) = self.get(pin.list) {
            list.post(pin.index);
        }
    }

    /// Keeps the buffer that holds the byte at `va`, if it is one.
    #[inline]
    pub fn pin(&mut self, pd: Pd, va: u64) -> Option<Pin> {
        let pin = self.find(self.recent, pd, va).or_else(|| {
            let place = (0..self.places.len()).find(|place| self.find(*place, pd, va).is_some())?;
            self.recent = place;
            self.find(place, pd, va)
        })?;
        self.defer(pin, true);
        Some(pin)
    }

    #[inline]
    pub fn unpin(&mut self, pin: Pin) {
        self.defer(pin, false);
    }

    /// The buffer that holds the byte at `va`, if it is one of the list at `place`.
    #[inline]
    fn find(&self, place: usize, pd: Pd, va: u64) -> Option<Pin> {
        let list = self.places.get(place)?.as_ref().filter(|list| list.init.pd == pd)?;
        list.index(va).map(|index| Pin { list: list.number, index })
    }

    /// Records that a pin came or went. Its count is prefetched now, and updated when it is needed or many
    /// records have come together.
    #[inline]
    fn defer(&mut self, pin: Pin, came: bool) {
        if self.deferred.len() == DEFERRED_MAX {
            self.count();
        }
        if let Some(list) = self.get(pin.list) {
            remora_memory::prefetch(&list.pins[pin.index as usize]);
            self.deferred.push((pin, came));
        }
    }

    /// Asserts the invariants of all lists. All buffers of a list are looked at in one of as many events as
    /// it has buffers; `event` is the number of this one.
    pub fn check(&self, event: u64) {
        assert!(self.deferred.len() <= DEFERRED_MAX, "pins that are not counted <= DEFERRED_MAX");
        for list in self.places.iter().flatten() {
            list.check(event.is_multiple_of(u64::from(list.init.count)));
        }
    }

    /// Counts all pins.
    fn count(&mut self) {
        let mut deferred = std::mem::take(&mut self.deferred);
        for (pin, came) in deferred.drain(..) {
            match self.get(pin.list) {
                Some(list) if came => list.pin(pin.index),
                Some(list) => list.unpin(pin.index),
                None => {}
            }
        }
        self.deferred = deferred;
    }

    /// The list of this number, all of whose pins are counted.
    pub(super) fn settled(&mut self, number: u64) -> Result<&mut FreeList, NicError> {
        self.count();
        self.get(number).ok_or(NicError::Unknown)
    }
}
