//! The ring protocol over plain memory, compared with a plain queue, and with peers that break it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use remora_fault::Random;

use super::*;

/// Memory in which payload overwrites words, as in the mapped ring.
struct Memory {
    bytes: RefCell<Vec<u8>>,
    credit: Cell<u32>,
}

impl Memory {
    fn new(geometry: Geometry) -> Memory {
        Memory { bytes: RefCell::new(vec![0; geometry.slots() as usize * SLOT]), credit: Cell::new(0) }
    }

    fn set(&self, slot: u32, word: u32) {
        let offset = slot as usize * SLOT;
        self.bytes.borrow_mut()[offset..offset + WORD].copy_from_slice(&word.to_ne_bytes());
    }

    fn write(&self, slot: u32, frame: &[u8]) {
        let offset = slot as usize * SLOT + WORD;
        self.bytes.borrow_mut()[offset..offset + frame.len()].copy_from_slice(frame);
    }

    fn read(&self, frame: Found) -> Vec<u8> {
        let offset = frame.slot as usize * SLOT + WORD;
        self.bytes.borrow()[offset..offset + frame.len as usize].to_vec()
    }
}

impl Cells for Memory {
    fn word(&self, slot: u32) -> u32 {
        let offset = slot as usize * SLOT;
        u32::from_ne_bytes(self.bytes.borrow()[offset..offset + WORD].try_into().unwrap())
    }
    fn publish(&self, slot: u32, word: u32) {
        self.set(slot, word);
    }
    fn clear(&self, slot: u32) {
        self.set(slot, 0);
    }
    fn credit(&self) -> u32 {
        self.credit.get()
    }
    fn return_credit(&self, position: u32) {
        self.credit.set(position);
    }
}

fn below(random: &mut Random, bound: u32) -> u32 {
    random.below(bound.into()) as u32
}

#[test]
fn geometry_is_refused_out_of_bounds_and_where_a_ring_could_stop() {
    assert!(Geometry::new(4096, 4284).is_some());
    assert!(Geometry::new(256, 4284).is_some(), "4 KiB frames fit the smallest ring of the design");
    assert!(Geometry::new(128, 4284).is_none(), "two of these frames exceed three quarters of the ring");
    assert!(Geometry::new(16, 6 * 64 - 4).is_some());
    assert!(Geometry::new(16, 6 * 64 - 3).is_none());
    assert!(Geometry::new(8, 60).is_none());
    assert!(Geometry::new(100, 60).is_none(), "not a power of two");
    assert!(Geometry::new(1 << 21, 60).is_none());
    assert!(Geometry::new(1 << 20, Geometry::MAX_FRAME).is_some());
    assert!(Geometry::new(1 << 20, Geometry::MAX_FRAME + 1).is_none());
    assert!(Geometry::new(16, 0).is_none());
    assert!(Geometry::new(0, 1).is_none());
}

#[test]
fn a_read_request_is_one_line_and_a_64_byte_write_two() {
    assert_eq!((slots_of(1), slots_of(60), slots_of(61), slots_of(124), slots_of(125)), (1, 1, 2, 2, 3));
    assert_eq!(slots_of(4096 + 28 + 12 + 16 + 4), 65);
}

/// Compares a ring with a `VecDeque` on random frames. Most payload bytes are ones that look like words.
fn against_a_queue(seed: u64, slots: u32, largest: u32, steps: u32) {
    let geometry = Geometry::new(slots, largest).unwrap();
    let memory = Memory::new(geometry);
    let mut random = Random::new(seed);
    let mut producer = Producer::new(geometry);
    let mut consumer = Consumer::new(geometry);
    let mut queue = VecDeque::new();
    let mut full = 0;
    let mut wrapped = 0;
    for step in 0..steps {
        // Phases of filling and of draining, so that the ring becomes full and empty.
        let filling = step % 256 < 128;
        if below(&mut random, 4) < if filling { 3 } else { 1 } {
            let len = 1 + below(&mut random, largest);
            let byte = [0u8, 1, 60, 255][below(&mut random, 4) as usize];
            let frame = vec![byte; len as usize];
            if producer.reserve(&memory, len).unwrap() {
                let (slot, reserved) = producer.reserved();
                assert_eq!(reserved, len);
                memory.write(slot, &frame);
                if below(&mut random, 8) == 0 {
                    continue; // abandoned: the next reservation replaces it
                }
                wrapped += u32::from(producer.head() / slots != (producer.head() + slots_of(len)) / slots);
                producer.commit(&memory);
                queue.push_back(frame);
                if below(&mut random, 3) == 0 {
                    producer.publish(&memory);
                }
            } else {
                full += 1;
                if queue.is_empty() {
                    assert_eq!(consumer.peek(&memory), Ok(None));
                    assert_eq!(
                        producer.reserve(&memory, len),
                        Ok(true),
                        "an empty ring has space for any frame"
                    );
                }
            }
        } else {
            match consumer.peek(&memory).unwrap() {
                Some(frame) => {
                    assert_eq!(Some(memory.read(frame)), queue.pop_front());
                    consumer.release(frame);
                }
                None => {
                    let unseen: u32 = queue.iter().map(|frame| slots_of(frame.len() as u32)).sum();
                    assert!(unseen < LONGEST_TRAIN, "a published frame is found");
                    producer.publish(&memory);
                    let frame = consumer.peek(&memory).unwrap();
                    assert_eq!(frame.is_some(), !queue.is_empty(), "published frames are visible");
                }
            }
        }
    }
    assert!(full > 0 && wrapped > 0, "the case that matters came up: {full} full, {wrapped} wrapped");
}

#[test]
fn random_frames_come_out_as_from_a_queue() {
    for seed in 0..200 {
        against_a_queue(seed, 16, 6 * 64 - 4, 4000);
        against_a_queue(seed, 32, 60, 4000);
        against_a_queue(seed, 64, 24 * 64 - 4, 4000);
    }
}

#[test]
fn positions_wrap_modulo_2_to_the_32() {
    let geometry = Geometry::new(16, 380).unwrap();
    let memory = Memory::new(geometry);
    let start = (u32::MAX - 40) & !15;
    memory.credit.set(start);
    let mut producer = Producer { geometry, head: start, credit: start, ..Producer::new(geometry) };
    let mut consumer = Consumer { geometry, tail: start, unclean: 0, returned: start };
    for round in 0..100u32 {
        let len = 1 + round * 37 % 380;
        assert!(producer.reserve(&memory, len).unwrap());
        memory.write(producer.reserved().0, &vec![round as u8; len as usize]);
        producer.commit(&memory);
        producer.publish(&memory);
        let frame = consumer.peek(&memory).unwrap().unwrap();
        assert_eq!(memory.read(frame), vec![round as u8; len as usize]);
        consumer.release(frame);
    }
    assert!(producer.head() < start, "the ring has wrapped");
}

#[test]
fn a_full_ring_refuses_and_recovers() {
    let geometry = Geometry::new(16, 60).unwrap();
    let memory = Memory::new(geometry);
    let mut producer = Producer::new(geometry);
    let mut consumer = Consumer::new(geometry);
    for _ in 0..16 {
        assert_eq!(producer.reserve(&memory, 60), Ok(true));
        producer.commit(&memory);
    }
    assert_eq!(consumer.peek(&memory), Ok(None), "nothing is published yet");
    for taken in 0..4 {
        assert_eq!(
            producer.reserve(&memory, 60),
            Ok(false),
            "credit comes by the quarter ring, not at {taken}"
        );
        let frame = consumer.peek(&memory).unwrap().expect("a refusal publishes");
        consumer.release(frame);
    }
    assert_eq!(producer.reserve(&memory, 60), Ok(false), "slots become free only after they are cleared");
    assert!(consumer.peek(&memory).unwrap().is_some());
    for _ in 0..4 {
        assert_eq!(producer.reserve(&memory, 60), Ok(true));
        producer.commit(&memory);
    }
    assert_eq!(producer.reserve(&memory, 60), Ok(false));
}

#[test]
fn a_train_is_seen_when_it_is_published_and_says_how_long_it_is() {
    let geometry = Geometry::new(256, 380).unwrap();
    let memory = Memory::new(geometry);
    let mut producer = Producer::new(geometry);
    let mut consumer = Consumer::new(geometry);
    for len in [60, 124, 380] {
        assert_eq!(producer.reserve(&memory, len), Ok(true));
        producer.commit(&memory);
        assert_eq!(consumer.peek(&memory), Ok(None));
    }
    producer.publish(&memory);
    for (slot, len, following) in [(0, 60, 8), (1, 124, 0), (3, 380, 0)] {
        let frame = consumer.peek(&memory).unwrap().unwrap();
        assert_eq!(frame, Found { slot, len, following });
        consumer.release(frame);
    }
    assert_eq!(consumer.peek(&memory), Ok(None));
    // A train that grows too long is published without a flush.
    for committed in 1..=LONGEST_TRAIN {
        assert_eq!(producer.reserve(&memory, 60), Ok(true));
        producer.commit(&memory);
        assert_eq!(consumer.peek(&memory).unwrap().is_some(), committed == LONGEST_TRAIN);
    }
}

#[test]
fn publishing_without_a_reservation_does_nothing() {
    let geometry = Geometry::new(16, 60).unwrap();
    let memory = Memory::new(geometry);
    let mut producer = Producer::new(geometry);
    let mut consumer = Consumer::new(geometry);
    producer.commit(&memory);
    producer.publish(&memory);
    assert_eq!((producer.head(), producer.reserved().1), (0, 0));
    assert_eq!(consumer.peek(&memory), Ok(None));
}

#[test]
fn a_word_that_makes_no_sense_is_broken() {
    let geometry = Geometry::new(16, 380).unwrap();
    for word in [381, 381 | 5 << 16, 65_535, 65_536, 1 << 31, u32::MAX - 1, SKIP] {
        let memory = Memory::new(geometry);
        memory.set(0, word);
        assert_eq!(Consumer::new(geometry).peek(&memory), Err(Broken), "{word:#x} at slot 0");
    }
    // A frame that would run over the end of the ring.
    let memory = Memory::new(geometry);
    memory.set(14, 125);
    let mut consumer = Consumer { geometry, tail: 14, unclean: 0, returned: 14 };
    assert_eq!(consumer.peek(&memory), Err(Broken));
    // A skip leads to slot 0; a second skip there would lead nowhere.
    let memory = Memory::new(geometry);
    memory.set(14, SKIP);
    memory.set(0, SKIP);
    let mut consumer = Consumer { geometry, tail: 14, unclean: 0, returned: 14 };
    assert_eq!(consumer.peek(&memory), Err(Broken));
}

#[test]
fn credit_that_moves_back_or_past_what_was_published_is_broken() {
    let geometry = Geometry::new(16, 60).unwrap();
    for credit in [5, 17, 1 << 31, u32::MAX, 7] {
        let memory = Memory::new(geometry);
        let mut producer = Producer { geometry, head: 16, credit: 6, ..Producer::new(geometry) };
        memory.credit.set(credit);
        for _ in 0..6 {
            assert_eq!(producer.reserve(&memory, 60), Ok(true));
            producer.commit(&memory);
        }
        // head is 22 now, so the credits 17 and 7 are possible and the others are not.
        let expected = if credit == 17 || credit == 7 { Ok(true) } else { Err(Broken) };
        assert_eq!(producer.reserve(&memory, 60), expected, "credit {credit:#x}");
    }
}

#[test]
fn no_words_and_no_credit_lead_out_of_the_ring() {
    let geometry = Geometry::new(16, 380).unwrap();
    let mut random = Random::new(7);
    let mut frames = 0;
    let mut broken = 0;
    for _ in 0..20_000 {
        let memory = Memory::new(geometry);
        for slot in 0..16 {
            let wild =
                [0, SKIP, below(&mut random, 512) | below(&mut random, 99) << 16, random.bits() as u32]
                    [below(&mut random, 4) as usize];
            memory.set(slot, wild);
        }
        memory.credit.set(below(&mut random, 64));
        let mut producer = Producer::new(geometry);
        let mut consumer = Consumer::new(geometry);
        for _ in 0..40 {
            match consumer.peek(&memory) {
                Ok(Some(frame)) => {
                    assert_eq!(memory.read(frame).len(), frame.len as usize);
                    consumer.release(frame);
                    frames += 1;
                }
                Ok(None) => break,
                Err(Broken) => {
                    broken += 1;
                    break;
                }
            }
            memory.credit.set(below(&mut random, 64));
            let len = 1 + below(&mut random, 380);
            if producer.reserve(&memory, len) == Ok(true) {
                memory.write(producer.reserved().0, &vec![random.bits() as u8; len as usize]);
                producer.commit(&memory);
                if below(&mut random, 2) == 0 {
                    producer.publish(&memory);
                }
            }
        }
    }
    assert!(frames > 1000 && broken > 1000, "{frames} frames, {broken} broken");
}
