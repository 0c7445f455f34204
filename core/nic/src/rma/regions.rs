//! The Registered Region Table (1RMA paper, §4.3): which memory a RegionId names, with which rights, under
//! which key. All engines of an adapter share it.
//!
//! An entry is read without a lock: its epoch is odd while it changes, and other afterwards. The NIC looks at
//! a region in use: a rekey's completion leaves only when nobody uses an older key.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use remora_memory::Key;

use super::cipher::KEY_LEN;

/// What peers may do with a region.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u8);

impl Rights {
    /// Nothing: the region holds local operands only.
    pub const NONE: Rights = Rights(0);
    /// Read.
    pub const READ: Rights = Rights(1);
    /// Write.
    pub const WRITE: Rights = Rights(2);
    /// Write the region's key.
    pub const REKEY: Rights = Rights(4);

    /// Does it have all of these?
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

/// The key of a region. It is never printed, and wiped when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionKey([u8; KEY_LEN]);

impl RegionKey {
    /// The key of these bytes. None: all zeros is no key.
    pub fn new(bytes: [u8; KEY_LEN]) -> Option<RegionKey> {
        (bytes != [0; KEY_LEN]).then_some(RegionKey(bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Drop for RegionKey {
    fn drop(&mut self) {
        self.0 = [0; KEY_LEN];
        // The store stays, although nobody reads it again.
        std::hint::black_box(&mut self.0);
    }
}

impl std::fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegionKey(..)")
    }
}

/// The memory behind a RegionId.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegionMemory {
    /// Key of the memory region. Its protection domain must be the portal's where it is a local operand.
    pub key: Key,
    /// First byte, in the memory region's address space.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// What peers may do.
    pub rights: Rights,
}

/// A region as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Changes with each key, and with each region of the same RegionId.
    pub epoch: u64,
    /// Its memory and rights.
    pub memory: RegionMemory,
    /// Its key.
    pub region_key: RegionKey,
}

/// Why the table does not change.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// As many regions as it was made for (ENOMEM).
    Full,
    /// No such region (EINVAL).
    Unknown,
}

impl std::fmt::Display for RegionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RegionError::Full => "as many regions of 1RMA as the NIC was configured for",
            RegionError::Unknown => "no such region of 1RMA",
        })
    }
}

impl std::error::Error for RegionError {}

#[derive(Default)]
struct Entry {
    /// 0: never used; odd: it changes now.
    epoch: AtomicU64,
    key: AtomicU32,
    base: AtomicU64,
    /// 0: no region.
    len: AtomicU64,
    rights: AtomicU32,
    region_key: [AtomicU64; 2],
    /// Accesses in progress.
    users: AtomicU32,
}

/// Reads of one entry that a change may spoil; then it counts as no region.
const ATTEMPTS: usize = 64;

impl Entry {
    fn change(&self, change: impl FnOnce(&Entry)) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change(self);
        // Whoever asks for users from now on sees those who saw the old epoch.
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

/// The table of an adapter's regions.
pub struct Regions {
    entries: Vec<Entry>,
    /// Held while an entry changes: the RegionIds that are free, the one free for longest first.
    free: Mutex<std::collections::VecDeque<u32>>,
}

impl Regions {
    /// A table for `max` regions, with RegionIds from 1 on.
    pub fn new(max: u32) -> Regions {
        Regions {
            entries: (0..=max).map(|_| Entry::default()).collect(),
            free: Mutex::new((1..=max).collect()),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, std::collections::VecDeque<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region; its RegionId.
    ///
    /// # Errors
    /// `Full`; `Unknown`: it has no bytes.
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

    /// Removes a region. What is served under it ends in the authentication failure. The memory may go when
    /// the memory region is deregistered, which waits for accesses in progress.
    ///
    /// # Errors
    /// `Unknown`.
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

    /// Gives a region another key. From now on nothing begins under the old one.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn rekey(&self, region: u32, key: &RegionKey) -> Result<(), RegionError> {
        let _held = self.free();
        self.live(region)?.change(|entry| entry.set_key(key.bytes()));
        Ok(())
    }

    /// The same, if the region has not changed since `epoch`; returns whether it had not.
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

    /// A region as it is now. None: there is none of this RegionId.
    pub fn get(&self, region: u32) -> Option<Snapshot> {
        self.entries.get(region as usize)?.snapshot()
    }

    /// Begins an access to a region, if it is still as it was at `epoch`.
    pub(crate) fn enter(&self, region: u32, epoch: u64) -> Option<InUse<'_>> {
        let entry = self.entries.get(region as usize)?;
        entry.users.fetch_add(1, Ordering::SeqCst);
        let in_use = InUse { entry };
        (entry.epoch.load(Ordering::SeqCst) == epoch).then_some(in_use)
    }

    /// Is any engine in the middle of an access to the region?
    pub(crate) fn is_in_use(&self, region: u32) -> bool {
        self.entries.get(region as usize).is_some_and(|entry| entry.users.load(Ordering::SeqCst) > 0)
    }

    /// RegionIds of the regions that there are.
    pub fn ids(&self) -> Vec<u32> {
        (1..self.entries.len() as u32).filter(|region| self.live(*region).is_ok()).collect()
    }
}

impl std::fmt::Debug for Regions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Regions").field("ids", &self.ids()).finish_non_exhaustive()
    }
}

/// An access in progress: a rekey's completion waits for its end.
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

    /// Readers see the old key or the new one, never half of each.
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
