//! The layout of a replica's memory, and the grant that a replica sends to its clients.

use remora_nic::Remote;
use serde::{Deserialize, Serialize};

use crate::codec::{decode, encode, remote};
use crate::heap::Class;

/// Shortest block, in bytes.
pub const MIN_BLOCK: u32 = 512;
/// Longest block, in bytes.
pub const MAX_BLOCK: u32 = 64 << 10;

/// The designs of the block store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Design {
    /// PRISM-RS: out-of-place writes by PRISM chains.
    PrismRs,
    /// ABDLOCK: in-place writes under locks.
    AbdLock,
}

impl Design {
    /// List of all designs.
    pub const ALL: [Design; 2] = [Design::PrismRs, Design::AbdLock];

    /// Returns the name of the design on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Design::PrismRs => "prism-rs",
            Design::AbdLock => "abdlock",
        }
    }

    /// Returns a description of one line.
    pub fn about(self) -> &'static str {
        match self {
            Design::PrismRs => "Multi-writer ABD by PRISM's chains",
            Design::AbdLock => "The same by locks and plain verbs",
        }
    }

    /// Returns the design with this [`name`](Design::name), or `None` if there is none.
    pub fn named(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|design| design.name() == name)
    }
}

/// The number of blocks and their length.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes per block: a multiple of 8.
    pub block_len: u32,
}

/// Bytes of a tag, a lock or a checksum.
pub(super) const WORD: usize = 8;
/// Bytes of PRISM-RS's metadata per block: tag and address.
pub(super) const ENTRY: usize = 16;
/// Bytes of a cache line. Metadata and buffers begin on a line of their own.
const LINE: usize = 64;

impl Layout {
    pub(super) fn is_sound(&self) -> bool {
        let len = self.block_len;
        (MIN_BLOCK..=MAX_BLOCK).contains(&len)
            && len.is_multiple_of(8)
            && (1..=1 << 24).contains(&self.blocks)
    }

    /// Returns the length of a block with its tag in front.
    pub fn tagged_len(&self) -> usize {
        WORD + self.block_len as usize
    }

    /// Returns the length of a PRISM-RS buffer: a block with its tag, rounded up to whole cache lines.
    pub fn buffer_len(&self) -> usize {
        self.tagged_len().next_multiple_of(LINE)
    }

    /// Returns the offset of a block's metadata in the table of PRISM-RS.
    pub(super) fn entry(&self, block: u64) -> usize {
        block as usize * ENTRY
    }

    /// Returns the offset of PRISM-RS's buffer of zeros, to which all blocks point that were never written.
    pub(super) fn zeros(&self) -> usize {
        (self.blocks as usize * ENTRY).next_multiple_of(LINE)
    }

    /// Returns the bytes of PRISM-RS's table, which precede the buffers.
    pub fn table_len(&self) -> usize {
        self.zeros() + self.buffer_len()
    }

    /// Returns the number of PRISM-RS buffers for this layout: one per block, and those that `clients`
    /// clients with this window can hold at the same time.
    pub fn buffers_for(&self, clients: u32, window: u16) -> u32 {
        let hands = 4 * u32::from(window) + 2 * crate::heap::MOST_RETURNED as u32;
        self.blocks as u32 + clients * hands
    }
}

/// The grant that a replica sends to a client when it connects.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Design of the replica.
    pub design: Design,
    /// Number and length of the blocks.
    pub layout: Layout,
    /// Address and key of the replica's table.
    #[serde(with = "remote")]
    pub table: Remote,
    /// The size class of the buffers (PRISM-RS only).
    pub class: Class,
    /// The value of a lock that this connection holds (ABDLOCK only).
    pub lease: u64,
}

/// First letters of the message.
const MAGIC: &[u8; 4] = b"RBL2";

impl Grant {
    /// Encodes the grant.
    pub fn encode(&self) -> Vec<u8> {
        encode(MAGIC, self)
    }

    /// Decodes a grant. Returns `None` if the message is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        decode(MAGIC, bytes).filter(Grant::is_sound)
    }

    /// Returns true if the layout is possible and the buffers hold a block.
    pub(super) fn is_sound(&self) -> bool {
        let buffers = self.design != Design::PrismRs || self.class.size as usize >= self.layout.tagged_len();
        self.layout.is_sound() && buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::Key;

    #[test]
    fn a_grant_comes_back_as_it_went_and_nothing_else_does() {
        let grant = Grant {
            design: Design::PrismRs,
            layout: Layout { blocks: 5, block_len: 1024 },
            table: Remote { addr: 1 << 40, rkey: Key::new(7) },
            class: Class { list: 3, base: 9, size: 1088, count: 11 },
            lease: 13,
        };
        let bytes = grant.encode();
        assert_eq!(Grant::decode(&bytes), Some(grant));
        assert_eq!(Grant::decode(&bytes[1..]), None);
        let short = Grant { class: Class { size: 1024, ..grant.class }, ..grant };
        assert_eq!(Grant::decode(&short.encode()), None);
        let odd = Grant { layout: Layout { block_len: 1023, ..grant.layout }, ..grant };
        assert_eq!(Grant::decode(&odd.encode()), None);
        assert!(Design::ALL.into_iter().all(|design| Design::named(design.name()) == Some(design)));
    }
}
