//! FaRM's lookup by READs: neighbourhood, object, chain.

use super::bucket::{Bucket, CHAIN_MOST, FarmSlot, SLOTS, home, tag};
use super::line::{LINE, OBJECT_HEADER, ObjectHeader, PAYLOAD, join, lines_for, version_of};
use crate::kv::lookup::{Lookup, MOST_TRIES, Reads, Step};
use crate::kv::session::{Design, Grant};
use remora_nic::Remote;

/// The layout of a FaRM server's table, as a client knows it.
#[derive(Copy, Clone, Debug)]
pub struct Farm {
    index: Remote,
    buckets: u64,
    extents: Remote,
    buffer_len: usize,
}

/// The state of one GET.
#[derive(Copy, Clone, Debug, Default)]
pub struct Progress {
    hash: u64,
    phase: Phase,
    tries: u32,
    /// Slots with the key's tag in the buckets that were read last. Those not yet followed are at the front.
    candidates: [FarmSlot; 2 * SLOTS],
    left: u8,
    /// True if a key was hopping from one bucket to the other while they were read.
    hopping: bool,
    /// The slot whose object is being read.
    following: FarmSlot,
    /// The chained block to read if no candidate holds the key.
    chain: u32,
    /// Number of chained blocks read since the neighbourhood was read.
    blocks: u8,
}

#[derive(Copy, Clone, Debug, Default)]
enum Phase {
    /// The home bucket and the next one are being read.
    #[default]
    Neighbourhood,
    /// A chained block is being read.
    Block,
    /// An object is being read.
    Object,
}

impl Lookup for Farm {
    type Progress = Progress;
    const DESIGN: Design = Design::Farm;

    fn new(grant: &Grant, buffer_len: usize) -> Farm {
        Farm {
            index: grant.index,
            buckets: grant.index_len.max(1),
            extents: grant.extents,
            buffer_len: buffer_len / LINE * LINE,
        }
    }

    fn landing_len(max_key: usize, max_value: usize) -> usize {
        lines_for(max_key, max_value).max(2) * LINE
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        Some((2 * LINE, lines_for(key_len, value_len) * LINE))
    }

    #[inline]
    fn begin(&self, progress: &mut Progress, hash: u64) -> Step {
        progress.hash = hash;
        self.neighbourhood(progress)
    }

    #[inline]
    fn advance(&self, progress: &mut Progress, key: &[u8], landed: &mut [u8]) -> Step {
        match progress.phase {
            Phase::Neighbourhood => {
                let (Some(near), Some(next)) = (bucket(landed, 0), bucket(landed, LINE)) else {
                    return self.retry(progress);
                };
                self.collect(progress, &[near, next]);
                progress.chain = near.chain;
                progress.hopping = near.right != next.left;
                self.follow(progress)
            }
            Phase::Block => {
                let Some(block) = bucket(landed, 0) else { return self.retry(progress) };
                self.collect(progress, &[block]);
                progress.chain = block.chain;
                progress.hopping = false;
                self.follow(progress)
            }
            Phase::Object => self.verify(progress, key, landed),
        }
    }

    fn tries(progress: &Progress) -> u32 {
        progress.tries
    }
}

/// Returns the bucket in the line at `offset`, or `None` if the line is torn.
#[inline]
fn bucket(landed: &[u8], offset: usize) -> Option<Bucket> {
    let line = landed.get(offset..offset + LINE)?;
    version_of(line)?;
    Some(Bucket::parse(&line[4..4 + PAYLOAD]))
}

impl Farm {
    fn line_of(&self, base: Remote, line: u64) -> Remote {
        Remote { addr: base.addr.wrapping_add(line * LINE as u64), rkey: base.rkey }
    }

    fn neighbourhood(&self, progress: &mut Progress) -> Step {
        progress.phase = Phase::Neighbourhood;
        progress.blocks = 0;
        let home = home(progress.hash, self.buckets);
        Step::Read(Reads::one(self.line_of(self.index, home), 2 * LINE as u32))
    }

    /// Starts over, because the table changed during the read.
    fn retry(&self, progress: &mut Progress) -> Step {
        progress.tries += 1;
        if progress.tries >= MOST_TRIES {
            return Step::Contended;
        }
        self.neighbourhood(progress)
    }

    /// Collects the slots that have the key's tag.
    #[inline]
    fn collect(&self, progress: &mut Progress, buckets: &[Bucket]) {
        progress.left = 0;
        for slot in buckets.iter().flat_map(|bucket| bucket.slots) {
            if slot.is_taken() && slot.tag == tag(progress.hash) {
                progress.candidates[usize::from(progress.left)] = slot;
                progress.left += 1;
            }
        }
    }

    /// Follows the next candidate, else the chain; without either the key is absent.
    #[inline]
    fn follow(&self, progress: &mut Progress) -> Step {
        if progress.left > 0 {
            progress.left -= 1;
            let slot = progress.candidates[usize::from(progress.left)];
            progress.following = slot;
            progress.phase = Phase::Object;
            // Of an object that exceeds the buffer, only the part with its key is read.
            let len = (usize::from(slot.lines) * LINE).min(self.buffer_len);
            return Step::Read(Reads::one(self.line_of(self.extents, slot.line.into()), len as u32));
        }
        if progress.hopping {
            // The key that hopped may be the one that is looked up.
            return self.retry(progress);
        }
        match progress.chain {
            0 => Step::Absent,
            // No server makes a longer chain, so the memory is not a table.
            _ if usize::from(progress.blocks) == CHAIN_MOST => self.retry(progress),
            block => {
                progress.phase = Phase::Block;
                progress.blocks += 1;
                // Blocks follow the buckets, of which there is one more than there are homes.
                let line = self.buckets + u64::from(block);
                Step::Read(Reads::one(self.line_of(self.index, line), LINE as u32))
            }
        }
    }

    #[inline]
    fn verify(&self, progress: &mut Progress, key: &[u8], landed: &mut [u8]) -> Step {
        let landed_lines = landed.len() / LINE;
        let Some(end) = join(landed, progress.following.version) else { return self.retry(progress) };
        let object = &landed[..end];
        let header = ObjectHeader::parse(object);
        let lines = usize::from(progress.following.lines);
        if landed_lines < lines && header.hash == progress.hash && header.key_len as usize == key.len() {
            return Step::TooLong { len: lines * LINE };
        }
        let value_at = OBJECT_HEADER + key.len();
        let ours = header.key_len as usize == key.len() && object.get(OBJECT_HEADER..value_at) == Some(key);
        if !ours {
            // The object is complete but belongs to another key with the same tag.
            return self.follow(progress);
        }
        let len = header.value_len as usize;
        if value_at + len > end {
            return self.retry(progress);
        }
        Step::Found { start: value_at, len }
    }
}
