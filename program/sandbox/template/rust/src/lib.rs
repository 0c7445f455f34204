//! An example kernel: the hash-table GET of the StRoM paper's section 5.
//!
//! A slot of the hash table has three buckets in 64 bytes: keys (3 × 8), addresses of values (3 × 8), and
//! their lengths (3 × 4). Parameters: address of the slot (8 bytes) and key (8 bytes).

pub mod strom;

use strom::{Kernel, Progress, Streams, What};

const BUCKETS: usize = 3;
const SLOT: usize = 64;

/// The kernel's state: the key for which a slot is being read.
struct Get(Option<u64>);

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns address and length of the value of a key.
fn find(slot: &[u8], key: u64) -> Option<(u64, u32)> {
    (0..BUCKETS).find_map(|bucket| {
        let value = long(slot, 24 + 8 * bucket)?;
        let len = slot.get(48 + 4 * bucket..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        (value != 0 && long(slot, 8 * bucket)? == key).then_some((value, len))
    })
}

impl Kernel for Get {
    fn step(&mut self, streams: &mut Streams) -> Progress {
        if let Some(key) = self.0.take() {
            match streams.data().and_then(|slot| find(slot, key)) {
                None => {
                    streams.answer(strom::MISS, 0);
                }
                Some((value, len)) => {
                    if streams.answer(strom::DONE, len) {
                        streams.read_to_wire(value, len);
                    }
                }
            }
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        let asked = (input.what == What::Params && input.bytes.len() == 16)
            .then(|| Some((long(input.bytes, 0)?, long(input.bytes, 8)?)))
            .flatten();
        let ends = input.last;
        streams.take();
        match asked {
            Some((slot, key)) => {
                self.0 = Some(key);
                streams.read(slot, SLOT as u32);
            }
            None if ends => {
                streams.answer(strom::BAD_PARAMS, 0);
            }
            None => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {
        self.0 = None;
    }
}

kernel!(Get, Get(None));
