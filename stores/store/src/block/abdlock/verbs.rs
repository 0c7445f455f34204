//! The verbs that an ABDLOCK client posts to a replica, and the layout of a block.
//!
//! A block consists of value, checksum, tag (copy 0); the lock; tag, value, checksum (copy 1). So one verb
//! can read both tags or write either copy.

use remora_nic::{Flags, Operation, Payload, PostError, Remote, Sge, WorkRequest};

use super::super::grant::WORD;
use super::super::{Grant, Layout, Tag};
use crate::Post;
use crate::kv::checksum::crc64;
use crate::words::{set_u64, u64_at};

/// Returns the bytes of a copy: tag, value and checksum, in either order.
pub(crate) fn copy_len(layout: &Layout) -> usize {
    layout.tagged_len() + WORD
}

/// Returns the bytes of a block: both copies and the lock. The newer copy stays intact while the older one
/// is overwritten.
pub(crate) fn whole_len(layout: &Layout) -> usize {
    2 * copy_len(layout) + WORD
}

/// Returns the bytes from one block to the next.
pub(crate) fn stride(layout: &Layout) -> usize {
    whole_len(layout).next_multiple_of(64)
}

/// Returns the offset of the lock in a block.
pub(crate) fn lock_at(layout: &Layout) -> usize {
    copy_len(layout)
}

/// Returns the offset of a copy's tag in a block.
pub(crate) fn tag_at(layout: &Layout, copy: usize) -> usize {
    if copy == 0 { lock_at(layout) - WORD } else { lock_at(layout) + WORD }
}

/// Returns the offset of a copy's value in a block. The checksum follows the value.
pub(crate) fn value_at(layout: &Layout, copy: usize) -> usize {
    if copy == 0 { 0 } else { lock_at(layout) + 2 * WORD }
}

/// Returns the bytes of a sealed value, from which a client writes: a tag, the value, its checksum, and the
/// tag once more.
pub(crate) fn sealed_len(layout: &Layout) -> usize {
    copy_len(layout) + WORD
}

/// Returns the offset of a copy in a sealed value.
pub(crate) fn copy_in_sealed(copy: usize) -> usize {
    if copy == 0 { WORD } else { 0 }
}

/// Stores the tag at both ends of a sealed value.
pub(crate) fn set_tag(sealed: &mut [u8], tag: Tag) {
    let end = sealed.len() - WORD;
    set_u64(sealed, 0, tag.0);
    set_u64(sealed, end, tag.0);
}

/// Stores the tag at both ends of a sealed value, and the checksum of tag and value.
pub(crate) fn seal(sealed: &mut [u8], tag: Tag) {
    set_tag(sealed, tag);
    let end = sealed.len() - 2 * WORD;
    let sum = crc64(&sealed[..end]);
    set_u64(sealed, end, sum);
}

/// Returns true if the checksum of a copy is right. A client that dies during a WRITE leaves a torn copy.
pub(crate) fn is_whole(layout: &Layout, block: &[u8], copy: usize) -> bool {
    let tag = tag_at(layout, copy);
    let value = value_at(layout, copy);
    let end = value + layout.block_len as usize;
    let sealed = [&block[tag..tag + WORD], &block[value..end]].concat();
    u64_at(block, end) == crc64(&sealed)
}

fn lock_of(grant: &Grant, block: u64) -> Remote {
    place(grant, block, lock_at(&grant.layout))
}

fn place(grant: &Grant, block: u64, offset: usize) -> Remote {
    let block = grant.table.addr + block * stride(&grant.layout) as u64;
    Remote { addr: block + offset as u64, rkey: grant.table.rkey }
}

fn post(id: u64, operation: Operation, sge: Sge, nic: &mut impl Post) -> Result<(), PostError> {
    let flags = Flags { signaled: true, ..Flags::default() };
    nic.post_send(&WorkRequest { id, operation, payload: Payload::Sges(&[sge]), flags })
}

/// Posts a CAS of the lock from one value to another. The previous value is returned to `old`.
pub(crate) fn swap_lock(
    grant: &Grant,
    block: u64,
    [compare, swap]: [u64; 2],
    id: u64,
    old: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    let operation = Operation::CompareSwap { remote: lock_of(grant, block), compare, swap };
    post(id, operation, old, nic)
}

/// Posts a READ of the whole block.
pub(crate) fn read(
    grant: &Grant,
    block: u64,
    id: u64,
    landing: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    post(id, Operation::Read(place(grant, block, 0)), landing, nic)
}

/// Bytes of both tags and the lock between them.
pub(crate) const TAGS: usize = 3 * WORD;

/// Posts a READ of both tags. The tags can be trusted while the lock is held: a client that died during a
/// WRITE held the lock, and breaking that lock repaired the copy.
pub(crate) fn read_tags(
    grant: &Grant,
    block: u64,
    id: u64,
    landing: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    post(id, Operation::Read(place(grant, block, tag_at(&grant.layout, 0))), landing, nic)
}

/// Posts a WRITE of one of the two copies.
pub(crate) fn write(
    grant: &Grant,
    block: u64,
    copy: usize,
    id: u64,
    source: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    let layout = &grant.layout;
    let first = value_at(layout, copy).min(tag_at(layout, copy));
    post(id, Operation::Write(place(grant, block, first)), source, nic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_write_over_another_is_seen() {
        let layout = Layout { blocks: 1, block_len: 512 };
        let sealed = |byte, tag| {
            let mut bytes = vec![byte; sealed_len(&layout)];
            seal(&mut bytes, Tag(tag));
            bytes
        };
        for copy in [0, 1] {
            let part = copy_in_sealed(copy)..copy_in_sealed(copy) + copy_len(&layout);
            let offset = value_at(&layout, copy).min(tag_at(&layout, copy));
            let [old, new] = [(1, 5), (2, 9)].map(|(byte, tag)| sealed(byte, tag)[part.clone()].to_vec());
            for cut in 0..=old.len() {
                let torn = [&new[..cut], &old[cut..]].concat();
                let mut block = vec![0; whole_len(&layout)];
                block[offset..offset + torn.len()].copy_from_slice(&torn);
                // A cut within bytes that both versions share leaves one of the two intact.
                let whole = torn == old || torn == new;
                assert_eq!(is_whole(&layout, &block, copy), whole, "copy {copy}, cut at {cut}");
                let tag = u64_at(&block, tag_at(&layout, copy));
                assert!(!whole || tag == if torn == old { 5 } else { 9 });
            }
        }
    }

    #[test]
    fn the_parts_of_a_block_lie_side_by_side() {
        let layout = Layout { blocks: 1, block_len: 512 };
        let len = 512;
        assert_eq!([0, 1].map(|copy| value_at(&layout, copy)), [0, len + 32]);
        assert_eq!([0, 1].map(|copy| tag_at(&layout, copy)), [len + 8, len + 24]);
        assert_eq!((lock_at(&layout), whole_len(&layout)), (len + 16, 2 * len + 40));
    }
}
