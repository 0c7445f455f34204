//! What a replica is made of, and what it tells its clients.

use remora_memory::Key;
use remora_nic::Remote;

use super::{MAX_BLOCK, MIN_BLOCK};
use crate::heap::Class;
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// The designs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Design {
    /// PRISM's chains.
    PrismRs = 1,
    /// Locks, in place.
    AbdLock = 2,
}

impl Design {
    /// All of them.
    pub const ALL: [Design; 2] = [Design::PrismRs, Design::AbdLock];

    /// Name as the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Design::PrismRs => "prism-rs",
            Design::AbdLock => "abdlock",
        }
    }

    /// What it is, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Design::PrismRs => "Multi-writer ABD by PRISM's chains",
            Design::AbdLock => "The same by locks and plain verbs",
        }
    }

    /// The design of a [`name`](Design::name).
    pub fn named(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|design| design.name() == name)
    }
}

/// How many blocks there are, and how long each is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of each: a multiple of 8.
    pub block_len: u32,
}

/// Bytes of a tag, of a lock, of a checksum.
pub(super) const WORD: usize = 8;
/// Bytes of PRISM-RS's metadata of a block: tag, address.
pub(super) const ENTRY: usize = 16;
/// Bytes from one line to the next: what is apart lies in different ones.
const LINE: usize = 64;

impl Layout {
    pub(super) fn is_sound(&self) -> bool {
        let len = self.block_len;
        (MIN_BLOCK..=MAX_BLOCK).contains(&len)
            && len.is_multiple_of(8)
            && (1..=1 << 24).contains(&self.blocks)
    }

    /// Bytes of a block with its tag in front.
    pub fn tagged_len(&self) -> usize {
        WORD + self.block_len as usize
    }

    /// The same, in whole lines: PRISM-RS's buffers are as long.
    pub fn buffer_len(&self) -> usize {
        self.tagged_len().next_multiple_of(LINE)
    }

    /// PRISM-RS: where a block's metadata stands.
    pub(super) fn entry(&self, block: u64) -> usize {
        block as usize * ENTRY
    }

    /// PRISM-RS: where the buffer stands that blocks have which were never written.
    pub(super) fn zeros(&self) -> usize {
        (self.blocks as usize * ENTRY).next_multiple_of(LINE)
    }

    /// PRISM-RS: bytes in front of the buffers.
    pub fn table_len(&self) -> usize {
        self.zeros() + self.buffer_len()
    }

    /// PRISM-RS: buffers that so many clients of this window can have in their hands, beside those of the
    /// blocks.
    pub fn buffers_for(&self, clients: u32, window: u16) -> u32 {
        let hands = 4 * u32::from(window) + 2 * crate::heap::MOST_RETURNED as u32;
        self.blocks as u32 + clients * hands
    }
}

/// What a replica tells a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its design.
    pub design: Design,
    /// Its blocks.
    pub layout: Layout,
    /// Its memory.
    pub table: Remote,
    /// PRISM-RS: its buffers.
    pub class: Class,
    /// ABDLOCK: what this connection's locks hold.
    pub lease: u64,
}

/// First word: "RBL1".
const MAGIC: u32 = u32::from_le_bytes(*b"RBL1");

impl Grant {
    /// Bytes of the message.
    pub const LEN: usize = 72;

    /// The message.
    pub fn encode(&self) -> [u8; Grant::LEN] {
        let mut out = [0; Grant::LEN];
        set_u32(&mut out, 0, MAGIC);
        set_u32(&mut out, 4, self.design as u32);
        set_u64(&mut out, 8, self.layout.blocks);
        set_u32(&mut out, 16, self.layout.block_len);
        set_u32(&mut out, 20, self.table.rkey.get());
        set_u64(&mut out, 24, self.table.addr);
        set_u64(&mut out, 32, self.class.list);
        set_u64(&mut out, 40, self.class.base);
        set_u32(&mut out, 48, self.class.size);
        set_u32(&mut out, 52, self.class.count);
        set_u64(&mut out, 56, self.lease);
        out
    }

    /// Reads the message; None if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        if bytes.len() != Grant::LEN || u32_at(bytes, 0) != MAGIC {
            return None;
        }
        let class = Class {
            list: u64_at(bytes, 32),
            base: u64_at(bytes, 40),
            size: u32_at(bytes, 48),
            count: u32_at(bytes, 52),
        };
        let grant = Grant {
            design: Design::ALL.into_iter().find(|design| *design as u32 == u32_at(bytes, 4))?,
            layout: Layout { blocks: u64_at(bytes, 8), block_len: u32_at(bytes, 16) },
            table: Remote { addr: u64_at(bytes, 24), rkey: Key::new(u32_at(bytes, 20)) },
            class,
            lease: u64_at(bytes, 56),
        };
        let buffers = grant.design != Design::PrismRs || class.size as usize >= grant.layout.tagged_len();
        (grant.layout.is_sound() && buffers).then_some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
