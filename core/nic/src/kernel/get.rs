//! The GET kernel (StRoM paper, §5.2): reads a slot of a hash table, then the value that the matching bucket
//! points to.
//!
//! The paper assumes that one of the three keys matches, and would return the first bucket's value otherwise;
//! here the answer is a miss.

use remora_wire::strom::Status;

use super::number::{long, word};
use super::{Kernel, Progress, Streams, What};

/// Number of buckets of a slot.
pub(crate) const BUCKETS: usize = 3;

/// A slot of the table: three buckets in 64 bytes. All numbers are little-endian.
///
/// ```text
///  0 keys (3 × 8)   24 addresses of values (3 × 8)   48 lengths of values (3 × 4)   60 0
/// ```
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Keys. A bucket is empty if the address of its value is 0.
    pub keys: [u64; BUCKETS],
    /// Addresses of the values.
    pub values: [u64; BUCKETS],
    /// Lengths of the values in bytes.
    pub lens: [u32; BUCKETS],
}

impl Slot {
    /// Size of a slot in bytes.
    pub const LEN: usize = 64;

    /// Returns the encoded slot.
    pub fn emit(&self) -> [u8; Slot::LEN] {
        let mut bytes = [0; Slot::LEN];
        for bucket in 0..BUCKETS {
            bytes[8 * bucket..][..8].copy_from_slice(&self.keys[bucket].to_le_bytes());
            bytes[24 + 8 * bucket..][..8].copy_from_slice(&self.values[bucket].to_le_bytes());
            bytes[48 + 4 * bucket..][..4].copy_from_slice(&self.lens[bucket].to_le_bytes());
        }
        bytes
    }

    /// Parses a slot; `None` if `bytes` has another length.
    pub fn parse(bytes: &[u8]) -> Option<Slot> {
        let mut slot = Slot::default();
        for bucket in 0..BUCKETS {
            slot.keys[bucket] = long(bytes, 8 * bucket)?;
            slot.values[bucket] = long(bytes, 24 + 8 * bucket)?;
            slot.lens[bucket] = word(bytes, 48 + 4 * bucket)?;
        }
        Some(slot)
    }

    /// Returns address and length of the value of a key; `None` if the slot does not contain the key.
    pub fn find(&self, key: u64) -> Option<(u64, u32)> {
        let bucket = (0..BUCKETS).find(|bucket| self.values[*bucket] != 0 && self.keys[*bucket] == key)?;
        Some((self.values[bucket], self.lens[bucket]))
    }
}

/// Parameters of a GET: 16 bytes, little-endian.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Address of the slot that the key belongs to.
    pub slot: u64,
    /// Key whose value the kernel returns.
    pub key: u64,
}

impl Lookup {
    /// Returns the encoded parameters.
    pub fn emit(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Parses the parameters; `None` if they have another length.
    pub fn parse(bytes: &[u8]) -> Option<Lookup> {
        (bytes.len() == 16).then_some(())?;
        Some(Lookup { slot: long(bytes, 0)?, key: long(bytes, 8)? })
    }
}

/// The GET kernel.
#[derive(Copy, Clone, Debug, Default)]
pub struct Get {
    /// The key of the current request, while its slot is being read.
    key: Option<u64>,
}

impl Kernel for Get {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(key) = self.key.take() {
            match streams.data().and_then(Slot::parse).and_then(|slot| slot.find(key)) {
                None => {
                    streams.answer(Status::MISS, 0);
                }
                Some((value, len)) => {
                    if streams.answer(Status::DONE, len) {
                        streams.read_to_wire(value, len);
                    }
                }
            }
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        match (input.what, Lookup::parse(input.bytes)) {
            (What::Params, Some(lookup)) => {
                self.key = Some(lookup.key);
                streams.read(lookup.slot, Slot::LEN as u32);
            }
            (What::Params, None) => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            // The kernel accepts no data.
            _ if input.last => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            _ => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {
        self.key = None;
    }

    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        let Lookup { slot, key } = Lookup::parse(params)?;
        match seen {
            None => Some((slot, Slot::LEN as u32)),
            Some(seen) => Slot::parse(seen)?.find(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_will_read_the_slot_and_then_the_value_of_the_key() {
        let ask = |key| Get::default().prefetch_hint(&Lookup { slot: 640, key }.emit(), None);
        assert_eq!((ask(5), Get::default().prefetch_hint(&[0; 15], None)), (Some((640, 64)), None));
        let slot = Slot { keys: [4, 5, 6], values: [100, 200, 0], lens: [10, 20, 30] }.emit();
        let then = |key| Get::default().prefetch_hint(&Lookup { slot: 640, key }.emit(), Some(&slot));
        assert_eq!([4, 5, 6, 7].map(then), [Some((100, 10)), Some((200, 20)), None, None]);
    }
}
