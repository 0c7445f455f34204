//! Atomic updates of 8, 16 and 32 bytes, and reads and writes of up to 32 bytes that are never half old,
//! half new.
//!
//! | width | atomic against |
//! |---|---|
//! | 8, 16 bytes | engines of the same table, and CPUs (by the machine's compare-and-swap) |
//! | 32 bytes | engines of the same table, once [`Table::use_wide`](crate::Table::use_wide) was called |
//!
//! The compare-and-swap of 16 bytes is cmpxchg16b on x86-64, and caspal or ldaxp with stlxp on ARM64;
//! elsewhere it is atomic against engines of the process only. "Engines" means their use of the functions
//! of this module and of the atomics of [`Span`]. Copies ([`Span::read`], [`Span::write`]) are not atomic,
//! like READ and WRITE on hardware.

use crate::span::whole;
use crate::{AccessError, Span, copy, stripes, wide, word};

/// The width of an update in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bytes: one word.
    Eight = 8,
    /// 16 bytes: two words.
    Sixteen = 16,
    /// 32 bytes: four words.
    ThirtyTwo = 32,
}

impl Width {
    /// Returns the width of this many bytes; `None` unless `bytes` is 8, 16 or 32.
    pub const fn from_bytes(bytes: usize) -> Option<Width> {
        match bytes {
            8 => Some(Width::Eight),
            16 => Some(Width::Sixteen),
            32 => Some(Width::ThirtyTwo),
            _ => None,
        }
    }

    /// Returns the width in bytes: 8, 16 or 32.
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// A value of up to 32 bytes as four words, least significant first; words beyond the width are zero.
type Limbs = [u64; 4];

impl Span<'_> {
    /// Executes one atomic read-modify-write of `width` bytes at the start (PRISM's enhanced CAS and masked
    /// fetch-and-add; paper §3.3), and returns the value as it was before.
    ///
    /// The bytes are one unsigned little-endian integer, represented as four words with the least
    /// significant first. Words beyond the width are zero, and are ignored in the result of `change`.
    /// `change` receives the present value and returns the new one, or `None` to leave the value unchanged.
    /// `change` may be called several times, and must not access registered memory itself, because it may
    /// run under a lock.
    ///
    /// The module's table lists the accesses against which the update is atomic. An update of 32 bytes does
    /// not write words that do not change.
    ///
    /// # Errors
    /// `OutOfBounds` if the span is shorter than `width`, `Misaligned` unless it is aligned to `width`;
    /// nothing changes then. `PageFault`.
    #[inline]
    pub fn update(
        &self,
        width: Width,
        change: impl FnMut(Limbs) -> Option<Limbs>,
    ) -> Result<Limbs, AccessError> {
        let at = self.aligned(width.bytes())?;
        let _alone = stripes::hold(at, width.bytes());
        // SAFETY: `width` aligned bytes of the span; 32 bytes are under the lock, or used by one engine
        // only.
        let was = unsafe {
            match width {
                Width::Eight => update8(at.cast(), change),
                Width::Sixteen => update16(at.cast(), change),
                Width::ThirtyTwo => update32(at.cast(), change),
            }
        };
        was.ok_or(AccessError::PageFault)
    }

    /// Reads the first `len` bytes (at most 32) into the first `len` bytes of `out`, as of one moment with
    /// respect to updates by engines. An aligned read of 8 bytes, and on machines with AVX or LSE2 of 16
    /// bytes, is also as of one moment with respect to CPUs.
    ///
    /// # Errors
    /// `OutOfBounds` if the span is shorter than `len` or `len` is above 32; `PageFault`.
    #[inline]
    pub fn read_whole(&self, out: &mut [u8; 32], len: usize) -> Result<(), AccessError> {
        let span = self.part(0, len)?;
        let out = out.get_mut(..len).ok_or(AccessError::OutOfBounds)?;
        whole(if stripes::needed() && len > 0 {
            stripes::look(span.as_ptr(), len, span.in_words(), || span.fetch_whole(out))
        } else {
            span.fetch_whole(out)
        })
    }

    /// Writes the first `len` bytes (at most 32) of `data`. Updates and [`read_whole`](Span::read_whole) by
    /// engines see all of them or none. The write is atomic against CPUs in the cases of
    /// [`read_whole`](Span::read_whole).
    ///
    /// # Errors
    /// `OutOfBounds` if the span is shorter than `len` or `len` is above 32; nothing is written then.
    /// `PageFault`.
    #[inline]
    pub fn write_whole(&self, data: &[u8; 32], len: usize) -> Result<(), AccessError> {
        let span = self.part(0, len)?;
        let data = data.get(..len).ok_or(AccessError::OutOfBounds)?;
        let _alone = if len > 0 { stripes::hold(span.as_ptr(), len) } else { None };
        whole(span.place_whole(data))
    }

    /// Writes words in the machine's byte order to the start. Returns false if the span is too short, which
    /// then is unchanged, or after a page fault. Unlike with [`write`](Span::write), the caller need not
    /// convert its words to bytes first.
    #[inline]
    pub fn write_words(&self, words: &[u64]) -> bool {
        let Ok(span) = self.part(0, words.len() * 8) else { return false };
        if span.in_words() {
            // SAFETY: aligned words of the span.
            return span.words().zip(words).all(|(at, value)| unsafe { word::store(at, *value) });
        }
        let whole = words.iter().enumerate().map(|(at, word)| span.write_at(at * 8, &word.to_ne_bytes()));
        whole.fold(true, |whole, written| whole & written.is_ok())
    }

    /// Returns whether the span consists of aligned words.
    fn in_words(&self) -> bool {
        self.as_ptr() as usize & 7 == 0 && self.len() & 7 == 0
    }

    /// Returns pointers to the words of a span that consists of aligned words.
    fn words(&self) -> impl Iterator<Item = *mut u64> {
        let start = self.as_ptr().cast::<u64>();
        (0..self.len() / 8).map(move |at| start.wrapping_add(at))
    }

    /// Reads all bytes of the span by the widest moves that its alignment allows. Returns false after a
    /// page fault.
    fn fetch_whole(&self, out: &mut [u8]) -> bool {
        if self.len() == 16 && self.as_ptr() as usize & 15 == 0 {
            // SAFETY: 16 aligned bytes of the span.
            let Some(value) = (unsafe { wide::load(self.as_ptr().cast()) }) else { return false };
            out.copy_from_slice(&value.to_ne_bytes());
            true
        } else if self.in_words() {
            let mut words = out.chunks_exact_mut(8).zip(self.words());
            // SAFETY: an aligned word of the span, and 8 bytes of the caller's own.
            words.all(|(bytes, at)| unsafe { word::fetch(bytes.as_mut_ptr(), at) })
        } else {
            // SAFETY: within the span; `out` is the caller's own.
            unsafe { copy::fetch(out.as_mut_ptr(), self.as_ptr(), out.len().min(self.len())) }
        }
    }

    /// Writes all bytes of the span by the widest moves that its alignment allows. Returns false after a
    /// page fault.
    fn place_whole(&self, data: &[u8]) -> bool {
        let value = |bytes: &[u8]| u64::from_ne_bytes(std::array::from_fn(|at| bytes[at]));
        if self.len() == 16 && self.as_ptr() as usize & 15 == 0 {
            let value = u128::from_ne_bytes(std::array::from_fn(|at| data[at]));
            // SAFETY: 16 aligned bytes of the span.
            unsafe { wide::store(self.as_ptr().cast(), value) }
        } else if self.in_words() {
            // SAFETY: an aligned word of the span.
            data.chunks_exact(8).zip(self.words()).all(|(bytes, at)| unsafe { word::store(at, value(bytes)) })
        } else {
            // SAFETY: within the span; nobody writes `data` while it is borrowed.
            unsafe { copy::place(self.as_ptr(), data.as_ptr(), data.len().min(self.len())) }
        }
    }
}

/// Updates 8 bytes. Returns `None` after a page fault.
///
/// # Safety
/// `at` is 8-byte aligned and 8 bytes there are mapped and writable.
#[inline]
unsafe fn update8(at: *mut u64, mut change: impl FnMut(Limbs) -> Option<Limbs>) -> Option<Limbs> {
    // SAFETY: the caller's promise.
    let mut was = unsafe { word::load(at) }?;
    loop {
        let value = [u64::from_le(was), 0, 0, 0];
        let Some(new) = change(value) else { return Some(value) };
        // SAFETY: the caller's promise.
        match unsafe { word::compare_swap(at, was, new[0].to_le()) }? {
            now if now == was => return Some(value),
            now => was = now,
        }
    }
}

/// Updates 16 bytes. Returns `None` after a page fault.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
unsafe fn update16(at: *mut u128, mut change: impl FnMut(Limbs) -> Option<Limbs>) -> Option<Limbs> {
    // SAFETY: the caller's promise.
    let mut was = unsafe { wide::load_writable(at) }?;
    loop {
        let integer = u128::from_le(was);
        let value = [integer as u64, (integer >> 64) as u64, 0, 0];
        let Some(new) = change(value) else { return Some(value) };
        let new = u128::from(new[1]) << 64 | u128::from(new[0]);
        // SAFETY: the caller's promise.
        match unsafe { wide::compare_swap(at, was, new.to_le()) }? {
            now if now == was => return Some(value),
            now => was = now,
        }
    }
}

/// Updates 32 bytes. Returns `None` after a page fault.
///
/// # Safety
/// `at` is 32-byte aligned and 32 bytes there are mapped and writable. The update is atomic only if no
/// other thread accesses the bytes.
#[inline]
unsafe fn update32(at: *mut u64, mut change: impl FnMut(Limbs) -> Option<Limbs>) -> Option<Limbs> {
    let mut value = [0; 4];
    for (limb, value) in value.iter_mut().enumerate() {
        // SAFETY: four aligned words, by the caller's promise.
        *value = u64::from_le(unsafe { word::load(at.add(limb)) }?);
    }
    if let Some(new) = change(value) {
        for limb in (0..4).filter(|limb| new[*limb] != value[*limb]) {
            // SAFETY: as above.
            if !unsafe { word::store(at.add(limb), new[limb].to_le()) } {
                return None;
            }
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests;
