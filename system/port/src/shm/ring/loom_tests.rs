//! The ring's publish and credit protocol under loom: all interleavings (up to its bound) of a producer and
//! a consumer. The payload cells report any access that the protocol does not order.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::*;

const SLOTS: u32 = 16;

struct Memory {
    words: Vec<AtomicU32>,
    payload: Vec<UnsafeCell<u32>>,
    credit: AtomicU32,
}

// SAFETY: loom checks here that only one side at a time accesses the payload cells.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Memory {
        Memory {
            words: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            payload: (0..SLOTS).map(|_| UnsafeCell::new(0)).collect(),
            credit: AtomicU32::new(0),
        }
    }

    /// Writes the frame's slots, with words inside the payload that look like frames: a reader must never
    /// meet them.
    fn fill(&self, slot: u32, len: u32, value: u32) {
        for index in slot..slot + slots_of(len) {
            if index != slot {
                self.words[index as usize].store(1, Ordering::Relaxed);
            }
            // SAFETY: checked by loom.
            self.payload[index as usize].with_mut(|cell| unsafe { *cell = value });
        }
    }

    fn check(&self, frame: Found, value: u32) {
        for index in frame.slot..frame.slot + slots_of(frame.len) {
            // SAFETY: checked by loom.
            let got = self.payload[index as usize].with(|cell| unsafe { *cell });
            assert_eq!(got, value);
        }
    }
}

impl Cells for Memory {
    fn word(&self, slot: u32) -> u32 {
        self.words[slot as usize].load(Ordering::Acquire)
    }
    fn publish(&self, slot: u32, word: u32) {
        self.words[slot as usize].store(word, Ordering::Release);
    }
    fn clear(&self, slot: u32) {
        self.words[slot as usize].store(0, Ordering::Relaxed);
    }
    fn credit(&self) -> u32 {
        self.credit.load(Ordering::Acquire)
    }
    fn return_credit(&self, position: u32) {
        self.credit.store(position, Ordering::Release);
    }
}

/// Sends frames of these lengths through a ring of 16 slots.
fn frames_arrive_whole(lens: &'static [u32]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let geometry = Geometry::new(SLOTS, 380).expect("within bounds");
        let memory = Arc::new(Memory::new());
        let theirs = Arc::clone(&memory);
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(geometry);
            for (value, &len) in (1..).zip(lens) {
                while !producer.reserve(&*theirs, len).expect("a sound ring") {
                    thread::yield_now();
                }
                let (slot, len) = producer.reserved();
                theirs.fill(slot, len, value);
                producer.commit(&*theirs);
                if value % 2 == 0 || lens.len() == value as usize {
                    producer.publish(&*theirs);
                }
            }
        });
        let mut consumer = Consumer::new(geometry);
        for (value, &len) in (1..).zip(lens) {
            let frame = loop {
                match consumer.peek(&*memory).expect("a sound ring") {
                    Some(frame) => break frame,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(frame.len, len);
            memory.check(frame, value);
            consumer.release(frame);
        }
        assert_eq!(consumer.peek(&*memory), Ok(None));
        producer.join().expect("the producer");
    });
}

#[test]
fn a_first_frame_is_seen_whole() {
    frames_arrive_whole(&[60, 200]);
}

#[test]
fn frames_reuse_slots_only_after_credit() {
    // Each frame takes 6 slots: the third does not fit before the end, so it skips to slot 0 and waits for
    // credit.
    frames_arrive_whole(&[380, 380, 380, 380]);
}

#[test]
fn old_payload_is_never_taken_for_a_word() {
    // In the second lap a train begins at slot 3, where the first lap had payload.
    frames_arrive_whole(&[124, 380, 380, 124, 124, 60, 60]);
}
