//! The grant of a PRISM-TX shard to a client, sent before the first transaction. The caller chooses how it
//! travels.

use remora_nic::Remote;
use serde::{Deserialize, Serialize};

use super::timestamp::{CLIENTS, Timestamp};
use crate::codec::{decode, encode, remote};
use crate::heap::Classes;

/// First letters of the message.
const MAGIC: &[u8; 4] = b"RTX2";

/// The location of a shard's table, and the limits of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Address of the slots. The key also covers cells and buffers.
    #[serde(with = "remote")]
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

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(MAGIC, self)
    }

    /// Decodes the message. Returns `None` if it is malformed or inconsistent.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        decode(MAGIC, bytes).filter(Grant::is_sound)
    }

    /// Returns true if the grant is consistent.
    pub(super) fn is_sound(&self) -> bool {
        self.slot_count > 0
            && (1..=self.slot_count).contains(&self.reach.into())
            && (1..CLIENTS).contains(&self.session)
            && self.session < self.sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Class;
    use remora_memory::Key;

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
