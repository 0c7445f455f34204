//! Doorbells that need no lock: a bitmap that posting threads set and the thread of a dedicated engine scans.
//!
//! The producer index already lives in the ring, so a bit says only "look". Setting it is a read-modify-write and thus a
//! full barrier on every machine that matters here: the engine either sees the index that was published before, or the bit.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit per queue pair, and one bit per 64 of them.
#[derive(Debug)]
pub struct Doorbells {
    bits: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl Doorbells {
    /// For places `0..capacity`.
    pub fn new(capacity: usize) -> Doorbells {
        let words = capacity.div_ceil(64);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Doorbells { bits: zeros(words), summary: zeros(words.div_ceil(64)) }
    }

    /// Rings for `place`. A place beyond the capacity is ignored.
    #[inline]
    pub fn ring(&self, place: u32) {
        let (word, bit) = (place as usize / 64, place % 64);
        let Some(bits) = self.bits.get(word) else { return };
        // Whoever finds the word empty announces it; the scan takes the announcement before the word, so none is lost.
        if bits.fetch_or(1 << bit, Ordering::SeqCst) == 0 {
            self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::SeqCst);
        }
    }

    /// Takes all bits that are set, each once.
    #[inline]
    pub fn take(&self, mut rung: impl FnMut(u32)) {
        for (at, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut words = summary.swap(0, Ordering::SeqCst);
            while words != 0 {
                let word = at * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bits = self.bits[word].swap(0, Ordering::SeqCst);
                while bits != 0 {
                    rung(word as u32 * 64 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }

    /// Is any bit set? For a thread about to sleep.
    pub fn any(&self) -> bool {
        self.summary.iter().any(|summary| summary.load(Ordering::SeqCst) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn taken(doorbells: &Doorbells) -> Vec<u32> {
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
    fn no_ring_is_lost_between_threads() {
        const PLACES: usize = 130;
        const ROUNDS: u64 = 20_000;
        let doorbells = Doorbells::new(PLACES);
        let posted: Vec<AtomicU64> = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let poster = |seed: u64| {
                let (doorbells, posted) = (&doorbells, &posted);
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
                // What the engine has seen of each place when it looked because of a bell.
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
