//! The shared memory of a link: a sealed, populated memfd and its layout.
//!
//! ```text
//! 0      control of direction 0: credit u32, asleep u32 (written by its consumer)
//! 128    control of direction 1
//! 4096   ring 0: slots x 64 B      (from the side that made the link)
//! …      ring 1: slots x 64 B      (to it)
//! ```
//!
//! The geometry is not stored in the memory: it is sent once over the set-up socket and is private from
//! then on, so that no peer can change it. The memfd is sealed against shrinking, because a peer that
//! truncates it would kill this process (SIGBUS).

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::ring::{Cells, Geometry, SLOT, WORD};

/// Number of bytes before the rings.
const CONTROL: usize = 4096;
/// Distance in bytes between the control lines of both directions: two cache lines, because some CPUs fetch
/// lines in pairs.
const CONTROL_STRIDE: usize = 128;

/// Seals of a link's memory: it can neither be resized nor sealed differently.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The mapped memory of a link.
#[derive(Debug)]
pub(super) struct Map {
    base: NonNull<u8>,
    geometry: Geometry,
}

// SAFETY: the map is plain memory that belongs to no thread. All access goes through `Half`, whose shared
// words are atomics and whose frame bytes follow the ring protocol.
unsafe impl Send for Map {}
// SAFETY: as above; `&Map` gives out only addresses.
unsafe impl Sync for Map {}

impl Map {
    /// Returns the number of bytes of a link's memory.
    pub(super) const fn len(geometry: Geometry) -> usize {
        CONTROL + 2 * geometry.slots() as usize * SLOT
    }

    /// Creates the memory of a new link (zeroed and sealed) and maps it.
    pub(super) fn create(geometry: Geometry) -> Result<(Arc<Map>, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Linux before 6.3 does not know NOEXEC_SEAL, and a sandbox may refuse it with any errno. It is
        // optional.
        let memory = rustix::fs::memfd_create("remora-link", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create("remora-link", flags))?;
        rustix::fs::ftruncate(&memory, Map::len(geometry) as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        let map = Map::of(&memory, geometry)?;
        Ok((Arc::new(map), memory))
    }

    /// Maps memory that a peer created. `None` if the memory is not sealed, or too short for `geometry`.
    pub(super) fn open(memory: impl AsFd, geometry: Geometry) -> Result<Option<Arc<Map>>, Errno> {
        let sealed = rustix::fs::fcntl_get_seals(&memory)?.contains(SealFlags::SHRINK);
        let size = rustix::fs::fstat(&memory)?.st_size;
        if !sealed || size < Map::len(geometry) as i64 {
            return Ok(None);
        }
        Ok(Some(Arc::new(Map::of(memory, geometry)?)))
    }

    fn of(memory: impl AsFd, geometry: Geometry) -> Result<Map, Errno> {
        let len = Map::len(geometry);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice; it touches nothing that exists.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, memory, 0)? };
        // Without this the first write to each page would still fault. Before Linux 5.14 the call fails, so
        // it does.
        // SAFETY: the range is the mapping just made; populating does not change its content.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxPopulateWrite) };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Map { base, geometry })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping; every `Half` into it keeps an `Arc` of it, so none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), Map::len(self.geometry)) };
    }
}

/// A direction of a mapped link: its control line and its ring.
#[derive(Clone, Debug)]
pub(super) struct Half {
    slots: NonNull<u8>,
    control: NonNull<AtomicU32>,
    geometry: Geometry,
    _map: Arc<Map>,
}

// SAFETY: the addresses stay valid as long as `_map`, which is `Send`; no thread-bound state.
unsafe impl Send for Half {}

impl Half {
    /// Returns direction 0 or 1 of `map`.
    pub(super) fn new(map: &Arc<Map>, direction: usize) -> Half {
        assert!(direction < 2);
        let ring = CONTROL + direction * map.geometry.slots() as usize * SLOT;
        // SAFETY: both offsets lie within `Map::len`, which is mapped.
        let (slots, control) = unsafe { (map.base.add(ring), map.base.add(direction * CONTROL_STRIDE)) };
        Half { slots, control: control.cast(), geometry: map.geometry, _map: Arc::clone(map) }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the address of `slot`, which is taken modulo the size of the ring.
    #[inline]
    pub(super) fn slot(&self, slot: u32) -> *mut u8 {
        let slot = slot & (self.geometry.slots() - 1);
        // SAFETY: masked, so within the ring.
        unsafe { self.slots.as_ptr().add(slot as usize * SLOT) }
    }

    /// Returns the address of the bytes of a frame that starts at `slot`.
    #[inline]
    pub(super) fn frame(&self, slot: u32) -> *mut u8 {
        // SAFETY: the word is the first part of a slot.
        unsafe { self.slot(slot).add(WORD) }
    }

    #[inline]
    fn word_of(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: a slot is 64-byte aligned and mapped as long as `self`. Its word is accessed only
        // atomically while it is a word; as payload it belongs to one side (see `ring`).
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast()) }
    }

    #[inline]
    fn credit_of(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the control page, mapped as long as `self`, only accessed atomically.
        unsafe { self.control.as_ref() }
    }

    /// Returns the flag by which the consumer announces that it is about to sleep: 1 asleep, 0 awake.
    #[inline]
    pub(super) fn asleep(&self) -> &AtomicU32 {
        // SAFETY: the second word of the control line; as `credit_of`.
        unsafe { self.control.add(1).as_ref() }
    }
}

impl Cells for Half {
    #[inline]
    fn word(&self, slot: u32) -> u32 {
        self.word_of(slot).load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, slot: u32, word: u32) {
        self.word_of(slot).store(word, Ordering::Release);
    }

    #[inline]
    fn clear(&self, slot: u32) {
        self.word_of(slot).store(0, Ordering::Relaxed);
    }

    #[inline]
    fn credit(&self) -> u32 {
        self.credit_of().load(Ordering::Acquire)
    }

    #[inline]
    fn return_credit(&self, position: u32) {
        self.credit_of().store(position, Ordering::Release);
    }
}
