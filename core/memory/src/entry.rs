//! The entry of one region or memory window, as the data path reads it: one cache line of atomics.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// An entry of the table; a dead entry is all zero. A region's fields below `key` are written only while
/// `key` is 0 and no pass can still read them; `key` is published last. A window's fields change while
/// passes read them: `version` tells a pass whether it read during a change.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// The live key, or 0 in a dead entry.
    pub key: AtomicU32,
    /// The protection domain. 0 (no domain) for a window, so that the quick check never matches a window.
    pub pd: AtomicU32,
    pub access: AtomicU32,
    /// Number of `Piece`s behind `start` if the region has several ranges, 0 if it has one range; or
    /// [`NULL`] or [`WINDOW`].
    pub pieces: AtomicU32,
    /// Address of the first byte, as accesses name it. For a region with several ranges `iova` and `len`
    /// are 0, so that the quick bounds check fails.
    pub iova: AtomicU64,
    pub len: AtomicU64,
    /// Address in this process of the first byte or, with several ranges, of the `[Piece]`s sorted by
    /// address.
    pub start: AtomicPtr<u8>,
    /// Number of windows bound to this region.
    pub windows: AtomicU32,
    /// Version of a window's fields; odd while they change.
    version: AtomicU32,
    /// The protection domain of a window.
    domain: AtomicU32,
    /// The only queue pair that may use a window; 0 if every queue pair of the domain may.
    owner: AtomicU64,
}

/// Value of `pieces` in the entry of a null region.
pub(crate) const NULL: u32 = u32::MAX;
/// Value of `pieces` in the entry of a window.
pub(crate) const WINDOW: u32 = u32::MAX - 1;

/// The part of a region that a window grants access to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct View {
    /// The live key; 0 while the window is not bound.
    pub key: u32,
    pub domain: u32,
    pub owner: u64,
    pub access: u32,
    pub piece: Piece,
}

impl View {
    /// A window of this domain that is not bound.
    pub(crate) const fn nothing(domain: u32) -> View {
        let piece = Piece { iova: 0, len: 0, start: std::ptr::null_mut() };
        View { key: 0, domain, owner: 0, access: 0, piece }
    }
}

const _: () = assert!(size_of::<Entry>() == 64);

/// A range of a region that has several.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Piece {
    pub iova: u64,
    pub len: u64,
    pub start: *mut u8,
}

impl Piece {
    /// Returns the address of the `len` bytes that begin at `va`; `None` unless all of them lie within the
    /// piece.
    #[inline]
    pub(crate) fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = va.wrapping_sub(self.iova);
        (offset < self.len && len <= self.len - offset).then(|| self.start.wrapping_add(offset as usize))
    }
}

impl Entry {
    /// Fills a dead entry with a region and makes it live.
    pub(crate) fn publish(&self, key: u32, pd: u32, access: u32, pieces: &[Piece]) {
        if let [only] = pieces {
            self.describe(pd, access, 0, *only);
        } else {
            let start = pieces.as_ptr().cast_mut().cast();
            self.describe(pd, access, pieces.len() as u32, Piece { iova: 0, len: 0, start });
        }
        self.key.store(key, Ordering::Release);
    }

    /// Makes a dead entry that of a null region, whose zeros begin at `start`.
    pub(crate) fn publish_null(&self, key: u32, pd: u32, access: u32, start: *mut u8) {
        self.describe(pd, access, NULL, Piece { iova: 0, len: 0, start });
        self.key.store(key, Ordering::Release);
    }

    /// Makes a dead entry that of a window, or changes what the window shows. Only one thread may call this
    /// at a time.
    pub(crate) fn show(&self, view: &View) {
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

    /// Returns what a window shows now; `None` if the window is being changed at this moment, or if this
    /// entry is not a window's.
    pub(crate) fn look(&self) -> Option<View> {
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

    /// Returns the address of the `len` bytes that begin at `va` if they all lie in one range of this
    /// region; `None` otherwise, and for the null region and for windows.
    ///
    /// # Safety
    /// The entry is a live region's: it was alive after this pass began, or the caller keeps it from dying.
    pub(crate) unsafe fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let count = self.pieces.load(Ordering::Relaxed);
        let start = self.start.load(Ordering::Relaxed);
        match count {
            NULL | WINDOW => None,
            0 => {
                let iova = self.iova.load(Ordering::Relaxed);
                let size = self.len.load(Ordering::Relaxed);
                Piece { iova, len: size, start }.place(va, len)
            }
            _ => {
                // SAFETY: these are a live region's pieces; they are freed only after the passes that may
                // see them have ended.
                let pieces = unsafe { std::slice::from_raw_parts(start.cast::<Piece>(), count as usize) };
                let at = pieces.partition_point(|piece| piece.iova <= va);
                at.checked_sub(1).and_then(|at| pieces[at].place(va, len))
            }
        }
    }

    /// Marks the entry dead. Returns false if `key` was not alive. Passes in progress may go on using the
    /// region.
    pub(crate) fn kill(&self, key: u32) -> bool {
        self.key.compare_exchange(key, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Resets the fields of a dead entry that no pass can see any more.
    pub(crate) fn clear(&self) {
        self.describe(0, 0, 0, Piece { iova: 0, len: 0, start: std::ptr::null_mut() });
        self.domain.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }
}

// SAFETY: an address range. All access to it is by copies and atomics that tolerate races, from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}
