//! One region as the data path sees it: a cache line of atomics.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// All zero is a dead entry. The fields below `key` are written only while `key` is 0 and no pass can still read
/// them; `key` is published last.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// The live key, or 0.
    pub key: AtomicU32,
    pub pd: AtomicU32,
    pub access: AtomicU32,
    /// Number of pieces behind `start` if the region has several ranges, else 0.
    pub pieces: AtomicU32,
    /// Address of the first byte, as accesses name it. With several ranges `len` is 0, so that the quick bounds check fails.
    pub iova: AtomicU64,
    pub len: AtomicU64,
    /// Where the first byte is in this process, or the `[Piece]`, sorted by address.
    pub start: AtomicPtr<u8>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// One range of a region that has several.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Piece {
    pub iova: u64,
    pub len: u64,
    pub start: *mut u8,
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

    fn describe(&self, pd: u32, access: u32, pieces: u32, piece: Piece) {
        self.pd.store(pd, Ordering::Relaxed);
        self.access.store(access, Ordering::Relaxed);
        self.pieces.store(pieces, Ordering::Relaxed);
        self.iova.store(piece.iova, Ordering::Relaxed);
        self.len.store(piece.len, Ordering::Relaxed);
        self.start.store(piece.start, Ordering::Relaxed);
    }

    /// Ends the life of `key`; false if it was not alive. Passes under way may go on using the region.
    pub fn kill(&self, key: u32) -> bool {
        self.key.compare_exchange(key, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Empties a dead entry that no pass can see any more.
    pub fn clear(&self) {
        self.describe(0, 0, 0, Piece { iova: 0, len: 0, start: std::ptr::null_mut() });
    }
}

// SAFETY: an address range; all access to it is by racing-safe copies and atomics, from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}
