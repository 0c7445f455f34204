//! The Registered Region Table (1RMA paper, §4.3): maps a RegionId to memory, access rights and a key. All
//! engines of an adapter share the table.
//!
//! Entries are read without a lock: the epoch of an entry is odd while the entry changes, and different
//! afterwards. An access marks its region as in use, so that a rekey completes only when no access uses an
//! older key.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use remora_memory::Key;

use super::cipher::KEY_LEN;

/// The access rights of peers to a region.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u8);

impl Rights {
    /// No access: the region is used for local operands only.
    pub const NONE: Rights = Rights(0);
    /// Permission to read.
    pub const READ: Rights = Rights(1);
    /// Permission to write.
    pub const WRITE: Rights = Rights(2);
    /// Permission to change the region's key.
    pub const REKEY: Rights = Rights(4);

    /// Returns true if all rights of `other` are included.
    #[inline]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// The key of a region. The key is never printed, and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionKey([u8; KEY_LEN]);

impl RegionKey {
    /// Creates a key from bytes; `None` for all zeros, which is not a valid key.
    pub fn new(bytes: [u8; KEY_LEN]) -> Option<RegionKey> {
        (bytes != [0; KEY_LEN]).then_some(RegionKey(bytes))
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Drop for RegionKey {
    fn drop(&mut self) {
        self.0 = [0; KEY_LEN];
        // `black_box` prevents the compiler from removing the store.
        std::hint::black_box(&mut self.0);
    }
}

impl std::fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegionKey(..)")
    }
}

/// The memory of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegionMemory {
    /// Key of the memory region. For a local operand, its protection domain must be that of the portal.
    pub key: Key,
    /// Address of the first byte, in the memory region's address space.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access rights of peers.
    pub rights: Rights,
}

/// A consistent copy of a region's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Epoch, which changes with each new key and with each new region of the same RegionId.
    pub epoch: u64,
    /// Memory and access rights.
    pub memory: RegionMemory,
    /// Key of the region.
    pub region_key: RegionKey,
}

/// The reason why the table was not changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The maximum number of regions exists (ENOMEM).
    #[error("as many regions of 1RMA as the NIC was configured for")]
    Full,
    /// The region does not exist (EINVAL).
    #[error("no such region of 1RMA")]
    Unknown,
}

#[derive(Default)]
struct Entry {
    /// Epoch: 0 if the entry was never used, odd while the entry changes.
    epoch: AtomicU64,
    key: AtomicU32,
    base: AtomicU64,
    /// Length in bytes; 0 if there is no region.
    len: AtomicU64,
    rights: AtomicU32,
    region_key: [AtomicU64; 2],
    /// Number of accesses in progress.
    users: AtomicU32,
}

/// Maximum number of attempts to read an entry that changes concurrently; then the region counts as
/// nonexistent.
const ATTEMPTS: usize = 64;

impl Entry {
    fn change(&self, change: impl FnOnce(&Entry)) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change(self);
        // Every later check for users sees the accesses that began with the old epoch.
        self.epoch.store(epoch + 2, Ordering::SeqCst);
    }

    fn set_key(&self, key: &[u8; KEY_LEN]) {
        let (words, _) = key.as_chunks();
        for (word, bytes) in self.region_key.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        for _ in 0..ATTEMPTS {
            let epoch = self.epoch.load(Ordering::Acquire);
            let memory = RegionMemory {
                key: Key::new(self.key.load(Ordering::Relaxed)),
                base: self.base.load(Ordering::Relaxed),
                len: self.len.load(Ordering::Relaxed),
                rights: Rights(self.rights.load(Ordering::Relaxed) as u8),
            };
            let mut key = [0; KEY_LEN];
            let (words, _) = key.as_chunks_mut();
            for (bytes, word) in words.iter_mut().zip(&self.region_key) {
                *bytes = u64::to_ne_bytes(word.load(Ordering::Relaxed));
            }
            fence(Ordering::Acquire);
            if epoch.is_multiple_of(2) && self.epoch.load(Ordering::Relaxed) == epoch {
                let region_key = RegionKey::new(key)?;
                return (memory.len > 0).then_some(Snapshot { epoch, memory, region_key });
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// The region table of an adapter.
pub struct Regions {
    entries: Vec<Entry>,
    /// Free RegionIds, the one that has been free for longest first. The mutex is held while an entry
    /// changes.
    free: Mutex<std::collections::VecDeque<u32>>,
}

impl Regions {
    /// Creates a table for `max` regions, with RegionIds from 1 on.
    pub fn new(max: u32) -> Regions {
        Regions {
            entries: (0..=max).map(|_| Entry::default()).collect(),
            free: Mutex::new((1..=max).collect()),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, std::collections::VecDeque<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region and returns its RegionId.
    ///
    /// # Errors
    /// `Full`: the maximum number of regions exists. `Unknown`: the region has length 0.
    pub fn register(&self, memory: &RegionMemory, key: &RegionKey) -> Result<u32, RegionError> {
        if memory.len == 0 {
            return Err(RegionError::Unknown);
        }
        let mut free = self.free();
        let region = free.pop_front().ok_or(RegionError::Full)?;
        self.entries[region as usize].change(|entry| {
            entry.key.store(memory.key.get(), Ordering::Relaxed);
            entry.base.store(memory.base, Ordering::Relaxed);
            entry.len.store(memory.len, Ordering::Relaxed);
            entry.rights.store(u32::from(memory.rights.0), Ordering::Relaxed);
            entry.set_key(key.bytes());
        });
        Ok(region)
    }

    /// Removes a region. Operations in service end with an authentication failure. The memory can be freed
    /// after the memory region is deregistered, which waits for accesses in progress.
    ///
    /// # Errors
    /// `Unknown`: there is no such region.
    pub fn deregister(&self, region: u32) -> Result<(), RegionError> {
        let mut free = self.free();
        let entry = self.live(region)?;
        entry.change(|entry| {
            entry.len.store(0, Ordering::Relaxed);
            entry.set_key(&[0; KEY_LEN]);
        });
        free.push_back(region);
        Ok(())
    }

    /// Changes the key of a region. No access begins under the old key after this call.
    ///
    /// # Errors
    /// `Unknown`: there is no such region.
    pub fn rekey(&self, region: u32, key: &RegionKey) -> Result<(), RegionError> {
        let _held = self.free();
        self.live(region)?.change(|entry| entry.set_key(key.bytes()));
        Ok(())
    }

    /// Changes the key of a region if the region has not changed since `epoch`. Returns true if the key was
    /// changed.
    pub(crate) fn rekey_at(&self, region: u32, epoch: u64, key: &RegionKey) -> bool {
        let _held = self.free();
        let Ok(entry) = self.live(region) else { return false };
        let same = entry.epoch.load(Ordering::Relaxed) == epoch;
        if same {
            entry.change(|entry| entry.set_key(key.bytes()));
        }
        same
    }

    fn live(&self, region: u32) -> Result<&Entry, RegionError> {
        let entry = self.entries.get(region as usize).ok_or(RegionError::Unknown)?;
        if entry.len.load(Ordering::Relaxed) == 0 { Err(RegionError::Unknown) } else { Ok(entry) }
    }

    /// Returns the current state of a region; `None` if there is no region of this RegionId.
    pub fn get(&self, region: u32) -> Option<Snapshot> {
        self.entries.get(region as usize)?.snapshot()
    }

    /// Begins an access to a region; `None` if the region has changed since `epoch`.
    pub(crate) fn enter(&self, region: u32, epoch: u64) -> Option<InUse<'_>> {
        let entry = self.entries.get(region as usize)?;
        entry.users.fetch_add(1, Ordering::SeqCst);
        let in_use = InUse { entry };
        (entry.epoch.load(Ordering::SeqCst) == epoch).then_some(in_use)
    }

    /// Returns true if any engine is accessing the region.
    pub(crate) fn is_in_use(&self, region: u32) -> bool {
        self.entries.get(region as usize).is_some_and(|entry| entry.users.load(Ordering::SeqCst) > 0)
    }

    /// Returns the RegionIds of all regions.
    pub fn ids(&self) -> Vec<u32> {
        (1..self.entries.len() as u32).filter(|region| self.live(*region).is_ok()).collect()
    }
}

impl std::fmt::Debug for Regions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Regions").field("ids", &self.ids()).finish_non_exhaustive()
    }
}

/// An access in progress. A rekey completes only after the end of earlier accesses.
pub(crate) struct InUse<'a> {
    entry: &'a Entry,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.entry.users.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: u64) -> RegionMemory {
        RegionMemory { key: Key::new(7), base: 0x1000, len, rights: Rights::READ }
    }

    fn key(byte: u8) -> RegionKey {
        RegionKey::new([byte; KEY_LEN]).unwrap()
    }

    #[test]
    fn a_full_table_refuses_and_a_freed_id_comes_back_with_another_epoch() {
        let regions = Regions::new(2);
        let [first, second] = [1, 2].map(|byte| regions.register(&memory(64), &key(byte)).unwrap());
        assert_eq!(regions.register(&memory(64), &key(3)), Err(RegionError::Full));
        let before = regions.get(first).unwrap();
        regions.deregister(first).unwrap();
        assert_eq!((regions.get(first), regions.deregister(first)), (None, Err(RegionError::Unknown)));
        assert_eq!(regions.register(&memory(128), &key(4)), Ok(first));
        let after = regions.get(first).unwrap();
        assert!(after.epoch > before.epoch && after.region_key == key(4) && after.memory.len == 128);
        assert_eq!(regions.ids(), [first, second]);
    }

    #[test]
    fn a_rekey_changes_the_epoch_and_only_at_the_one_it_was_meant_for() {
        let regions = Regions::new(1);
        let region = regions.register(&memory(64), &key(1)).unwrap();
        let before = regions.get(region).unwrap();
        assert!(regions.rekey_at(region, before.epoch, &key(2)));
        assert!(!regions.rekey_at(region, before.epoch, &key(3)), "it has changed since");
        assert_eq!(regions.get(region).unwrap().region_key, key(2));
        assert!(regions.enter(region, before.epoch).is_none());
        assert!(!regions.is_in_use(region));
        let now = regions.get(region).unwrap().epoch;
        let access = regions.enter(region, now).unwrap();
        assert!(regions.is_in_use(region));
        drop(access);
        assert!(!regions.is_in_use(region));
    }

    #[test]
    fn zeros_are_no_key_and_no_key_is_printed() {
        assert_eq!(RegionKey::new([0; KEY_LEN]), None);
        assert_eq!(format!("{:?}", key(0x41)), "RegionKey(..)");
        let regions = Regions::new(1);
        regions.register(&memory(64), &key(0x41)).unwrap();
        let printed = format!("{regions:?} {:?}", regions.get(1));
        assert!(!printed.contains("65, 65") && !printed.contains("AA"), "{printed}");
    }

    /// Readers see either the old key or the new key.
    #[test]
    fn no_reader_sees_a_torn_key() {
        let regions = Regions::new(1);
        let region = regions.register(&memory(64), &key(1)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000_u32 {
                    regions.rekey(region, &key(1 + (round % 200) as u8)).unwrap();
                }
            });
            for _ in 0..20_000 {
                if let Some(seen) = regions.get(region) {
                    let bytes = seen.region_key.bytes();
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
                }
            }
        });
    }
}
