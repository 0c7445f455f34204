//! The grant of a PRISM-TX shard to a client, sent before the first transaction. The caller chooses how it
//! travels.

use remora_memory::Key;
use remora_nic::Remote;

use super::timestamp::{CLIENTS, Timestamp};
use crate::heap::Classes;
use crate::words::{u32_at, u64_at};

/// First word of the message: "RTX1", little-endian.
const MAGIC: u32 = u32::from_le_bytes(*b"RTX1");

/// Bytes before the classes.
const FRONT: usize = 60;

/// The location of a shard's table, and the limits of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Address of the slots. The key also covers cells and buffers.
    pub slots: Remote,
    /// Number of slots.
    pub slot_count: u64,
    /// Address of the first decision cell.
    pub cells: u64,
    /// Number of cells per session.
    pub window: u32,
    /// Number of sessions for which there are cells.
    pub sessions: u32,
    /// The client's number. Only the number of the first shard is used.
    pub session: u32,
    /// Lower bound, exclusive, of the client's timestamps.
    pub after: Timestamp,
    /// Maximum distance, in slots, of a key from its home slot.
    pub reach: u32,
    /// The size classes of the buffers.
    pub classes: Classes,
}

impl Grant {
    /// Returns the index of the slot at distance `further` from the home slot of a hash. The last slot is
    /// followed by the first.
    #[inline]
    pub fn place(&self, hash: u64, further: u32) -> u64 {
        let place = hash + u64::from(further);
        if place < self.slot_count { place } else { place % self.slot_count }
    }

    /// Encodes the message, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRONT + self.classes.encoded_len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.slots.rkey.get().to_le_bytes());
        for word in [self.slots.addr, self.slot_count, self.cells, self.after.word()] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.window, self.sessions, self.session, self.reach, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.classes.encode(&mut out);
        out
    }

    /// Decodes the message. Returns `None` if it is malformed or inconsistent.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        let front = bytes.get(..FRONT)?;
        let grant = Grant {
            slots: Remote { addr: u64_at(front, 8), rkey: Key::new(u32_at(front, 4)) },
            slot_count: u64_at(front, 16),
            cells: u64_at(front, 24),
            after: Timestamp::of(u64_at(front, 32)),
            window: u32_at(front, 40),
            sessions: u32_at(front, 44),
            session: u32_at(front, 48),
            reach: u32_at(front, 52),
            classes: Classes::decode(&bytes[FRONT..])?,
        };
        let sound = grant.slot_count > 0
            && (1..=grant.slot_count).contains(&grant.reach.into())
            && (1..CLIENTS).contains(&grant.session)
            && grant.session < grant.sessions;
        (sound && u32_at(front, 0) == MAGIC).then_some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Class;

    #[test]
    fn it_comes_back_as_it_went_and_nothing_else_does() {
        let grant = Grant {
            slots: Remote { addr: 0x4000, rkey: Key::new(9) },
            slot_count: 100,
            cells: 0x9000,
            window: 16,
            sessions: 50,
            session: 3,
            after: Timestamp::new(5, 3),
            reach: 7,
            classes: Classes::new(vec![Class { list: 1, base: 64, size: 64, count: 2 }]).unwrap(),
        };
        let bytes = grant.encode();
        assert_eq!(Grant::decode(&bytes), Some(grant.clone()));
        assert!((0..bytes.len()).all(|len| Grant::decode(&bytes[..len]).is_none()));
        for wrong in [
            Grant { session: 0, ..grant.clone() },
            Grant { session: 50, ..grant.clone() },
            Grant { reach: 101, ..grant.clone() },
            Grant { slot_count: 0, reach: 0, ..grant },
        ] {
            assert_eq!(Grant::decode(&wrong.encode()), None);
        }
    }
}
