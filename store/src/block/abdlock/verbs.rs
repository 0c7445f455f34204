//! What is asked of a replica, and how a block lies there: lock, then tag, value, checksum twice.

use nic::{Flags, Operation, Payload, PostError, Remote, Sge, WorkRequest};

use super::super::grant::WORD;
use super::super::{Grant, Layout, Tag};
use crate::Post;
use crate::kv::checksum::crc64;
use crate::words::{set_u64, u64_at};

/// Where tag, value and checksum begin.
pub const CHECKED_AT: usize = WORD;

/// Bytes of tag, value and checksum.
pub fn checked_len(layout: &Layout) -> usize {
    layout.tagged_len() + WORD
}

/// Bytes of both copies of a block: the newer one stays whole while the older one is written over.
pub fn pair_len(layout: &Layout) -> usize {
    2 * checked_len(layout)
}

/// Bytes from one block to the next.
pub fn stride(layout: &Layout) -> usize {
    (CHECKED_AT + pair_len(layout)).next_multiple_of(64)
}

/// Puts the tag in front of a value, and the checksum of both behind it.
pub fn seal(checked: &mut [u8], tag: Tag) {
    set_u64(checked, 0, tag.0);
    let end = checked.len() - WORD;
    let sum = crc64(&checked[..end]);
    set_u64(checked, end, sum);
}

/// The tag, if the block is whole: a client that died in the middle of its WRITE leaves a part of it.
pub fn unseal(checked: &[u8]) -> Option<Tag> {
    let end = checked.len() - WORD;
    (u64_at(checked, end) == crc64(&checked[..end])).then(|| Tag(u64_at(checked, 0)))
}

fn lock_of(grant: &Grant, block: u64) -> Remote {
    let at = grant.table.addr + block * stride(&grant.layout) as u64;
    Remote { addr: at, rkey: grant.table.rkey }
}

fn post(id: u64, operation: Operation, sge: Sge, nic: &mut impl Post) -> Result<(), PostError> {
    let flags = Flags { signaled: true, ..Flags::default() };
    nic.post_send(&WorkRequest { id, operation, payload: Payload::Sges(&[sge]), flags })
}

/// CAS of the lock from one number to another; the old one comes into `old`.
pub fn swap_lock(
    grant: &Grant,
    block: u64,
    [from, to]: [u64; 2],
    id: u64,
    old: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    let operation = Operation::CompareSwap { remote: lock_of(grant, block), compare: from, swap: to };
    post(id, operation, old, nic)
}

/// READ of both copies.
pub fn read(grant: &Grant, block: u64, id: u64, into: Sge, nic: &mut impl Post) -> Result<(), PostError> {
    post(id, Operation::Read(behind(lock_of(grant, block))), into, nic)
}

/// WRITE of tag, value and checksum over one of the two copies.
pub fn write(
    grant: &Grant,
    (block, copy): (u64, usize),
    id: u64,
    from: Sge,
    nic: &mut impl Post,
) -> Result<(), PostError> {
    let first = behind(lock_of(grant, block));
    let at = Remote { addr: first.addr + (copy * checked_len(&grant.layout)) as u64, ..first };
    post(id, Operation::Write(at), from, nic)
}

fn behind(lock: Remote) -> Remote {
    Remote { addr: lock.addr + CHECKED_AT as u64, ..lock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_write_over_another_is_seen() {
        let layout = Layout { blocks: 1, block_len: 512 };
        let sealed = |byte, tag| {
            let mut bytes = vec![byte; checked_len(&layout)];
            seal(&mut bytes, Tag(tag));
            bytes
        };
        let (old, new) = (sealed(1, 5), sealed(2, 9));
        assert_eq!((unseal(&old), unseal(&new)), (Some(Tag(5)), Some(Tag(9))));
        for cut in 1..old.len() {
            let torn = [&new[..cut], &old[cut..]].concat();
            let known = unseal(&torn);
            // A cut within bytes that are the same in both leaves one of the two whole.
            assert!(known.is_none() || torn == old || torn == new, "cut at {cut}");
        }
    }
}
