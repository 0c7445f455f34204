//! The two ends of a mapped ring: the protocol of `ring` over the memory of `map`, with prefetching and
//! wake flags.
//!
//! The port consists of `Sender`s and `Receiver`s. Benchmarks use them bare, as the lower bound of the
//! port's cost.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::io::Errno;

use super::map::{Half, Map};
use super::outgoing::Outgoing;
use super::ring::{Broken, Consumer, Found, Geometry, Producer, slots_of};
use crate::prefetch;

/// Distance in slots, beyond the frame just committed, of the slots that are prefetched for writing. It is
/// small: the next train starts at a slot that the consumer polls, and a slot fetched early would have to
/// be fetched twice.
const WARM_AHEAD: u32 = 8;
/// Maximum number of slots that are prefetched, or believed to follow, on the producer's word.
const FARTHEST: u32 = 64;
/// Maximum number of lines that are prefetched at once: long frames are left to the CPU's own prefetcher.
const MOST_HINTS: u32 = 4;

/// Creates a ring with both ends in this process, for tests, loopback and benchmarks. The memory is shared,
/// so a forked child may use one end and its parent the other.
pub fn ring(geometry: Geometry) -> Result<(Sender, Receiver), Errno> {
    let (map, _memory) = Map::create(geometry)?;
    let half = Half::new(&map, 0);
    Ok((Sender::new(half.clone()), Receiver::new(half)))
}

/// The producing end of a mapped ring.
#[derive(Debug)]
pub struct Sender {
    out: Outgoing,
    producer: Producer,
}

impl Sender {
    pub(super) fn new(half: Half) -> Sender {
        Sender { producer: Producer::new(half.geometry()), out: Outgoing::new(half) }
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> Geometry {
        self.out.half.geometry()
    }

    /// Reserves a buffer for a frame of exactly `len` bytes. Returns `Ok(false)` if the ring is full, or if
    /// `len` is not in 1 ..= `max_frame` of the geometry.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<bool, Broken> {
        if len.wrapping_sub(1) >= self.out.half.geometry().max_frame() as usize {
            return Ok(false);
        }
        self.producer.reserve(&self.out, len as u32)
    }

    /// Returns the bytes of the reserved frame until it is committed; empty if no frame is reserved.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        let (slot, len) = self.producer.reserved();
        let in_ring = self.out.half.frame(slot);
        match self.out.stage(slot, len, self.producer.is_in_train()) {
            Some(bytes) => bytes,
            // SAFETY: `reserve` made sure that `slots_of(len)` contiguous slots from `slot` are within the
            // ring, and that the consumer gave them back (acquire). Until `publish` only this side uses
            // them; the lifetime is bound to `self`. A peer that keeps reading them sees garbage, and
            // nothing here reads them back.
            None => unsafe { std::slice::from_raw_parts_mut(in_ring, len as usize) },
        }
    }

    /// Adds the reserved frame, whose bytes must be complete, to the train that the next flush publishes.
    /// Returns the length of the frame; 0 if none was reserved.
    #[inline]
    pub fn commit(&mut self) -> usize {
        let len = self.producer.reserved().1;
        self.out.keep(len);
        let before = self.producer.head();
        self.producer.commit(&self.out);
        let after = self.producer.head();
        let hints = after.wrapping_sub(before).min(MOST_HINTS);
        for ahead in WARM_AHEAD..WARM_AHEAD + hints {
            prefetch::for_write(self.out.half.slot(after.wrapping_add(ahead)));
        }
        len as usize
    }

    /// Publishes every committed frame.
    #[inline]
    pub fn flush(&mut self) {
        self.producer.publish(&self.out);
    }

    /// Returns true, once per sleep, if the consumer is asleep and the caller must wake it. There is no
    /// fence between `flush` and this check: the sleeper issues one for both sides (`arm`), or checks the
    /// ring on a timer.
    #[inline]
    pub fn must_wake(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        self.out.half.asleep().load(Ordering::Relaxed) != 0 && take(self.out.half.asleep())
    }
}

#[cold]
fn take(flag: &AtomicU32) -> bool {
    flag.swap(0, Ordering::AcqRel) != 0
}

/// The consuming end of a mapped ring.
#[derive(Debug)]
pub struct Receiver {
    half: Half,
    consumer: Consumer,
    /// Position up to which the producer has announced frames.
    promised: u32,
}

impl Receiver {
    pub(super) fn new(half: Half) -> Receiver {
        Receiver { consumer: Consumer::new(half.geometry()), half, promised: 0 }
    }

    /// Passes the oldest frame to `take`, gives its slots back and returns its length; `Ok(None)` if the
    /// ring is empty.
    #[inline]
    pub fn receive(&mut self, take: impl FnOnce(&[u8])) -> Result<Option<usize>, Broken> {
        let Some(frame) = self.consumer.peek(&self.half)? else {
            // Most frames have a second line: fetching it together with the word that announces the frame
            // saves time.
            prefetch::for_read(self.half.slot(self.consumer.tail().wrapping_add(1)));
            return Ok(None);
        };
        if frame.following > 0 {
            self.expect(frame);
        }
        self.fetch(frame);
        take(self.bytes(frame));
        self.consumer.release(frame);
        Ok(Some(frame.len as usize))
    }

    /// Receives a frame like [`Receiver::receive`], but from a copy in `private` (of the geometry's
    /// `max_frame` bytes), which the peer cannot change.
    pub(super) fn receive_copied(
        &mut self,
        private: &mut [u8],
        take: impl FnOnce(&[u8]),
    ) -> Result<Option<usize>, Broken> {
        let Some(frame) = self.consumer.peek(&self.half)? else {
            return Ok(None);
        };
        let len = frame.len as usize;
        let copy = &mut private[..len];
        // SAFETY: `peek` checked that the frame lies within the ring, `copy` has its length, and they do
        // not overlap. The bytes may be torn if the peer breaks the protocol; only the copy is examined.
        unsafe { std::ptr::copy_nonoverlapping(self.half.frame(frame.slot), copy.as_mut_ptr(), len) };
        self.consumer.release(frame);
        take(copy);
        Ok(Some(len))
    }

    /// Returns whether a frame is waiting, or the ring is broken, which `receive` will report.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        !matches!(self.consumer.peek(&self.half), Ok(None))
    }

    /// Returns whether the producer has announced more frames. If not, checking for one may take a cache
    /// line away from a producer that is about to write it.
    #[inline]
    pub fn expects_more(&self) -> bool {
        // A promise that was overtaken appears to be 2^31 slots long. A false promise costs only one check.
        self.promised.wrapping_sub(self.consumer.tail()).wrapping_sub(1) < FARTHEST
    }

    /// Prefetches all lines of a long frame at once, because its headers are read before the other lines
    /// are needed.
    #[inline]
    fn fetch(&self, frame: Found) {
        for ahead in 2..slots_of(frame.len).min(FARTHEST) {
            prefetch::for_read(self.half.slot(frame.slot.wrapping_add(ahead)));
        }
    }

    /// Prefetches the rest of a train while its first frame is being read.
    #[inline]
    fn expect(&mut self, frame: Found) {
        let next = self.consumer.tail().wrapping_add(slots_of(frame.len));
        self.promised = next.wrapping_add(frame.following);
        for ahead in 0..frame.following.min(FARTHEST) {
            prefetch::for_read(self.half.slot(next.wrapping_add(ahead)));
        }
    }

    /// Sets or clears the flag by which this end announces that it sleeps.
    #[inline]
    pub fn set_asleep(&self, asleep: bool) {
        self.half.asleep().store(asleep.into(), Ordering::Relaxed);
    }

    #[inline]
    fn bytes(&self, frame: Found) -> &[u8] {
        // SAFETY: `peek` checked that the frame lies within the ring. It was published (acquire) and is not
        // given back before the borrow of `self` ends, so a peer that follows the protocol does not write
        // it. A peer that does not could change bytes under a reader, so frames of other users are never
        // read in place (`Link::receive`). A peer of this process's own user is trusted to follow the
        // protocol, even where the system otherwise denies it access to this process's memory (Yama,
        // PR_SET_DUMPABLE, another container of a pod): a link between processes of one user grants this.
        unsafe { std::slice::from_raw_parts(self.half.frame(frame.slot), frame.len as usize) }
    }
}
