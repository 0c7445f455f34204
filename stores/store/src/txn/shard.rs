//! The server's part of PRISM-TX: the table that clients work on. Its program creates the table, numbers the
//! clients and reads the table for the heap's keeper.

use std::sync::atomic::Ordering;

use remora_nic::Remote;

use super::client::slot_of;
use super::grant::Grant;
use super::layout::{Cell, HEADER, Header, SLOT, Slot, VersionRef};
use super::timestamp::{CLIENTS, Timestamp, TxState};
use crate::Registered;
use crate::heap::{Classes, Reachable};

/// The size of a shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// Number of slots: the maximum number of keys, including deleted ones.
    pub slots: u64,
    /// Maximum distance, in slots, of a key from its home slot.
    pub reach: u32,
    /// Maximum number of clients over the lifetime of the table; below 16384.
    pub sessions: u32,
    /// Maximum number of concurrent transactions per client.
    pub window: u32,
}

/// The first word of a table: "RTXTABLE".
const MAGIC: u64 = u64::from_le_bytes(*b"RTXTABLE");
/// Offsets in the front of the table: its shape, the number of the next session.
const SHAPE: usize = 8;
const NEXT: usize = 16;
/// Offset of the buffer to which all slots point that never held a key.
const EMPTY: usize = 64;
/// Offset of the first slot.
const SLOTS: usize = EMPTY + HEADER;

impl ShardConfig {
    /// Returns the bytes of the table.
    pub fn table_len(&self) -> usize {
        self.cells_at() + self.sessions as usize * self.window as usize * 8
    }

    fn cells_at(&self) -> usize {
        SLOTS + self.slots as usize * SLOT as usize
    }

    fn shape(&self) -> u64 {
        self.slots << 32 ^ u64::from(self.sessions) << 16 ^ u64::from(self.window)
    }

    fn is_sound(&self) -> bool {
        (1..1 << 32).contains(&self.slots)
            && (2..=CLIENTS).contains(&self.sessions)
            && (1..=1 << 16).contains(&self.window)
            && (1..=self.slots).contains(&self.reach.into())
    }
}

/// A shard's table, at the start of its memory.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    memory: Registered,
    /// Numbers that were issued to clients that never connected.
    unused: Vec<u32>,
}

impl Shard {
    /// Opens the table in this memory if it has this shape, or creates a new one. Returns `None` if the
    /// configuration is invalid, if the memory is too small, or if its address is not a multiple of 64.
    pub fn open(config: ShardConfig, memory: &Registered) -> Option<Shard> {
        if !config.is_sound() || memory.bytes.len() < config.table_len() || !memory.addr.is_multiple_of(64) {
            return None;
        }
        let shard = Shard { config, memory: memory.clone(), unused: Vec::new() };
        if shard.word(0) != MAGIC || shard.word(SHAPE) != config.shape() {
            shard.format();
        }
        Some(shard)
    }

    fn format(&self) {
        let empty = self.memory.addr + EMPTY as u64;
        let header = Header {
            own: empty,
            version: Timestamp::default(),
            tx_state: TxState::Committed,
            before: VersionRef::default(),
            cell: Cell::default(),
            key_len: None,
            value_len: None,
        };
        self.memory.write(EMPTY, &header.emit());
        let slot = Slot { latest: VersionRef::empty(empty), read: Timestamp::default() };
        (0..self.config.slots).for_each(|index| self.put(index, &slot));
        let cells = self.config.cells_at()..self.config.table_len();
        cells.step_by(8).for_each(|offset| self.set(offset, 0));
        self.set(SHAPE, self.config.shape());
        self.set(NEXT, 1);
        self.set(0, MAGIC);
    }

    fn word(&self, offset: usize) -> u64 {
        self.memory.bytes.word(offset).expect("an aligned word of the table").load(Ordering::Acquire)
    }

    fn set(&self, offset: usize, word: u64) {
        self.memory.bytes.word(offset).expect("an aligned word of the table").store(word, Ordering::Release);
    }

    fn slot(&self, index: u64) -> Slot {
        let offset = SLOTS + (index * SLOT) as usize;
        Slot::of(std::array::from_fn(|word| self.word(offset + 8 * word)))
    }

    fn put(&self, index: u64, slot: &Slot) {
        let offset = SLOTS + (index * SLOT) as usize;
        slot.words().iter().enumerate().for_each(|(word, value)| self.set(offset + 8 * word, *value));
    }

    /// Accepts a client. Returns `None` if all client numbers are in use.
    pub fn accept(&mut self, classes: &Classes) -> Option<Grant> {
        let session = match self.unused.pop() {
            Some(unused) => unused,
            None => {
                let next = self.word(NEXT);
                if next >= u64::from(self.config.sessions) {
                    return None;
                }
                self.set(NEXT, next + 1);
                next as u32
            }
        };
        let addr = self.memory.addr;
        let rkey = self.memory.key;
        Some(Grant {
            slots: Remote { addr: addr + SLOTS as u64, rkey },
            slot_count: self.config.slots,
            cells: addr + self.config.cells_at() as u64,
            window: self.config.window,
            sessions: self.config.sessions,
            session,
            after: Timestamp::default(),
            reach: self.config.reach,
            classes: classes.clone(),
        })
    }

    /// Takes back the number of a client that was accepted but never connected.
    pub fn take_back(&mut self, session: u32) {
        self.unused.push(session);
    }

    /// Stores a key in the table before clients connect, in a buffer that is long enough. Returns false if
    /// there is no slot for it.
    pub fn load(&mut self, key: &[u8], value: &[u8], buffer: u64) -> bool {
        let home = slot_of(key, self.config.slots);
        let free = (0..u64::from(self.config.reach))
            .map(|further| (home + further) % self.config.slots)
            .find(|index| self.slot(*index).latest.version == Timestamp::default());
        let (Some(index), Some(offset)) = (free, buffer.checked_sub(self.memory.addr)) else { return false };
        // The loader is client 0, and uses the first timestamp.
        let version = Timestamp::new(1, 0);
        let header = Header {
            own: buffer,
            version,
            tx_state: TxState::Committed,
            before: VersionRef::empty(self.memory.addr + EMPTY as u64),
            cell: Cell::default(),
            key_len: Some(key.len() as u32),
            value_len: Some(value.len() as u32),
        };
        self.memory.write(offset as usize, &header.emit());
        self.memory.write(offset as usize + HEADER, key);
        self.memory.write(offset as usize + HEADER + key.len(), value);
        let latest = VersionRef { addr: buffer, bound: header.bound(), version };
        self.put(index, &Slot { latest, read: Timestamp::default() });
        true
    }

    /// Returns the address of the version before the pending one at `addr`, or `None` if that version is not
    /// pending.
    fn before(&self, addr: u64) -> Option<u64> {
        let offset = usize::try_from(addr.checked_sub(self.memory.addr)?).ok()?;
        let mut bytes = [0; HEADER];
        self.memory.bytes.read(offset, &mut bytes).ok()?;
        let header = Header::parse(&bytes)?;
        (header.tx_state == TxState::Pending).then_some(header.before.addr)
    }
}

impl Reachable for Shard {
    fn entries(&self) -> usize {
        self.config.slots as usize
    }

    /// Reports the latest version, and while it is pending the one before it. Retries if the slot changes in
    /// between.
    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        let empty = self.memory.addr + EMPTY as u64;
        loop {
            let latest = self.slot(entry as u64).latest;
            let before = self.before(latest.addr);
            if self.slot(entry as u64).latest == latest {
                [Some(latest.addr), before]
                    .into_iter()
                    .flatten()
                    .filter(|addr| *addr != empty)
                    .for_each(report);
                return;
            }
        }
    }
}
