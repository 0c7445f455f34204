//! The reader: which entry or object to READ next.

use super::entry::{ENTRY, PilafEntry};
use crate::kv::checksum::crc64;
use crate::kv::hash::choice;
use crate::kv::lookup::{Lookup, MOST_TRIES, Read, Reads, Step};
use crate::kv::session::{Design, Grant};
use remora_nic::Remote;

/// Ways of a key: entries that may hold it.
pub(crate) const WAYS: usize = 3;

/// What a client knows of a Pilaf server.
#[derive(Copy, Clone, Debug)]
pub struct Pilaf {
    index: Remote,
    index_len: u64,
    extents: Remote,
    buffer_len: usize,
}

/// The state of one GET.
#[derive(Copy, Clone, Debug, Default)]
pub struct Progress {
    hash: u64,
    phase: Phase,
    tries: u32,
    /// Versions of the entries that were seen not to hold the key.
    seen: [u64; WAYS],
    /// The entry whose object is being read.
    entry: PilafEntry,
}

#[derive(Copy, Clone, Debug, Default)]
enum Phase {
    /// Reading the entry of this way.
    #[default]
    First,
    Probe(u8),
    /// Reading the object of this way's entry.
    Object(u8),
    /// All ways were read and none has the key: reads all of them once more in one round trip.
    Confirm,
}

impl Lookup for Pilaf {
    type Progress = Progress;
    const DESIGN: Design = Design::Pilaf;

    fn new(grant: &Grant, buffer_len: usize) -> Pilaf {
        Pilaf { index: grant.index, index_len: grant.index_len.max(1), extents: grant.extents, buffer_len }
    }

    fn landing_len(max_key: usize, max_value: usize) -> usize {
        (max_key + max_value).max(WAYS * ENTRY)
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        Some((ENTRY, (key_len + value_len).max(1)))
    }

    #[inline]
    fn begin(&self, progress: &mut Progress, hash: u64) -> Step {
        progress.hash = hash;
        self.probe(progress, 0)
    }

    #[inline]
    fn advance(&self, progress: &mut Progress, key: &[u8], landed: &mut [u8]) -> Step {
        match progress.phase {
            Phase::First => self.probe(progress, 0),
            Phase::Probe(way) => match PilafEntry::parse(landed) {
                Some(entry) => self.judge(progress, way, entry, key.len()),
                None => self.retry(progress, way),
            },
            Phase::Object(way) => self.verify(progress, way, key, landed),
            Phase::Confirm => self.confirm(progress, landed),
        }
    }

    fn tries(progress: &Progress) -> u32 {
        progress.tries
    }
}

impl Pilaf {
    fn entry_at(&self, hash: u64, way: usize) -> Remote {
        let offset = choice(hash, way, self.index_len) * ENTRY as u64;
        Remote { addr: self.index.addr.wrapping_add(offset), rkey: self.index.rkey }
    }

    fn probe(&self, progress: &mut Progress, way: u8) -> Step {
        progress.phase = Phase::Probe(way);
        Step::Read(Reads::one(self.entry_at(progress.hash, way.into()), ENTRY as u32))
    }

    /// The entry or its object changed during the read: reads the entry once more.
    fn retry(&self, progress: &mut Progress, way: u8) -> Step {
        progress.tries += 1;
        if progress.tries >= MOST_TRIES {
            return Step::Contended;
        }
        self.probe(progress, way)
    }

    /// A whole entry: is it the key's?
    fn judge(&self, progress: &mut Progress, way: u8, entry: PilafEntry, key_len: usize) -> Step {
        if !entry.is_taken() || entry.hash != progress.hash || entry.key_len as usize != key_len {
            return self.next_way(progress, way, entry.version);
        }
        let len = entry.object_len();
        if len > self.buffer_len {
            return Step::TooLong { len };
        }
        progress.entry = entry;
        progress.phase = Phase::Object(way);
        // Never zero bytes: some NICs take that for 2 GiB.
        Step::Read(Reads::one(Remote { addr: entry.address, rkey: self.extents.rkey }, len.max(1) as u32))
    }

    /// This way does not have the key.
    fn next_way(&self, progress: &mut Progress, way: u8, version: u64) -> Step {
        progress.seen[usize::from(way)] = version;
        if usize::from(way) + 1 < WAYS {
            return self.probe(progress, way + 1);
        }
        // During the lookup the key may have moved from a way not yet read to one already read. If all
        // entries are the same when they are read once more, no entry had the key at the moment between the
        // two reads.
        progress.phase = Phase::Confirm;
        let read = |way| Read { remote: self.entry_at(progress.hash, way), len: ENTRY as u32 };
        Step::Read(Reads::three(core::array::from_fn(read)))
    }

    fn verify(&self, progress: &mut Progress, way: u8, key: &[u8], landed: &[u8]) -> Step {
        let Some(landed) = landed.get(..progress.entry.object_len()) else {
            return self.retry(progress, way);
        };
        if crc64(landed) != progress.entry.object_crc {
            // Overwritten since the entry was read, or while the object was.
            return self.retry(progress, way);
        }
        match landed.strip_prefix(key) {
            Some(value) => Step::Found { start: key.len(), len: value.len() },
            // Another key of the same hash.
            None => self.next_way(progress, way, progress.entry.version),
        }
    }

    fn confirm(&self, progress: &mut Progress, landed: &[u8]) -> Step {
        let same = landed
            .chunks_exact(ENTRY)
            .zip(progress.seen)
            .all(|(bytes, version)| PilafEntry::parse(bytes).is_some_and(|entry| entry.version == version));
        if same { Step::Absent } else { self.retry(progress, 0) }
    }
}
