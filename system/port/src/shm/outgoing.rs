//! The producer's side of a ring: short frames of a train are gathered in a private buffer and stored
//! together.
//!
//! The consumer was the last to hold a line of the ring. A store to such a line waits for the other core,
//! and later stores cannot overtake it. Between two lines of the ring the NIC stores a hundred other words.
//! That is more than a CPU can hold back, so it would wait for each line separately; for lines that are
//! stored one after the other it waits only once. The consumer, which polls the slot where the train
//! starts, also takes its line away only once. A long train is stored past the caches by streaming stores
//! of x86-64, which write whole lines without waiting for the other core's copies.

use std::cell::Cell;

use super::map::Half;
use super::ring::{Cells, SLOT, WORD, slots_of};

/// Longest frame in bytes that is gathered. Longer frames are built in the ring, because the copy would
/// cost more than it saves.
const LONGEST: u32 = (4 * SLOT - WORD) as u32;
/// Number of slots that can be gathered before they are stored: a longer train is stored in parts.
const GATHERED: u32 = 64;
/// Number of slots from which they are stored past the caches. The consumer then fetches them from further
/// away, but before it needs them, and no core waits for lines to change hands. With two cores under
/// different L3 caches this raised the rate of 64-byte WRITEs by a sixth; under one L3 cache it cost
/// nothing.
const STREAMED: usize = 16;

/// The bytes of a slot, stored as a whole.
#[derive(Copy, Clone, Debug)]
#[repr(C, align(64))]
struct Line([u8; SLOT]);

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) half: Half,
    /// Copies of the ring's slots from `start` on, before they are stored there.
    gathered: Box<[Line; GATHERED as usize]>,
    start: Cell<u32>,
    /// Number of gathered slots.
    count: Cell<u32>,
    /// True while the reserved frame is built in `gathered`.
    staged: Cell<bool>,
    /// Number of frames in the current train.
    frames: u32,
    /// True while frames come one by one. They are then built in the ring, which requests the line earlier.
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

    /// Returns the buffer in which the frame reserved at `slot` is built; `None` if it is built in the
    /// ring.
    #[inline]
    pub(super) fn stage(&mut self, slot: u32, len: u32, in_train: bool) -> Option<&mut [u8]> {
        if !in_train {
            self.start.set(slot);
            self.count.set(0);
            self.alone = self.frames <= 1;
            self.frames = 0;
        }
        let count = self.count.get();
        let follows = slot == self.start.get() + count && (count > 0) == in_train;
        let fits = !self.alone && len.wrapping_sub(1) < LONGEST && count + slots_of(len) <= GATHERED;
        self.staged.set(follows && fits);
        if !(follows && fits) {
            return None;
        }
        let place = count as usize * SLOT + WORD;
        bytes_of(&mut self.gathered).get_mut(place..place + len as usize)
    }

    /// Records that the reserved frame of `len` bytes is complete.
    #[inline]
    pub(super) fn keep(&mut self, len: u32) {
        self.frames += 1;
        if !self.staged.replace(false) {
            return;
        }
        let count = self.count.get();
        if count > 0 {
            self.gathered[count as usize].0[..WORD].copy_from_slice(&len.to_ne_bytes());
        }
        self.count.set(count + slots_of(len));
    }

    /// Stores the gathered slots to the ring; the first word stays 0.
    #[inline]
    fn settle(&self) {
        let count = self.count.replace(0) as usize;
        let source = self.gathered.as_ptr();
        let target = self.half.slot(self.start.get()).cast::<Line>();
        // SAFETY: the slots were reserved one after the other from `start` on, so they lie within the ring
        // and are whole aligned lines. Only this side uses them until the first word is published, and
        // there are at most `GATHERED`.
        unsafe {
            if count >= STREAMED { stream(source, target, count) } else { store(source, target, count) }
        }
    }
}

impl Cells for Outgoing {
    #[inline]
    fn word(&self, slot: u32) -> u32 {
        self.half.word(slot)
    }

    #[inline]
    fn publish(&self, slot: u32, word: u32) {
        let offset = slot.wrapping_sub(self.start.get());
        if offset < self.count.get() {
            if offset > 0 {
                // The word is already in the gathered slots, and is stored with them.
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
/// The lines can be read at `source` and written at `target`, and no other code does so meanwhile.
#[inline]
unsafe fn store(source: *const Line, target: *mut Line, count: usize) {
    for line in 0..count {
        // SAFETY: the caller's promise.
        unsafe { target.add(line).write(source.add(line).read()) };
    }
}

/// Stores `count` lines past the caches. A core that sees a store made after this call also sees the lines.
///
/// # Safety
/// The conditions of [`store`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn stream(source: *const Line, target: *mut Line, count: usize) {
    use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
    const PIECES: usize = SLOT / size_of::<__m128i>();
    let source = source.cast::<__m128i>();
    let target = target.cast::<__m128i>();
    for piece in 0..count * PIECES {
        // SAFETY: the caller's promise; lines are aligned, and SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(target.add(piece), _mm_load_si128(source.add(piece))) };
    }
    // Streaming stores are not ordered with others: the word that publishes them must not overtake them.
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
}

/// Stores `count` lines like [`store`], on machines without streaming stores.
///
/// # Safety
/// The conditions of [`store`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn stream(source: *const Line, target: *mut Line, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { store(source, target, count) }
}

/// Returns all slots as bytes.
#[inline]
fn bytes_of(gathered: &mut [Line; GATHERED as usize]) -> &mut [u8] {
    // SAFETY: `Line` is 64 bytes of 64, any of which may have any value.
    unsafe { std::slice::from_raw_parts_mut(gathered.as_mut_ptr().cast(), GATHERED as usize * SLOT) }
}

#[cfg(test)]
mod tests {
    use super::super::ends::ring;
    use super::super::ring::Geometry;

    /// Frames of all lengths, in trains of all lengths, many times around a small ring.
    #[test]
    fn gathered_and_built_in_place_frames_arrive_in_order_and_whole() {
        let geometry = Geometry::new(128, 1024).unwrap();
        let (mut sender, mut receiver) = ring(geometry).unwrap();
        let mut state = 1u64;
        let mut sent = Vec::new();
        let mut taken = 0;
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
                // A reservation may be abandoned in favour of another one.
                let len = if random(10) == 0 { 1 + random(longest) as usize } else { len };
                if !sender.reserve(len).unwrap() {
                    break;
                }
                let frame: Vec<u8> = (0..len).map(|index| (index + sent.len()) as u8 | 1).collect();
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
