//! The two ends of a mapped ring: the protocol of `ring` over the memory of `map`, plus prefetching and wake
//! flags.
//!
//! The port is made of `Sender` and `Receiver`; benchmarks use them bare as the floor of this port.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::io::Errno;

use super::map::{Half, Map};
use super::outgoing::Outgoing;
use super::ring::{Broken, Consumer, Found, Geometry, Producer, slots_of};
use crate::prefetch;

/// How many slots beyond the frame just committed are fetched for writing. Few: a train further on starts at
/// a slot that the consumer polls, and an early fetch of that slot is done twice.
const WARM_AHEAD: u32 = 8;
/// No more slots than this are fetched, or looked for, at a producer's word.
const FARTHEST: u32 = 64;
/// No more lines than this are asked for at once: long frames are left to the CPU's own prefetcher.
const MOST_HINTS: u32 = 4;

/// A ring with both ends in this process: for tests, loopback and floors of benchmarks. The memory is shared,
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

    /// The shape of the ring.
    pub fn geometry(&self) -> Geometry {
        self.out.half.geometry()
    }

    /// Reserves a buffer for a frame of exactly `len` bytes; `Ok(false)`: the ring is full. `len` must be 1
    /// ..= the geometry's `max_frame`, else it is refused as full.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<bool, Broken> {
        if len.wrapping_sub(1) >= self.out.half.geometry().max_frame() as usize {
            return Ok(false);
        }
        self.producer.reserve(&self.out, len as u32)
    }

    /// The bytes of the frame last reserved, until it is committed; empty when there is none.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        let (slot, len) = self.producer.reserved();
        let in_ring = self.out.half.frame(slot);
        match self.out.stage(slot, len, self.producer.is_in_train()) {
            Some(bytes) => bytes,
            // SAFETY: `reserve` found that `slots_of(len)` contiguous slots from `slot` are within the ring,
            // and that the consumer gave them back (acquire). Until `publish` they are this side's alone; the
            // lifetime is bound to `self`. A peer that keeps reading them anyway sees garbage; nothing here
            // reads them back.
            None => unsafe { std::slice::from_raw_parts_mut(in_ring, len as usize) },
        }
    }

    /// Adds the reserved frame, whose bytes must be complete, to the train that the next flush publishes.
    /// Returns its length; 0: there was none.
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

    /// Is the consumer asleep, and is it this call that has to wake it? True once per sleep. There is no
    /// fence between `flush` and this look: the sleeper issues one for both (`arm`), or looks again on a
    /// timer.
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
    /// The position up to which the producer has announced frames.
    promised: u32,
}

impl Receiver {
    pub(super) fn new(half: Half) -> Receiver {
        Receiver { consumer: Consumer::new(half.geometry()), half, promised: 0 }
    }

    /// Hands the oldest frame to `take`, gives its slots back and returns its length; `Ok(None)`: there is
    /// none.
    #[inline]
    pub fn receive(&mut self, take: impl FnOnce(&[u8])) -> Result<Option<usize>, Broken> {
        let Some(found) = self.consumer.peek(&self.half)? else {
            // Most frames have a second line: it is fetched beside the word that announces it, not after it.
            prefetch::for_read(self.half.slot(self.consumer.tail().wrapping_add(1)));
            return Ok(None);
        };
        if found.following > 0 {
            self.expect(found);
        }
        self.fetch(found);
        take(self.bytes(found));
        self.consumer.release(found);
        Ok(Some(found.len as usize))
    }

    /// As [`Receiver::receive`], but from a copy in `private` (of the geometry's `max_frame` bytes), which
    /// the peer cannot change.
    pub(super) fn receive_copied(
        &mut self,
        private: &mut [u8],
        take: impl FnOnce(&[u8]),
    ) -> Result<Option<usize>, Broken> {
        let Some(found) = self.consumer.peek(&self.half)? else {
            return Ok(None);
        };
        let len = found.len as usize;
        let copy = &mut private[..len];
        // SAFETY: `peek` checked that the frame lies within the ring, `copy` has its length, and they do not
        // overlap. The bytes may be torn if the peer breaks the protocol; they are looked at only after this
        // copy.
        unsafe { std::ptr::copy_nonoverlapping(self.half.frame(found.slot), copy.as_mut_ptr(), len) };
        self.consumer.release(found);
        take(copy);
        Ok(Some(len))
    }

    /// Is a frame waiting, or a broken ring that `receive` will report?
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        !matches!(self.consumer.peek(&self.half), Ok(None))
    }

    /// Has the producer announced more frames? If not, a look for one may take a line away from a producer
    /// that is about to write it.
    #[inline]
    pub fn expects_more(&self) -> bool {
        // A promise that was overtaken is 2^31 slots long; a lie costs a look.
        self.promised.wrapping_sub(self.consumer.tail()).wrapping_sub(1) < FARTHEST
    }

    /// Fetches all lines of a long frame at once: its headers are read before the others are asked for.
    #[inline]
    fn fetch(&self, found: Found) {
        for ahead in 2..slots_of(found.len).min(FARTHEST) {
            prefetch::for_read(self.half.slot(found.slot.wrapping_add(ahead)));
        }
    }

    /// Fetches the rest of a train while its first frame is being read.
    #[inline]
    fn expect(&mut self, found: Found) {
        let next = self.consumer.tail().wrapping_add(slots_of(found.len));
        self.promised = next.wrapping_add(found.following);
        for ahead in 0..found.following.min(FARTHEST) {
            prefetch::for_read(self.half.slot(next.wrapping_add(ahead)));
        }
    }

    /// Sets or clears the flag with which this end announces that it sleeps.
    #[inline]
    pub fn set_asleep(&self, asleep: bool) {
        self.half.asleep().store(asleep.into(), Ordering::Relaxed);
    }

    #[inline]
    fn bytes(&self, found: Found) -> &[u8] {
        // SAFETY: `peek` checked that the frame lies within the ring. It was published (acquire) and is not
        // given back before the borrow of `self` ends, so a peer that keeps the protocol does not write it.
        // One that does not can change bytes under a reader. Frames of other users are therefore never read
        // in place (`Link::receive`). A peer of this process's own user is trusted to keep the protocol, also
        // where the system keeps its hands off our memory otherwise (Yama, PR_SET_DUMPABLE, another container
        // of a pod): this is what a link of one user grants.
        unsafe { std::slice::from_raw_parts(self.half.frame(found.slot), found.len as usize) }
    }
}
