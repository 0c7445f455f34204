//! Free lists: buffers of equal size that a server posts and ALLOCATE takes (PRISM paper, §3.2, §4.2).
//!
//! In the paper, a buffer is posted only while no operation is in progress on the NIC. Here, a buffer that an
//! operation may still access is *pinned*; a buffer that is posted while pinned is *resting* and becomes free
//! with its last unpin. So posting never waits, and only ALLOCATE has a cost. Pins are first recorded and
//! counted later, because the counters are rarely in the cache.

use remora_memory::Pd;
use serde::{Deserialize, Serialize};

use crate::config::NicError;
use crate::part_number::PartNumber;
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;

/// Maximum number of posted buffers processed in one ALLOCATE, which bounds its time.
const LOOK: usize = 64;
/// Number of ALLOCATEs between two checks for newly posted buffers while free buffers are left. Recently
/// returned buffers are taken first, while they are in the cache.
const LOOK_EVERY: u32 = 16;
/// Maximum number of uncounted pins and unpins: enough to hide the prefetch of a counter.
const DEFERRED_MAX: usize = 64;
/// Maximum number of buffers of a list.
const MAX_COUNT: u32 = 1 << 24;

/// Largest number of words of a list's bits that one command asks for.
pub const MAX_WORDS: u32 = 1 << 12;

/// The parameters of a free list: `count` buffers of `size` bytes each, contiguous from `base` on. Buffers
/// become free by being posted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeListInit {
    /// Protection domain; only its queue pairs can allocate from the list.
    pub pd: Pd,
    /// Ring in which buffers are posted, as receive work requests with one element; only the element's
    /// address is used.
    pub ring: PartNumber,
    /// Address of the first buffer, in the address space of its memory region.
    pub base: u64,
    /// Size of each buffer in bytes.
    pub size: u32,
    /// Number of buffers, up to 2^24.
    pub count: u32,
}

/// The state of a free list.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeListFacts {
    /// Total number of buffers.
    pub capacity: u32,
    /// Number of free buffers.
    pub free: u32,
    /// Number of posted buffers that become free when no operation can access them.
    pub resting: u32,
    /// Number of invalid posts: the address is not a buffer of the list, or the buffer was already free.
    pub bad_posts: u64,
}

/// The state of a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// The buffer belongs to the server or to a client that has allocated it.
    Out,
    /// The buffer was posted while it was pinned.
    Resting,
    Free,
}

/// A pin of one buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    list: u64,
    index: u32,
}

/// The result of an ALLOCATE.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The buffer at this address.
    Buffer { va: u64, pin: Pin },
    /// No buffer is free.
    Nothing,
    /// The data is longer than a buffer.
    TooLong,
    /// The queue pair must not use the list, or the key does not cover the buffers.
    Foreign,
}

pub(crate) struct FreeList {
    number: u64,
    init: FreeListInit,
    queue: ReceiveQueue,
    /// Total size in bytes. An address is compared with it first, because the division is needed only for
    /// buffers of the list.
    bytes: u64,
    states: Box<[State]>,
    pins: Box<[u32]>,
    /// Indices of free buffers; the last one is taken next, because it is in the cache.
    free: Vec<u32>,
    resting: u32,
    bad_posts: u64,
}

impl FreeList {
    fn address(&self, index: u32) -> u64 {
        self.init.base + u64::from(index) * u64::from(self.init.size)
    }

    /// Returns the index of the buffer that contains `va`; `None` outside the list.
    fn index(&self, va: u64) -> Option<u32> {
        let offset = va.wrapping_sub(self.init.base);
        (offset < self.bytes).then(|| (offset / u64::from(self.init.size)) as u32)
    }

    /// Processes all posted buffers, so that the server's queries do not count them as allocated.
    fn look_at_all(&mut self) {
        while self.look() {}
    }

    /// Processes posted buffers. Returns true if there may be more.
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
        // Usually no buffer is resting, and then the state, a likely cache miss, need not be read.
        if *pins == 0 && self.resting > 0 && self.states[index as usize] == State::Resting {
            self.resting -= 1;
            self.post(index);
        }
    }

    /// Sets the bits of the buffers that are neither free nor resting; each word covers 64 buffers.
    pub(super) fn out(&mut self, first: u32, bits: &mut [u64]) {
        self.look_at_all();
        let mut states = self.states.iter().skip(first as usize);
        for word in bits {
            let taken = states.by_ref().take(64).enumerate();
            *word = taken.fold(0, |word, (bit, state)| word | u64::from(*state == State::Out) << bit);
        }
    }

    /// Asserts that the counts agree with the states: with `all` of all buffers, else of the next buffer to
    /// be taken.
    fn check(&self, all: bool) {
        let count = self.init.count as usize;
        assert!(self.free.len() + self.resting as usize <= count, "free + resting buffers <= all buffers");
        if let Some(&index) = self.free.last() {
            assert_eq!(self.states[index as usize], State::Free, "the next buffer of the list is free");
        }
        if !all {
            return;
        }
        let count_of = |state: State| self.states.iter().filter(|one| **one == state).count();
        assert_eq!(self.free.len(), count_of(State::Free), "free buffers = buffers in the list");
        assert_eq!(
            self.resting as usize,
            count_of(State::Resting),
            "resting buffers = those that were posted pinned"
        );
        let mut resting = self.states.iter().zip(&self.pins).filter(|(state, _)| **state == State::Resting);
        assert!(resting.all(|(_, pins)| *pins > 0), "a buffer that rests is pinned");
    }

    pub(crate) fn facts(&mut self) -> FreeListFacts {
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
pub(crate) struct FreeLists {
    /// Table of lists, as long as the number of lists that existed at the same time. A search for a buffer
    /// iterates over the table.
    places: Vec<Option<FreeList>>,
    max: usize,
    made: u64,
    /// Index of the list with the last pin, which is probably the next one, too.
    recent: usize,
    /// Number of ALLOCATEs.
    takes: u32,
    /// Uncounted pins (true) and unpins (false), in order.
    deferred: Vec<(Pin, bool)>,
}

/// Number of bits of a list number that are its table index. The bits above distinguish the list from earlier
/// lists with this index.
const PLACE_BITS: u32 = 16;

impl FreeLists {
    pub(crate) fn new(max: u32) -> FreeLists {
        FreeLists {
            places: Vec::new(),
            max: max.min(1 << PLACE_BITS) as usize,
            made: 0,
            recent: 0,
            takes: 0,
            deferred: Vec::with_capacity(DEFERRED_MAX),
        }
    }

    /// Destroys the list with this number. The states of its buffers do not change.
    pub(crate) fn destroy(&mut self, number: u64) -> Result<(), NicError> {
        self.get(number).ok_or(NicError::Unknown)?;
        self.places[number as usize & ((1 << PLACE_BITS) - 1)] = None;
        Ok(())
    }

    pub(super) fn create(&mut self, init: FreeListInit, ring: Ring) -> Result<u64, NicError> {
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
            queue: ReceiveQueue::new(ring, 1),
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

    /// Takes a buffer for `len` bytes if `reaches` confirms that it may be written. The arguments of
    /// `reaches` are the buffer's address and size, and the address of the next buffer, if known.
    #[inline(always)]
    pub(crate) fn take(
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
            // Posted buffers need up-to-date pin counts.
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
        let va = list.address(index);
        let next = free.next().map(|next| list.address(*next));
        if !reaches(va, list.init.size as usize, next) {
            return Taken::Foreign;
        }
        list.free.pop();
        list.states[index as usize] = State::Out;
        Taken::Buffer { va, pin: Pin { list: number, index } }
    }

    /// Returns a buffer that was taken and whose address was never sent.
    pub(crate) fn give_back(&mut self, pin: Pin) {
        self.count();
        if let Some(list) = self.get(pin.list) {
            list.post(pin.index);
        }
    }

    /// Pins the buffer that contains `va`; `None` if there is none.
    #[inline]
    pub(crate) fn pin(&mut self, pd: Pd, va: u64) -> Option<Pin> {
        let pin = self.find(self.recent, pd, va).or_else(|| {
            let place = (0..self.places.len()).find(|place| self.find(*place, pd, va).is_some())?;
            self.recent = place;
            self.find(place, pd, va)
        })?;
        self.defer(pin, true);
        Some(pin)
    }

    #[inline]
    pub(crate) fn unpin(&mut self, pin: Pin) {
        self.defer(pin, false);
    }

    /// Returns the buffer that contains `va` if it belongs to the list at `place`.
    #[inline]
    fn find(&self, place: usize, pd: Pd, va: u64) -> Option<Pin> {
        let list = self.places.get(place)?.as_ref().filter(|list| list.init.pd == pd)?;
        list.index(va).map(|index| Pin { list: list.number, index })
    }

    /// Records a pin or unpin. The counter is prefetched now and updated when it is needed or many records
    /// have accumulated.
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

    /// Asserts the invariants of all lists. A full check of a list runs in one of as many events as the list
    /// has buffers; `event` is the number of this event.
    pub(crate) fn check(&self, event: u64) {
        assert!(self.deferred.len() <= DEFERRED_MAX, "pins that are not counted <= DEFERRED_MAX");
        for list in self.places.iter().flatten() {
            list.check(event.is_multiple_of(u64::from(list.init.count)));
        }
    }

    /// Applies all recorded pins and unpins.
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

    /// Returns the list with this number, after all its pins were counted.
    pub(crate) fn settled(&mut self, number: u64) -> Result<&mut FreeList, NicError> {
        self.count();
        self.get(number).ok_or(NicError::Unknown)
    }
}
