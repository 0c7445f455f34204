//! The 64-byte line that carries its version, and objects made of such lines.
//!
//! ```text
//! line                                object: its lines' payloads, joined
//!  0  version  u32                     0  hash       u64
//!  4  payload  56 bytes                8  key len    u32
//! 60  version  u32                    12  value len  u32
//!                                     16  key, value, zeros to the end of the last line
//! ```
//!
//! **An object's lines** are written once, before any slot points to them. All carry the version that its
//! slot has. No two objects ever carry the same version (the counter has 32 bits; see
//! `docs/internals/stores/key-value.md`). When
//! lines are reused, both versions of a line change before the rest of it does. A reader copies a line
//! upwards or downwards. If it finds the expected version at both ends, it has read nothing newer in between.
//!
//! **A bucket** is changed in place: both versions become [`LOCKED`], then the rest changes, then both become
//! the next version. A reader that finds equal versions, not locked, has read one state of the line. The end
//! that it read first had that version, so the rest was complete. The end that it read last still had it, so
//! no change had begun.

use crate::region::Region;
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Bytes of a line, and of the payload in it.
pub(crate) const LINE: usize = 64;
pub(crate) const PAYLOAD: usize = 56;
const HEAD: usize = 4;
const TAIL: usize = 60;

/// The version of a line that is being changed, and of memory that was never written.
pub(crate) const LOCKED: u32 = 0;

/// Returns the version that follows `version`.
pub(crate) fn next_version(version: u32) -> u32 {
    version.wrapping_add(1).max(LOCKED + 1)
}

/// Returns the version of a line, or `None` if the line is torn or locked.
#[inline]
pub(crate) fn version_of(line: &[u8]) -> Option<u32> {
    let version = u32_at(line, 0);
    (version == u32_at(line, TAIL) && version != LOCKED).then_some(version)
}

/// Bytes before the key of an object.
pub(crate) const OBJECT_HEADER: usize = 16;

/// Returns the number of lines of an object.
pub(crate) fn lines_for(key_len: usize, value_len: usize) -> usize {
    (OBJECT_HEADER + key_len + value_len).div_ceil(PAYLOAD)
}

/// The fixed part of an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectHeader {
    pub hash: u64,
    pub key_len: u32,
    pub value_len: u32,
}

impl ObjectHeader {
    pub(crate) fn parse(payload: &[u8]) -> ObjectHeader {
        ObjectHeader { hash: u64_at(payload, 0), key_len: u32_at(payload, 8), value_len: u32_at(payload, 12) }
    }

    pub(crate) fn emit(&self, out: &mut [u8; OBJECT_HEADER]) {
        set_u64(out, 0, self.hash);
        set_u32(out, 8, self.key_len);
        set_u32(out, 12, self.value_len);
    }
}

/// Joins the payloads of an object's lines at the beginning of `lines` and returns their length. Returns
/// `None` if a line has another version.
#[inline]
pub(crate) fn join(lines: &mut [u8], version: u32) -> Option<usize> {
    let mut end = 0;
    for offset in (0..lines.len()).step_by(LINE) {
        if version_of(lines.get(offset..offset + LINE)?) != Some(version) {
            return None;
        }
        lines.copy_within(offset + HEAD..offset + TAIL, end);
        end += PAYLOAD;
    }
    Some(end)
}

/// Writes one line of an object: the versions at both ends first, then the bytes between.
#[inline]
pub(crate) fn store_fresh(region: &mut Region, offset: usize, version: u32, payload: &[u8; PAYLOAD]) {
    // The words are computed from the payload directly; building the line in memory first would cost more
    // than all other work.
    region.store(offset, u64::from(u32_at(payload, 0)) << 32 | u64::from(version));
    region.store(offset + 56, u64::from(version) << 32 | u64::from(u32_at(payload, PAYLOAD - 4)));
    region.barrier();
    for position in (8..56).step_by(8) {
        region.store(offset + position, u64_at(payload, position - HEAD));
    }
}

/// Changes a line in place to its next version.
pub(crate) fn store_locked(region: &mut Region, offset: usize, payload: &[u8; PAYLOAD]) {
    let head = region.load(offset);
    let tail = region.load(offset + 56);
    let line = frame(next_version(head as u32), payload);
    region.barrier();
    region.store(offset, head & !0xffff_ffff);
    region.store(offset + 56, tail & 0xffff_ffff);
    region.barrier();
    region.write(offset + 8, &line[8..56]);
    region.barrier();
    region.store(offset, u64_at(&line, 0));
    region.store(offset + 56, u64_at(&line, 56));
    region.barrier();
}

fn frame(version: u32, payload: &[u8; PAYLOAD]) -> [u8; LINE] {
    let mut line = [0; LINE];
    set_u32(&mut line, 0, version);
    line[HEAD..TAIL].copy_from_slice(payload);
    set_u32(&mut line, TAIL, version);
    line
}
