//! The producer's view of its ring: short frames of a train are gathered beside it and stored together.
//!
//! A line of the ring was last the consumer's. A store to it waits for the other core, and no later store can
//! leave before it. Between two lines of the ring the NIC stores a hundred other words. That is more than a
//! CPU can hold back, so the CPU would wait for each line by itself. For lines that are stored one after the
//! other it waits once. The consumer, which polls the slot where the train starts, also takes its line away
//! only once. A long train is stored past the caches (x86-64's streaming stores). These take whole lines
//! without waiting for the other core's copies.

use std::cell::Cell;

use super::map::Half;
use super::ring::{Cells, SLOT, WORD, slots_of};

/// Longer frames are built in the ring: a copy costs more than it saves.
const LONGEST: u32 = (4 * SLOT - WORD) as u32;
/// Slots that can be gathered before they are stored to the ring: a longer train is stored in parts.
const GATHERED: u32 = 64;
/// From this many slots on, they are stored past the caches. The consumer fetches them from further away, but
/// ahead of their use, and no core waits for lines to change hands. With two cores under different L3 caches
/// that was worth a sixth of the rate of 64 B WRITEs. Under one it cost nothing.
const STREAMED: usize = 16;

/// A slot, stored as a whole.
#[derive(Copy, Clone, Debug)]
#[repr(C, align(64))]
struct Line([u8; SLOT]);

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) half: Half,
    /// Copies of the ring's slots from `start` on, before they are stored there.
    gathered: Box<[Line; GATHERED as usize]>,
    start: Cell<u32>,
    /// Slots gathered; 0: none.
    count: Cell<u32>,
    /// The reserved frame is being built in `gathered`.
    staged: Cell<bool>,
    /// Frames of this train.
    frames: u32,
    /// Frames come one by one. Building in the ring then asks for its line early, which is better.
    alone: bool,
}

impl Outgoing {
    pub(super) fn new(half: Half) -> Outgoing {
        let gathered = Box::new([Line([0; SLOT]); GATHERED as usize]);
        Outgoing {
            half,
            gathered,
            start: Cell::new(0),
            count: Cell::new(0),
            staged: Cell::new(false),
            frames: 0,
            alone: true,
        }
    }

    /// The buffer in which the frame reserved at `slot` is built; None: it is built in the ring.
    #[inline]
    pub(super) fn stage(&mut self, slot: u32, len: u32, in_train: bool) -> Option<&mut [u8]> {
        if !in_train {
            self.start.set(slot);
            self.count.set(0);
            self.alone = self.frames <= 1;
            self.frames = 0;
        }
        let at = self.count.get();
        let follows = slot == self.start.get() + at && (at > 0) == in_train;
        let fits = !self.alone && len.wrapping_sub(1) < LONGEST && at + slots_of(len) <= GATHERED;
        self.staged.set(follows && fits);
        if !(follows && fits) {
            return None;
        }
        let place = at as usize * SLOT + WORD;
        bytes_of(&mut self.gathered).get_mut(place..place + len as usize)
    }

    /// The reserved frame of `len` bytes is complete.
    #[inline]
    pub(super) fn keep(&mut self, len: u32) {
        self.frames += 1;
        if !self.staged.replace(false) {
            return;
        }
        let at = self.count.get();
        if at > 0 {
            self.gathered[at as usize].0[..WORD].copy_from_slice(&len.to_ne_bytes());
        }
        self.count.set(at + slots_of(len));
    }

    /// Stores the gathered slots; the first word stays 0.
    #[inline]
    fn settle(&self) {
        let count = self.count.replace(0) as usize;
        let (from, to) = (self.gathered.as_ptr(), self.half.slot(self.start.get()).cast::<Line>());
        // SAFETY: the slots were reserved one after the other from `start` on, so they lie within the ring
        // and are whole aligned lines. They are this side's alone until the first word is published, and
        // there are at most `GATHERED`.
        unsafe { if count >= STREAMED { stream(from, to, count) } else { store(from, to, count) } }
    }
}

impl Cells for Outgoing {
    #[inline]
    fn word(&self, slot: u32) -> u32 {
        self.half.word(slot)
    }

    #[inline]
    fn publish(&self, slot: u32, word: u32) {
        let at = slot.wrapping_sub(self.start.get());
        if at < self.count.get() {
            if at > 0 {
                // Its word is in its place, and follows with the rest.
                return;
            }
            self.settle();
        }
        self.half.publish(slot, word);
    }

    #[inline]
    fn clear(&self, slot: u32) {
        self.half.clear(slot);
    }

    #[inline]
    fn credit(&self) -> u32 {
        self.half.credit()
    }

    #[inline]
    fn return_credit(&self, position: u32) {
        self.half.return_credit(position);
    }
}

/// Stores `count` lines.
///
/// # Safety
/// They may be read at `from` and written at `to`, and nobody else does meanwhile.
#[inline]
unsafe fn store(from: *const Line, to: *mut Line, count: usize) {
    for line in 0..count {
        // SAFETY: the caller's promise.
        unsafe { to.add(line).write(from.add(line).read()) };
    }
}

/// As [`store`], past the caches. A core that sees a store which comes after this call sees the lines too.
///
/// # Safety
/// As [`store`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn stream(from: *const Line, to: *mut Line, count: usize) {
    use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
    const PIECES: usize = SLOT / size_of::<__m128i>();
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for piece in 0..count * PIECES {
        // SAFETY: the caller's promise; lines are aligned, and SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.add(piece), _mm_load_si128(from.add(piece))) };
    }
    // Streaming stores are not ordered with others: the word that publishes them must not overtake them.
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
}

/// As [`store`], on machines without streaming stores.
///
/// # Safety
/// As [`store`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn stream(from: *const Line, to: *mut Line, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { store(from, to, count) }
}

/// All slots as bytes.
#[inline]
fn bytes_of(gathered: &mut [Line; GATHERED as usize]) -> &mut [u8] {
    // SAFETY: `Line` is 64 bytes of 64, any of which may have any value.
    unsafe { std::slice::from_raw_parts_mut(gathered.as_mut_ptr().cast(), GATHERED as usize * SLOT) }
}

#[cfg(test)]
mod tests {
    use super::super::ends::ring;
    use super::super::ring::Geometry;

    /// Frames of all lengths, in trains of all lengths, around the end of a small ring many times.
    #[test]
    fn gathered_and_built_in_place_frames_arrive_in_order_and_whole() {
        let geometry = Geometry::new(128, 1024).unwrap();
        let (mut sender, mut receiver) = ring(geometry).unwrap();
        let (mut state, mut sent, mut taken) = (1u64, Vec::new(), 0);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let longest = [60, 124, 252, 253, 1024][random(5) as usize];
            for _ in 0..=random(40) {
                let len = 1 + random(longest) as usize;
                if !sender.reserve(len).unwrap() {
                    break;
                }
                // A reservation may be given up for another.
                let len = if random(10) == 0 { 1 + random(longest) as usize } else { len };
                if !sender.reserve(len).unwrap() {
                    break;
                }
                let frame: Vec<u8> = (0..len).map(|at| (at + sent.len()) as u8 | 1).collect();
                sender.bytes().copy_from_slice(&frame);
                assert_eq!(sender.commit(), len);
                sent.push(frame);
            }
            sender.flush();
            while receiver.receive(|bytes| assert_eq!(bytes, sent[taken])).unwrap().is_some() {
                taken += 1;
            }
            assert_eq!(taken, sent.len(), "all that was flushed is there");
        }
        assert!(sent.len() > 100_000);
    }
}
