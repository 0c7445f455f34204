//! Checked access to the memory that the addresses of a PRISM request name.

use remora_memory::{Access, AccessError, Key, Mem, Owner, Pd, Scratch, Span, Width};
use remora_transport::rc::prism::is_scratch;
use remora_wire::NakCode;
use remora_wire::prism::operands::Number;
use remora_wire::prism::{SCRATCH, SCRATCH_LEN};

/// The memory that a request may access: that of its key, and the scratch memory of its connection.
#[derive(Copy, Clone)]
pub(crate) struct Reach<'m, 's> {
    pub mem: Mem<'m>,
    pub pd: Pd,
    pub owner: Owner,
    pub key: u32,
    pub scratch: Option<&'s Scratch>,
}

/// The NAK code of a refused access.
const OUTSIDE: NakCode = NakCode::REMOTE_ACCESS_ERROR;
/// Required alignment of pointers, bounds and operands, in bytes.
const ALIGNED: u64 = 8;

impl<'m> Reach<'m, '_> {
    /// Returns the `len` bytes from `va` on, checked for the right `access`.
    pub(crate) fn span(&self, va: u64, len: usize, access: Access) -> Result<Span<'m>, NakCode> {
        if !is_scratch(va) {
            let checked = self.mem.check_for(self.pd, self.owner, Key::new(self.key), va, len, access);
            return checked.map_err(|_| OUTSIDE);
        }
        let scratch = self.scratch.ok_or(OUTSIDE)?;
        self.mem.scratch(scratch).part((va - SCRATCH) as usize, len).map_err(|_| OUTSIDE)
    }

    /// Reads at most 32 bytes at `va` atomically.
    #[inline(always)]
    pub(crate) fn read(&self, va: u64, len: usize) -> Result<[u8; 32], NakCode> {
        let span = self.span(va, len, Access::REMOTE_READ)?;
        let mut bytes = [0; 32];
        span.read_whole(&mut bytes, len).map_err(|_| OUTSIDE)?;
        Ok(bytes)
    }

    /// Reads an aligned number of `size` bytes.
    pub(crate) fn number(&self, va: u64, size: usize) -> Result<Number, NakCode> {
        if !va.is_multiple_of(ALIGNED) {
            return Err(NakCode::INVALID_REQUEST);
        }
        self.read(va, size).map(|bytes| super::number::from_memory(&bytes))
    }

    /// Writes at most 32 bytes atomically.
    pub(crate) fn write(&self, va: u64, bytes: &[u8]) -> Result<(), NakCode> {
        let span = self.span(va, bytes.len(), Access::REMOTE_WRITE)?;
        let mut whole = [0; 32];
        whole[..bytes.len()].copy_from_slice(bytes);
        span.write_whole(&whole, bytes.len()).map_err(|_| OUTSIDE)
    }

    /// Follows the pointer at `va`. Returns its target, and `len` limited by the bound behind the pointer.
    pub(crate) fn follow(&self, va: u64, bounded: bool, len: u32) -> Result<(u64, u32), NakCode> {
        let [target, bound, ..] = self.number(va, if bounded { 16 } else { 8 })?;
        let len = if bounded { bound.min(u64::from(len)) as u32 } else { len };
        Ok((target, len))
    }

    /// Copies `len` bytes between two addresses.
    pub(crate) fn copy(&self, source_va: u64, target_va: u64, len: u32) -> Result<(), NakCode> {
        let source = self.span(source_va, len as usize, Access::REMOTE_READ)?;
        let target = self.span(target_va, len as usize, Access::REMOTE_WRITE)?;
        if target.copy_from(&source) == len as usize { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Copies the payload of a packet to `va`.
    #[inline(always)]
    pub(crate) fn place(&self, va: u64, bytes: &[u8]) -> Result<(), NakCode> {
        let target = self.span(va, bytes.len(), Access::REMOTE_WRITE)?;
        if target.write(bytes) == bytes.len() { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Updates the number of `size` bytes at `va` atomically if `change` returns a new value. Returns the old
    /// number.
    pub(crate) fn update(
        &self,
        va: u64,
        size: usize,
        change: impl FnMut(Number) -> Option<Number>,
    ) -> Result<Number, NakCode> {
        let width = Width::from_bytes(size).ok_or(NakCode::INVALID_REQUEST)?;
        if !va.is_multiple_of(size as u64) {
            return Err(NakCode::INVALID_REQUEST);
        }
        let span = self.span(va, size, Access::REMOTE_ATOMIC)?;
        span.update(width, change).map_err(|fault| match fault {
            // The virtual address is aligned, but the memory that it maps to is not.
            AccessError::Misaligned => NakCode::INVALID_REQUEST,
            _ => OUTSIDE,
        })
    }
}

const _: () = assert!(SCRATCH_LEN == Scratch::LEN, "one window, one size");
