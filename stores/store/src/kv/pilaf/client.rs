//! Pilaf's lookup by READs: the choice of the entry or object to read next.

use super::entry::{ENTRY, PilafEntry};
use crate::kv::checksum::crc64;
use crate::kv::hash::choice;
use crate::kv::lookup::{Lookup, MOST_TRIES, Read, Reads, Step};
use crate::kv::session::{Design, Grant};
use remora_nic::Remote;

/// Number of ways of a key: entries that may hold the key.
pub(crate) const WAYS: usize = 3;

/// The layout of a Pilaf server's table, as a client knows it.
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
    /// Versions of the entries that were read and do not hold the key.
    seen: [u64; WAYS],
    /// The entry whose object is being read.
    entry: PilafEntry,
}

#[derive(Copy, Clone, Debug, Default)]
enum Phase {
    /// The entry of this way is being read.
    #[default]
    First,
    Probe(u8),
    /// The object of this way's entry is being read.
    Object(u8),
    /// No way has the key; all of them are being read once more in one round trip.
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

    /// Reads the entry once more, because the entry or its object changed during the read.
    fn retry(&self, progress: &mut Progress, way: u8) -> Step {
        progress.tries += 1;
        if progress.tries >= MOST_TRIES {
            return Step::Contended;
        }
        self.probe(progress, way)
    }

    /// Decides whether a complete entry belongs to the key.
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
        // A READ of zero bytes is avoided, because some NICs take it for 2 GiB.
        Step::Read(Reads::one(Remote { addr: entry.address, rkey: self.extents.rkey }, len.max(1) as u32))
    }

    /// Continues with the next way, because this one does not hold the key.
    fn next_way(&self, progress: &mut Progress, way: u8, version: u64) -> Step {
        progress.seen[usize::from(way)] = version;
        if usize::from(way) + 1 < WAYS {
            return self.probe(progress, way + 1);
        }
        // During the lookup the key may have moved from a way not yet read to one already read. If all
        // entries are unchanged when they are read once more, no entry held the key at the moment between
        // the two reads.
        progress.phase = Phase::Confirm;
        let read = |way| Read { remote: self.entry_at(progress.hash, way), len: ENTRY as u32 };
        Step::Read(Reads::three(core::array::from_fn(read)))
    }

    fn verify(&self, progress: &mut Progress, way: u8, key: &[u8], landed: &[u8]) -> Step {
        let Some(landed) = landed.get(..progress.entry.object_len()) else {
            return self.retry(progress, way);
        };
        if crc64(landed) != progress.entry.object_crc {
            // The object was overwritten after the entry was read, or during the READ.
            return self.retry(progress, way);
        }
        match landed.strip_prefix(key) {
            Some(value) => Step::Found { start: key.len(), len: value.len() },
            // The object belongs to another key with the same hash.
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
