//! The ring protocol: one producer, one consumer, frames in whole 64-byte slots, and no shared index on the
//! fast path.
//!
//! ```text
//! slot p      word (4 bytes) | frame bytes …      word = 0: nothing here yet
//! slot p+1    … frame bytes continue                 = bytes of the frame | slots of its train << 16
//! slot p+n    0                                      = SKIP: the next frame is at slot 0
//! ```
//!
//! A frame takes whole contiguous slots; its word is published last (release) and read first (acquire). The
//! consumer clears the word of *every* slot it has read, including slots that held payload. Therefore the
//! next frame, wherever it starts, finds a 0 and never old payload, and no lap number is needed. Those
//! stores have a second purpose: the line then belongs to the consumer, and the producer fetches it whole
//! for its next lap. If the consumer only read, the producer would keep an old copy and upgrade it line by
//! line when it writes, which costs five to twenty times as much on Zen 4 (and about the same on Sapphire
//! Rapids). The consumer clears a frame only when it looks for the next one, so that the clearing stores
//! are not ahead of an answer in its store queue.
//!
//! The consumer returns *credit* (its read position) after each quarter of the ring, on a cache line of its
//! own. The producer reads it only when the credit it knows of runs out. Positions count slots since the
//! ring was created, modulo 2^32.
//!
//! Frames committed together are published as a *train*: its first word is published last. A consumer that
//! waits for the next frame keeps taking that slot's line away from the producer; with trains this happens
//! only once per train. The first word also contains the number of slots of the train that follow. The
//! consumer fetches all of them at once, and looks no further.
//!
//! The protocol is generic over [`Cells`], so that loom can explore this code over modelled memory.

/// Size of a slot in bytes: a cache line.
pub const SLOT: usize = 64;
/// Size in bytes of the word before each frame.
pub const WORD: usize = 4;
/// Word of a slot from which the ring continues at slot 0. No length has this value.
const SKIP: u32 = u32::MAX;
/// Bits of a word that contain the frame's length.
const LENGTH: u32 = 0xffff;
/// Shift, within a word, of the number of slots that follow.
const FOLLOWING: u32 = 16;

/// The shared words of a ring. Memory orderings are part of the contract.
pub trait Cells {
    /// Reads the word of `slot` with acquire ordering.
    fn word(&self, slot: u32) -> u32;
    /// Publishes the word of `slot` with release ordering.
    fn publish(&self, slot: u32, word: u32);
    /// Sets the word of `slot` to 0 with relaxed ordering. The next `return_credit` or `publish` makes it
    /// visible.
    fn clear(&self, slot: u32);
    /// Reads the consumer's position with acquire ordering.
    fn credit(&self) -> u32;
    /// Publishes the consumer's position to the producer with release ordering.
    fn return_credit(&self, position: u32);
}

/// Number of slots at which a train is published at once: the consumer has enough to begin with.
const LONGEST_TRAIN: u32 = 48;

/// The geometry of a ring. Only [`Geometry::new`] creates it, with values that it accepts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    max_frame: u32,
}

impl Geometry {
    /// Minimum number of slots of a ring.
    pub const MIN_SLOTS: u32 = 16;
    /// Maximum number of slots of a ring (64 MiB).
    pub const MAX_SLOTS: u32 = 1 << 20;
    /// Largest frame size, in bytes, that a ring can be created for.
    pub const MAX_FRAME: u32 = 65_536 - 64;

    /// Creates the geometry of a ring of `slots` (a power of two) for frames of up to `max_frame` bytes.
    /// Returns `None` if a value is out of bounds, or if the ring could deadlock: a frame needs its own
    /// slots and up to as many, less one, skipped at the end of the ring, while the credit for a quarter of
    /// the ring may not have been returned.
    pub const fn new(slots: u32, max_frame: u32) -> Option<Geometry> {
        let fits = slots.is_power_of_two()
            && slots >= Geometry::MIN_SLOTS
            && slots <= Geometry::MAX_SLOTS
            && max_frame >= 1
            && max_frame <= Geometry::MAX_FRAME;
        if fits && 2 * slots_of(max_frame) <= slots - slots / 4 {
            Some(Geometry { slots, max_frame })
        } else {
            None
        }
    }

    /// Returns the number of slots in the ring.
    pub const fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the largest frame size in bytes.
    pub const fn max_frame(self) -> u32 {
        self.max_frame
    }

    const fn mask(self) -> u32 {
        self.slots - 1
    }
}

/// Returns the number of slots that a frame of `len` bytes takes.
#[inline]
pub const fn slots_of(len: u32) -> u32 {
    (len + (WORD + SLOT - 1) as u32) / SLOT as u32
}

/// Error: the other side broke the rules of the ring, so that its writes cannot be trusted any more.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Broken;

/// The producing end. Its positions are private; only `Cells` is shared.
#[derive(Debug)]
pub struct Producer {
    geometry: Geometry,
    /// Position at which the next frame starts.
    head: u32,
    /// Position up to which the consumer is known to have read.
    credit: u32,
    /// Length of the reserved frame; 0 if none is reserved.
    reserved: u32,
    /// Position of the first frame of the train that is complete but not published. `train_first` is the
    /// length of that frame; 0 if there is no train.
    train: u32,
    train_first: u32,
}

impl Producer {
    /// Creates the producer of a fresh (zeroed) ring.
    pub const fn new(geometry: Geometry) -> Producer {
        Producer { geometry, head: 0, credit: 0, reserved: 0, train: 0, train_first: 0 }
    }

    /// Returns the position of the next frame, in slots since the ring was created.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Reserves contiguous slots for a frame of `len` bytes (1 ..= `max_frame`). Returns `Ok(false)` if the
    /// ring is full. A reservation that is not committed is replaced by the next one.
    #[inline]
    pub fn reserve(&mut self, cells: &impl Cells, len: u32) -> Result<bool, Broken> {
        debug_assert!(len >= 1 && len <= self.geometry.max_frame);
        if self.reserved != 0 {
            self.retract(cells);
        }
        let count = slots_of(len);
        let index = self.head & self.geometry.mask();
        let to_end = self.geometry.slots - index;
        let skipped = if count <= to_end { 0 } else { to_end };
        if !self.has_space(cells, skipped + count)? {
            // The consumer returns credit only for frames that it can see, so publish the train.
            self.publish(cells);
            return Ok(false);
        }
        if skipped != 0 {
            cells.publish(index, SKIP);
            self.head = self.head.wrapping_add(skipped);
        }
        self.reserved = len;
        Ok(true)
    }

    /// Reverts a reservation: its bytes must not be found where a word is expected.
    #[cold]
    fn retract(&mut self, cells: &impl Cells) {
        let index = self.head & self.geometry.mask();
        for slot in index..index + slots_of(self.reserved) {
            cells.clear(slot);
        }
        self.reserved = 0;
    }

    /// Returns the first slot and the length in bytes of the reserved frame; the length is 0 if none is
    /// reserved.
    #[inline]
    pub fn reserved(&self) -> (u32, u32) {
        (self.head & self.geometry.mask(), self.reserved)
    }

    /// Returns whether there are committed frames that are not published. If not, the next frame starts a
    /// train.
    #[inline]
    pub fn is_in_train(&self) -> bool {
        self.train_first != 0
    }

    /// Adds the reserved frame, whose bytes must be complete, to the train. Does nothing without a
    /// reservation.
    #[inline]
    pub fn commit(&mut self, cells: &impl Cells) {
        if self.reserved == 0 {
            return;
        }
        if self.train_first == 0 {
            self.train = self.head;
            self.train_first = self.reserved;
        } else {
            // The consumer does not see this word until the first word of the train is published.
            cells.publish(self.head & self.geometry.mask(), self.reserved);
        }
        self.head = self.head.wrapping_add(slots_of(self.reserved));
        self.reserved = 0;
        if self.head.wrapping_sub(self.train) >= LONGEST_TRAIN {
            self.publish(cells);
        }
    }

    /// Publishes the train: the consumer finds all frames committed since the last call from now on.
    #[inline]
    pub fn publish(&mut self, cells: &impl Cells) {
        if self.train_first != 0 {
            let behind = self.head.wrapping_sub(self.train) - slots_of(self.train_first);
            let word = self.train_first | behind.min(LENGTH - 1) << FOLLOWING;
            cells.publish(self.train & self.geometry.mask(), word);
            self.train_first = 0;
        }
    }

    #[inline]
    fn has_space(&mut self, cells: &impl Cells, wanted: u32) -> Result<bool, Broken> {
        if wanted <= self.geometry.slots - self.head.wrapping_sub(self.credit) {
            return Ok(true);
        }
        self.refresh_credit(cells)?;
        Ok(wanted <= self.geometry.slots - self.head.wrapping_sub(self.credit))
    }

    /// Reads the consumer's position, which may only move forward, and not past what was published.
    #[cold]
    fn refresh_credit(&mut self, cells: &impl Cells) -> Result<(), Broken> {
        let credit = cells.credit();
        if self.head.wrapping_sub(credit) > self.head.wrapping_sub(self.credit) {
            return Err(Broken);
        }
        self.credit = credit;
        Ok(())
    }
}

/// A published frame, as found by the consumer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first slot of the frame.
    pub slot: u32,
    /// Length in bytes; within the geometry's bounds, and such that the frame lies within the ring.
    pub len: u32,
    /// Number of further slots with frames, as announced by the producer; only a hint.
    pub following: u32,
}

/// The consuming end.
#[derive(Debug)]
pub struct Consumer {
    geometry: Geometry,
    /// Position of the next frame.
    tail: u32,
    /// Number of slots before `tail` that were read and are not cleared yet.
    unclean: u32,
    /// Position that was last returned to the producer as credit.
    returned: u32,
}

impl Consumer {
    /// Creates the consumer of a fresh (zeroed) ring.
    pub const fn new(geometry: Geometry) -> Consumer {
        Consumer { geometry, tail: 0, unclean: 0, returned: 0 }
    }

    /// Returns the position of the next frame, in slots since the ring was created.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Returns the oldest published frame, if there is one. It stays until [`Consumer::release`].
    #[inline(always)]
    pub fn peek(&mut self, cells: &impl Cells) -> Result<Option<Found>, Broken> {
        if self.unclean != 0 {
            self.clean(cells);
        }
        let index = self.tail & self.geometry.mask();
        let word = cells.word(index);
        if word == 0 {
            return Ok(None);
        }
        if word != SKIP {
            return self.found(index, word);
        }
        // A frame always fits at slot 0, so a skip there would make the consumer run in circles.
        if index == 0 {
            return Err(Broken);
        }
        self.skip(cells, index)
    }

    #[inline(always)]
    fn found(&self, slot: u32, word: u32) -> Result<Option<Found>, Broken> {
        let len = word & LENGTH;
        let following = word >> FOLLOWING;
        if len.wrapping_sub(1) < self.geometry.max_frame && slot + slots_of(len) <= self.geometry.slots {
            Ok(Some(Found { slot, len, following }))
        } else {
            Err(Broken)
        }
    }

    /// Continues at slot 0.
    #[cold]
    fn skip(&mut self, cells: &impl Cells, index: u32) -> Result<Option<Found>, Broken> {
        cells.clear(index);
        self.tail = self.tail.wrapping_add(self.geometry.slots - index);
        match cells.word(0) {
            0 => Ok(None),
            SKIP => Err(Broken),
            word => self.found(0, word),
        }
    }

    /// Releases the slots of `frame` (from the last [`Consumer::peek`]); the next peek gives them back. The
    /// bytes must not be read any more.
    #[inline]
    pub fn release(&mut self, frame: Found) {
        let count = slots_of(frame.len);
        self.tail = self.tail.wrapping_add(count);
        self.unclean = count;
    }

    /// Clears the slots of the frame released last, and returns credit when a quarter of the ring has
    /// accumulated.
    #[inline(always)]
    fn clean(&mut self, cells: &impl Cells) {
        // A frame never wraps, so its slots are contiguous.
        let index = self.tail.wrapping_sub(self.unclean) & self.geometry.mask();
        for slot in index..index + self.unclean {
            cells.clear(slot);
        }
        self.unclean = 0;
        if self.tail.wrapping_sub(self.returned) >= self.geometry.slots / 4 {
            cells.return_credit(self.tail);
            self.returned = self.tail;
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
mod tests;
