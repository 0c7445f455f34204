//! Doorbells that need no lock: a bitmap in which posting threads set bits and which the thread of a
//! dedicated engine scans.
//!
//! The producer index is already in the ring, so a bit only means that the ring must be checked. Setting a
//! bit is a read-modify-write and thus a full barrier on every relevant machine. So the engine sees either
//! the index that was published before, or the bit.

use remora_memory::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of a set of doorbells, as atomic words.
pub trait DoorbellMemory {
    /// Returns the word `index`; `None` beyond the last.
    fn word(&self, index: usize) -> Option<&AtomicU64>;
}

impl DoorbellMemory for Box<[AtomicU64]> {
    #[inline]
    fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.get(index)
    }
}

/// Memory that another process may share, and write at any time.
impl DoorbellMemory for Bytes {
    #[inline]
    fn word(&self, index: usize) -> Option<&AtomicU64> {
        Bytes::word(self, index * 8)
    }
}

/// A word that tells that the engine sleeps, a summary with one bit per 64 doorbells, and one bit per
/// doorbell.
#[derive(Debug)]
pub struct Doorbells<W = Box<[AtomicU64]>> {
    words: W,
    /// Number of words of the summary, which follow the first word.
    summaries: usize,
    /// Number of words with the doorbells' bits, which follow the summary.
    count: usize,
}

/// Index of the first word of the summary.
const SUMMARY: usize = 1;

/// Returns the numbers of words of the summary, and of the bits, for the indices `0..capacity`.
const fn shape(capacity: usize) -> (usize, usize) {
    let count = capacity.div_ceil(64);
    (count.div_ceil(64), count)
}

impl Doorbells {
    /// Creates doorbells for the indices `0..capacity`, in memory of this process.
    pub fn new(capacity: usize) -> Doorbells {
        let (summaries, count) = shape(capacity);
        let words = (0..SUMMARY + summaries + count).map(|_| AtomicU64::new(0)).collect();
        Doorbells { words, summaries, count }
    }
}

impl Doorbells<Bytes> {
    /// Returns the size in bytes of the memory of doorbells for the indices `0..capacity`.
    pub const fn size(capacity: usize) -> usize {
        let (summaries, count) = shape(capacity);
        (SUMMARY + summaries + count) * 8
    }

    /// Creates doorbells for the indices `0..capacity`, over memory that both sides share. Words beyond the
    /// end of the memory are ignored.
    pub fn over(bytes: Bytes, capacity: usize) -> Doorbells<Bytes> {
        let (summaries, count) = shape(capacity);
        Doorbells { words: bytes, summaries, count }
    }

    /// Returns the memory that both sides share.
    pub fn bytes(&self) -> &Bytes {
        &self.words
    }
}

impl<W: DoorbellMemory> Doorbells<W> {
    /// Rings the doorbell `place`. An index beyond the capacity is ignored.
    #[inline]
    pub fn ring(&self, place: u32) {
        let word = place as usize / 64;
        let bit = place % 64;
        if word >= self.count {
            return;
        }
        let summary = self.words.word(SUMMARY + word / 64);
        let (Some(bits), Some(summary)) = (self.bits(word), summary) else { return };
        // The thread that finds the word empty sets its summary bit. The scan clears the summary bit before
        // the word, so no ring is lost.
        if bits.fetch_or(1 << bit, Ordering::SeqCst) == 0 {
            summary.fetch_or(1 << (word % 64), Ordering::SeqCst);
        }
    }

    #[inline]
    fn bits(&self, word: usize) -> Option<&AtomicU64> {
        self.words.word(SUMMARY + self.summaries + word)
    }

    /// Announces that the engine is about to sleep and must be woken by a ring, or that it is awake.
    pub fn set_asleep(&self, asleep: bool) {
        if let Some(word) = self.words.word(0) {
            word.store(asleep.into(), Ordering::SeqCst);
        }
    }

    /// Returns whether the engine sleeps, so that a thread that has just rung must wake it.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.words.word(0).is_some_and(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Clears all bits that are set, and calls `rung` once for each.
    #[inline]
    pub fn take(&self, mut rung: impl FnMut(u32)) {
        for index in 0..self.summaries {
            let Some(summary) = self.words.word(SUMMARY + index) else { return };
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut words = summary.swap(0, Ordering::SeqCst);
            while words != 0 {
                let word = index * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                // A process that shares the memory may set summary bits of words that do not exist.
                let Some(bits) = self.bits(word).filter(|_| word < self.count) else { continue };
                let mut bits = bits.swap(0, Ordering::SeqCst);
                while bits != 0 {
                    rung(word as u32 * 64 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }

    /// Returns whether any bit is set; for a thread that is about to sleep.
    pub fn any(&self) -> bool {
        let rung =
            |index| self.words.word(SUMMARY + index).is_some_and(|word| word.load(Ordering::SeqCst) != 0);
        (0..self.summaries).any(rung)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn taken<W: DoorbellMemory>(doorbells: &Doorbells<W>) -> Vec<u32> {
        let mut places = Vec::new();
        doorbells.take(|place| places.push(place));
        places
    }

    #[test]
    fn each_place_is_taken_once_and_one_beyond_the_capacity_never() {
        let doorbells = Doorbells::new(10_000);
        for place in [9_999, 0, 63, 64, 4_095, 4_096, 0, 10_111] {
            doorbells.ring(place);
        }
        assert!(doorbells.any());
        assert_eq!(taken(&doorbells), [0, 63, 64, 4_095, 4_096, 9_999]);
        assert!(!doorbells.any());
        assert_eq!(taken(&doorbells), []);
    }

    #[test]
    fn nonsense_in_shared_doorbells_names_no_place_beyond_them() {
        let bytes = Bytes::heap(Doorbells::size(100)).unwrap();
        let ours = Doorbells::over(bytes.clone(), 100);
        let theirs = Doorbells::over(bytes.clone(), 100);
        theirs.ring(99);
        theirs.ring(128);
        assert_eq!(taken(&ours), [99]);
        bytes.write(0, &vec![0xff; bytes.len()]).unwrap();
        let places = taken(&ours);
        assert_eq!((places.len(), places.last()), (128, Some(&127)), "whole words, and no more of them");
        assert!(!ours.any());
        ours.set_asleep(true);
        assert!(theirs.is_asleep());
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        const PLACES: usize = 130;
        const ROUNDS: u64 = 20_000;
        let doorbells = Doorbells::new(PLACES);
        let posted: Vec<AtomicU64> = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let poster = |seed: u64| {
                let doorbells = &doorbells;
                let posted = &posted;
                move || {
                    let mut random = seed;
                    for _ in 0..ROUNDS {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                        let place = (random >> 33) as usize % PLACES;
                        posted[place].fetch_add(1, Ordering::Release);
                        doorbells.ring(place as u32);
                    }
                }
            };
            let posters = [scope.spawn(poster(1)), scope.spawn(poster(2))];
            let scan = scope.spawn(|| {
                // The count of each doorbell that the engine saw when it was rung.
                let mut seen = vec![0; PLACES];
                let look = |seen: &mut Vec<u64>| {
                    doorbells
                        .take(|place| seen[place as usize] = posted[place as usize].load(Ordering::Acquire));
                };
                while !over.load(Ordering::Acquire) {
                    look(&mut seen);
                }
                look(&mut seen);
                seen
            });
            for poster in posters {
                poster.join().unwrap();
            }
            over.store(true, Ordering::Release);
            let seen = scan.join().unwrap();
            let posted: Vec<u64> = posted.iter().map(|count| count.load(Ordering::Acquire)).collect();
            assert_eq!(seen, posted);
        });
    }
}
