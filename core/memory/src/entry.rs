//! One region or window as the data path sees it: a cache line of atomics.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// All zero is a dead entry. A region's fields below `key` are written only while `key` is 0 and no pass can
/// still read them; `key` is published last. A window's fields change while passes look: `version` shows a
/// pass that it looked during a change.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// The live key, or 0 in a dead entry.
    pub key: AtomicU32,
    /// The domain; 0, which is none, for a window: so the quick check never takes one.
    pub pd: AtomicU32,
    pub access: AtomicU32,
    /// Number of pieces behind `start` if the region has several ranges, [`NULL`] or [`WINDOW`], else 0.
    pub pieces: AtomicU32,
    /// Address of the first byte, as accesses name it. With several ranges `len` is 0, so that the quick
    /// bounds check fails.
    pub iova: AtomicU64,
    pub len: AtomicU64,
    /// The address of the first byte in this process, or of the `[Piece]`s, sorted by address.
    pub start: AtomicPtr<u8>,
    /// Windows bound to this region.
    pub windows: AtomicU32,
    /// Of a window: odd while it changes.
    version: AtomicU32,
    /// Of a window: its domain.
    domain: AtomicU32,
    /// Of a window: the one queue pair that may use it; 0: any of its domain.
    owner: AtomicU64,
}

/// `pieces` of the null region.
pub(crate) const NULL: u32 = u32::MAX;
/// `pieces` of a window.
pub(crate) const WINDOW: u32 = u32::MAX - 1;

/// The part of a region that a window shows.
#[derive(Copy, Clone, Debug)]
pub(crate) struct View {
    /// The live key; 0: it is bound to nothing.
    pub key: u32,
    pub domain: u32,
    pub owner: u64,
    pub access: u32,
    pub piece: Piece,
}

impl View {
    /// A window of this domain that shows nothing.
    pub const fn nothing(domain: u32) -> View {
        let piece = Piece { iova: 0, len: 0, start: std::ptr::null_mut() };
        View { key: 0, domain, owner: 0, access: 0, piece }
    }
}

const _: () = assert!(size_of::<Entry>() == 64);

/// One range of a region that has several.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Piece {
    pub iova: u64,
    pub len: u64,
    pub start: *mut u8,
}

impl Piece {
    /// The address of `len` bytes from `va` on; None: not all of them lie within.
    #[inline]
    pub fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = va.wrapping_sub(self.iova);
        (offset < self.len && len <= self.len - offset).then(|| self.start.wrapping_add(offset as usize))
    }
}

impl Entry {
    /// Fills a dead entry and brings it to life.
    pub fn publish(&self, key: u32, pd: u32, access: u32, pieces: &[Piece]) {
        if let [only] = pieces {
            self.describe(pd, access, 0, *only);
        } else {
            let start = pieces.as_ptr().cast_mut().cast();
            self.describe(pd, access, pieces.len() as u32, Piece { iova: 0, len: 0, start });
        }
        self.key.store(key, Ordering::Release);
    }

    /// Makes a dead entry a null region's: `start` are its zeros.
    pub fn publish_null(&self, key: u32, pd: u32, access: u32, start: *mut u8) {
        self.describe(pd, access, NULL, Piece { iova: 0, len: 0, start });
        self.key.store(key, Ordering::Release);
    }

    /// Makes a dead entry a window's, or changes what the window shows. One caller at a time.
    pub fn show(&self, view: &View) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A thread that sees one of the new values below also sees the odd version.
        fence(Ordering::Release);
        self.key.store(view.key, Ordering::Relaxed);
        self.describe(0, view.access, WINDOW, view.piece);
        self.domain.store(view.domain, Ordering::Relaxed);
        self.owner.store(view.owner, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The part that a window shows now; None: it is being changed at this moment, or this is no window.
    pub fn look(&self) -> Option<View> {
        let before = self.version.load(Ordering::Acquire);
        let piece = Piece {
            iova: self.iova.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
        };
        let view = View {
            key: self.key.load(Ordering::Relaxed),
            domain: self.domain.load(Ordering::Relaxed),
            owner: self.owner.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed),
            piece,
        };
        let is_window = self.pieces.load(Ordering::Relaxed) == WINDOW;
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == before && before & 1 == 0;
        (same && is_window).then_some(view)
    }

    fn describe(&self, pd: u32, access: u32, pieces: u32, piece: Piece) {
        self.pd.store(pd, Ordering::Relaxed);
        self.access.store(access, Ordering::Relaxed);
        self.pieces.store(pieces, Ordering::Relaxed);
        self.iova.store(piece.iova, Ordering::Relaxed);
        self.len.store(piece.len, Ordering::Relaxed);
        self.start.store(piece.start, Ordering::Relaxed);
    }

    /// The memory behind `len` bytes from address `va` on, if they all lie in one range of this region; None
    /// for the null region and for a window.
    ///
    /// # Safety
    /// The entry is a live region's: alive after this pass began, or kept from dying by the caller.
    pub unsafe fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let count = self.pieces.load(Ordering::Relaxed);
        let start = self.start.load(Ordering::Relaxed);
        match count {
            NULL | WINDOW => None,
            0 => {
                let (iova, size) = (self.iova.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
                Piece { iova, len: size, start }.place(va, len)
            }
            _ => {
                // SAFETY: a live region's pieces; they are freed only after the passes that may see them end.
                let pieces = unsafe { std::slice::from_raw_parts(start.cast::<Piece>(), count as usize) };
                let at = pieces.partition_point(|piece| piece.iova <= va);
                at.checked_sub(1).and_then(|at| pieces[at].place(va, len))
            }
        }
    }

    /// Ends the life of `key`; false if it was not alive. Passes under way may go on using the region.
    pub fn kill(&self, key: u32) -> bool {
        self.key.compare_exchange(key, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Empties a dead entry that no pass can see any more.
    pub fn clear(&self) {
        self.describe(0, 0, 0, Piece { iova: 0, len: 0, start: std::ptr::null_mut() });
        self.domain.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }
}

// SAFETY: an address range; all access to it is by racing-safe copies and atomics, from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}
