//! What a shard tells a client before the first transaction. How it travels is the caller's business.

use memory::Key;
use nic::Remote;

use super::layout::{ENTRIES, HOLDERS};
use crate::words::{u32_at, u64_at};

/// First word: "FTX1", little-endian.
const MAGIC: u32 = u32::from_le_bytes(*b"FTX1");
const LEN: usize = 64;

/// What a shard grants to a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slots, under the key of slots, marks and logs.
    pub slots: Remote,
    /// How many slots.
    pub slot_count: u64,
    /// The client's marks, one for each place in its window.
    pub marks: u64,
    /// Its log.
    pub log: u64,
    /// Bytes of key and value together, at most.
    pub room: u32,
    /// Places that it has marks for.
    pub window: u32,
    /// Keys of each that it has a log for.
    pub max_keys: u32,
    /// Its number in the locks of this shard.
    pub holder: u32,
    /// Slots that a key may be away from where its hash leads.
    pub reach: u32,
}

impl Grant {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.slots.rkey.get().to_le_bytes());
        for word in [self.slots.addr, self.slot_count, self.marks, self.log] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.room, self.window, self.max_keys, self.holder, self.reach, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads the message; None if it is not one, or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let grant = Grant {
            slots: Remote { addr: u64_at(bytes, 8), rkey: Key::new(u32_at(bytes, 4)) },
            slot_count: u64_at(bytes, 16),
            marks: u64_at(bytes, 24),
            log: u64_at(bytes, 32),
            room: u32_at(bytes, 40),
            window: u32_at(bytes, 44),
            max_keys: u32_at(bytes, 48),
            holder: u32_at(bytes, 52),
            reach: u32_at(bytes, 56),
        };
        (grant.is_sound() && u32_at(bytes, 0) == MAGIC).then_some(grant)
    }

    /// Does it not contradict itself?
    pub(super) fn is_sound(&self) -> bool {
        let entries = u64::from(self.window) * u64::from(self.max_keys);
        (1..1 << 32).contains(&self.slot_count)
            && (1..=self.slot_count).contains(&self.reach.into())
            && (1..HOLDERS).contains(&self.holder)
            && (1..=u64::from(ENTRIES)).contains(&entries)
            && self.room <= 1 << 22
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_went_and_nothing_else_does() {
        let grant = Grant {
            slots: Remote { addr: 0x4000, rkey: Key::new(9) },
            slot_count: 100,
            marks: 0x9000,
            log: 0xa000,
            room: 600,
            window: 16,
            max_keys: 8,
            holder: 3,
            reach: 7,
        };
        let bytes = grant.encode();
        assert_eq!(Grant::decode(&bytes), Some(grant));
        assert!((0..bytes.len()).all(|len| Grant::decode(&bytes[..len]).is_none()));
        for wrong in [
            Grant { holder: 0, ..grant },
            Grant { reach: 101, ..grant },
            Grant { slot_count: 0, reach: 0, ..grant },
            Grant { max_keys: 257, ..grant },
            Grant { room: u32::MAX, ..grant },
        ] {
            assert_eq!(Grant::decode(&wrong.encode()), None);
        }
    }
}
