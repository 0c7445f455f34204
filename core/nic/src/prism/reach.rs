//! Places: what an address of a PRISM request names, checked, at the moment when it is used.

use remora_memory::{Access, AccessError, Key, Mem, Owner, Pd, Scratch, Span, Width};
use remora_transport::rc::prism::is_scratch;
use remora_wire::NakCode;
use remora_wire::prism::operands::Number;
use remora_wire::prism::{SCRATCH, SCRATCH_LEN};

/// What a request may reach: the ranges of its key, and its connection's own scratch memory.
#[derive(Copy, Clone)]
pub struct Reach<'m, 's> {
    pub mem: Mem<'m>,
    pub pd: Pd,
    pub owner: Owner,
    pub key: u32,
    pub scratch: Option<&'s Scratch>,
}

/// Why an access is refused.
const OUTSIDE: NakCode = NakCode::REMOTE_ACCESS_ERROR;
/// Addresses of pointers, bounds and operands are multiples of 8.
const ALIGNED: u64 = 8;

impl<'m> Reach<'m, '_> {
    /// `len` bytes from `va` on, to be accessed with the right `access`.
    pub fn span(&self, va: u64, len: usize, access: Access) -> Result<Span<'m>, NakCode> {
        if !is_scratch(va) {
            let checked = self.mem.check_for(self.pd, self.owner, Key::new(self.key), va, len, access);
            return checked.map_err(|_| OUTSIDE);
        }
        let scratch = self.scratch.ok_or(OUTSIDE)?;
        self.mem.scratch(scratch).part((va - SCRATCH) as usize, len).map_err(|_| OUTSIDE)
    }

    /// The first `len` bytes at `va`, at most 32, of one moment.
    #[inline(always)]
    pub fn read(&self, va: u64, len: usize) -> Result<[u8; 32], NakCode> {
        let span = self.span(va, len, Access::REMOTE_READ)?;
        let mut bytes = [0; 32];
        span.read_whole(&mut bytes, len).map_err(|_| OUTSIDE)?;
        Ok(bytes)
    }

    /// An aligned number of `size` bytes.
    pub fn number(&self, va: u64, size: usize) -> Result<Number, NakCode> {
        if !va.is_multiple_of(ALIGNED) {
            return Err(NakCode::INVALID_REQUEST);
        }
        self.read(va, size).map(|bytes| super::number::from_memory(&bytes))
    }

    /// Stores at most 32 bytes, at once.
    pub fn write(&self, va: u64, bytes: &[u8]) -> Result<(), NakCode> {
        let span = self.span(va, bytes.len(), Access::REMOTE_WRITE)?;
        let mut whole = [0; 32];
        whole[..bytes.len()].copy_from_slice(bytes);
        span.write_whole(&whole, bytes.len()).map_err(|_| OUTSIDE)
    }

    /// Where the pointer at `va` leads, and how many of `len` bytes the bound behind it leaves.
    pub fn follow(&self, va: u64, bounded: bool, len: u32) -> Result<(u64, u32), NakCode> {
        let [target, bound, ..] = self.number(va, if bounded { 16 } else { 8 })?;
        let len = if bounded { bound.min(u64::from(len)) as u32 } else { len };
        Ok((target, len))
    }

    /// Copies `len` bytes from one place to another.
    pub fn copy(&self, from: u64, to: u64, len: u32) -> Result<(), NakCode> {
        let source = self.span(from, len as usize, Access::REMOTE_READ)?;
        let target = self.span(to, len as usize, Access::REMOTE_WRITE)?;
        if target.copy_from(&source) == len as usize { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Copies the bytes of a packet to `to`.
    #[inline(always)]
    pub fn place(&self, to: u64, bytes: &[u8]) -> Result<(), NakCode> {
        let target = self.span(to, bytes.len(), Access::REMOTE_WRITE)?;
        if target.write(bytes) == bytes.len() { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Changes the number of `size` bytes at `va` in one step, if `change` says so; the number as it was.
    pub fn update(
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
            // Right by address, but the memory behind it is not aligned.
            AccessError::Misaligned => NakCode::INVALID_REQUEST,
            _ => OUTSIDE,
        })
    }
}

const _: () = assert!(SCRATCH_LEN == Scratch::LEN, "one window, one size");
