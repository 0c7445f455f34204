//! The table of protection domains and regions of one NIC.

mod change;
mod command;
mod repeat;
mod reregister;
mod windows;

pub use change::{Addresses, TableChange, TableObserver};
pub use command::{MemoryCommand, MemoryReply};

use crate::entry::{Entry, Piece};
use crate::key::{Issued, Keyring, location};
use crate::on_nic::{Allocator, LINE};
use crate::pass::{Pass, Passes};
use crate::stripes::Demand;
use crate::window::Window;
use crate::{Access, Bytes, Error, Key, Pd};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits of a table.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of regions at a time, up to 2^24; a power of two less one is best. An unused region
    /// costs 64 bytes of address space.
    pub max_regions: usize,
    /// Maximum number of protection domains at a time, up to 2^20 - 1.
    pub max_pds: usize,
    /// Maximum number of memory windows at a time; regions and windows together are limited to 2^24.
    pub max_windows: usize,
    /// Maximum number of ranges of all regions together.
    pub max_ranges: usize,
    /// Size of the on-NIC memory in bytes; a ConnectX-5 has 256 KiB.
    pub on_nic_bytes: usize,
    /// Secret from which keys are derived. One seed always gives the same sequence of keys; the default is
    /// for tests only.
    pub key_seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_regions: 1 << 16,
            max_pds: 1 << 12,
            // As many as there are locations left in a table for this number of regions.
            max_windows: (1 << 16) - 1,
            max_ranges: 1 << 18,
            on_nic_bytes: 256 << 10,
            key_seed: 0,
        }
    }
}

#[cfg(test)]
impl Config {
    /// Returns small limits for tests: Miri walks the whole table whenever one of its entries is used.
    pub(crate) fn small() -> Config {
        Config {
            max_regions: 31,
            max_pds: 4,
            max_windows: 0,
            max_ranges: 64,
            on_nic_bytes: 1024,
            key_seed: 1,
        }
    }
}

/// A range of memory to be registered.
#[derive(Clone, Debug)]
pub struct Range {
    /// The block that contains the range.
    pub bytes: Bytes,
    /// Offset in bytes of the range in the block.
    pub offset: usize,
    /// Length of the range in bytes; not 0.
    pub len: usize,
    /// The address by which work requests and peers name the first byte of the range.
    pub iova: u64,
}

impl Range {
    /// A whole block under its own virtual address, as `ibv_reg_mr` registers memory.
    pub fn whole(bytes: &Bytes) -> Range {
        Range { bytes: bytes.clone(), offset: 0, len: bytes.len(), iova: bytes.address() }
    }

    /// A whole block whose first byte has the address `iova`, as `ibv_reg_mr_iova` registers memory.
    pub fn at(bytes: &Bytes, iova: u64) -> Range {
        Range { iova, ..Range::whole(bytes) }
    }
}

/// The protection domains and regions of one NIC, shared by its engines.
///
/// Control operations take a mutex; checks ([`Mem::check`](crate::Mem::check)) take no lock.
pub struct Table {
    entries: Box<[Entry]>,
    passes: Arc<Passes>,
    demand: Demand,
    control: Mutex<Control>,
    on_nic: Option<Bytes>,
    on_nic_parts: Allocator,
}

pub(crate) struct Control {
    pub config: Config,
    pub keyring: Keyring,
    held: BTreeMap<u32, Held>,
    /// Windows by the upper 24 bits of their keys.
    pub windows: BTreeMap<u32, Window>,
    /// The block behind all null regions.
    pub null: Option<Bytes>,
    ranges: usize,
    pds: Vec<Domain>,
    free_pds: VecDeque<usize>,
    observer: Option<TableObserver>,
}

/// The parts of a region that are kept until its deregistration is complete.
pub(crate) struct Held {
    issued: Issued,
    pd: Pd,
    ranges: usize,
    dying: bool,
    /// The region's ranges, to which the entry points if there are several. (Not a `Box`: moving a box
    /// asserts that no other pointer leads into it.)
    pieces: Vec<Piece>,
    /// Keeps the memory mapped; empty if the caller owns the memory.
    _bytes: Vec<Bytes>,
}

pub(crate) struct Domain {
    /// The number of the live domain; `None` while the place is free.
    live: Option<Pd>,
    generation: u32,
    pub users: usize,
}

const MAX_REGIONS: usize = 1 << 24;
const PD_INDEX_BITS: u32 = 20;

impl Table {
    /// Creates an empty table with the limits of `config`.
    ///
    /// # Errors
    /// `Invalid` if a limit exceeds the maximum that [`Config`] documents; `Full` or `Os` if there is no
    /// memory.
    pub fn new(config: Config) -> Result<Table, Error> {
        let places = config.max_regions.saturating_add(config.max_windows);
        if places > MAX_REGIONS || config.max_pds >= 1 << PD_INDEX_BITS {
            return Err(Error::Invalid);
        }
        let on_nic = match config.on_nic_bytes {
            0 => None,
            len => Some(Bytes::heap(len.checked_next_multiple_of(64).ok_or(Error::Invalid)?)?),
        };
        let keyring = Keyring::new(places, config.key_seed);
        // SAFETY: all-zero is a valid, dead entry: atomics of integers, and a null pointer.
        let entries = unsafe { Box::<[Entry]>::new_zeroed_slice(keyring.locations()).assume_init() };
        Ok(Table {
            entries,
            passes: Arc::new(Passes::new()),
            demand: Demand::default(),
            on_nic_parts: Allocator::new(on_nic.as_ref().map_or(0, Bytes::len)),
            on_nic,
            control: Mutex::new(Control {
                config,
                keyring,
                held: BTreeMap::new(),
                windows: BTreeMap::new(),
                null: None,
                ranges: 0,
                pds: Vec::new(),
                free_pds: VecDeque::new(),
                observer: None,
            }),
        })
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// `Full` if all [`max_pds`](Config::max_pds) domains are in use.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        self.control().alloc_pd()
    }

    /// Frees a protection domain.
    ///
    /// # Errors
    /// `Unknown`, or `Busy` while a region or another user ([`retain_pd`](Table::retain_pd)) belongs to the
    /// domain.
    pub fn free_pd(&self, pd: Pd) -> Result<(), Error> {
        let mut control = self.control();
        let domain = control.domain(pd)?;
        if domain.users > 0 {
            return Err(Error::Busy);
        }
        domain.live = None;
        control.free_pds.push_back(index_of(pd));
        Ok(())
    }

    /// Registers a user of the domain (a queue pair, an address handle), so that the domain cannot be freed
    /// while it is in use.
    ///
    /// # Errors
    /// `Unknown` if the domain is not alive.
    pub fn retain_pd(&self, pd: Pd) -> Result<(), Error> {
        self.control().domain(pd)?.users += 1;
        Ok(())
    }

    /// Reverts one [`retain_pd`](Table::retain_pd).
    ///
    /// # Errors
    /// `Unknown` if the domain is not alive or has no user.
    pub fn release_pd(&self, pd: Pd) -> Result<(), Error> {
        let mut control = self.control();
        let domain = control.domain(pd)?;
        domain.users = domain.users.checked_sub(1).ok_or(Error::Unknown)?;
        Ok(())
    }

    /// Registers `ranges` as one region. An access must lie within one range. With [`Access::ZERO_BASED`]
    /// the lowest `iova` becomes 0 and the other addresses keep their distance from it.
    ///
    /// # Errors
    /// `Unknown` protection domain. `Invalid` if there is no range, or a range is empty, leaves its block,
    /// wraps around the end of the address space or overlaps the addresses of another range. `Invalid` also
    /// if `access` lets peers write but not the owner. `Full` if the table is full.
    pub fn register(&self, pd: Pd, ranges: &[Range], access: Access) -> Result<Key, Error> {
        let mut pieces = Vec::with_capacity(ranges.len());
        for range in ranges {
            let start = range.bytes.at(range.offset, range.len).map_err(|_| Error::Invalid)?;
            if range.len == 0 {
                return Err(Error::Invalid);
            }
            pieces.push(Piece { iova: range.iova, len: range.len as u64, start });
        }
        let bytes = ranges.iter().map(|range| range.bytes.clone()).collect();
        self.control().register(&self.entries, pd, pieces, bytes, access)
    }

    /// Registers memory that the caller owns, as `ibv_reg_mr_iova2` does. `len` may be 0; then every access
    /// of at least one byte is out of bounds.
    ///
    /// # Errors
    /// The errors of [`register`](Table::register), except that the memory may be empty.
    ///
    /// # Safety
    /// From now until [`deregister`](Table::deregister) has returned `Ok`, the following must hold. The
    /// `len` bytes from `start` on stay mapped, readable and, if `access` allows any write, writable; or
    /// page faults are handled ([`page_fault`](crate::page_fault)). No Rust reference to the bytes is used,
    /// because they may change at any time.
    pub unsafe fn register_raw(
        &self,
        pd: Pd,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Key, Error> {
        if start.is_null() || (start as usize).checked_add(len).is_none() {
            return Err(Error::Invalid);
        }
        let pieces = vec![Piece { iova, len: len as u64, start }];
        self.control().register(&self.entries, pd, pieces, Vec::new(), access)
    }

    /// Registers all addresses of the process, as `ibv_reg_mr` does for implicit on-demand paging.
    ///
    /// # Errors
    /// The errors of [`register`](Table::register).
    ///
    /// # Safety
    /// Page faults must be handled ([`page_fault`](crate::page_fault)). Every user of the key may read, and
    /// if `access` allows also write, every byte of the process.
    pub unsafe fn register_all(&self, pd: Pd, access: Access) -> Result<Key, Error> {
        let pieces = vec![Piece { iova: 0, len: u64::MAX, start: std::ptr::null_mut() }];
        self.control().register(&self.entries, pd, pieces, Vec::new(), access)
    }

    /// Ends a region. The key is dead at once; when this returns, no engine accesses the memory any more.
    /// Waits for the passes in progress, so it may take as long as the longest of them.
    ///
    /// # Errors
    /// `Unknown`, also while another thread is deregistering the region; `Busy` while windows are bound to
    /// the region; `InsidePass` if the calling thread is inside a pass of an engine of this table. After an
    /// error the region is unchanged.
    pub fn deregister(&self, key: Key) -> Result<(), Error> {
        if self.passes.is_inside() {
            return Err(Error::InsidePass);
        }
        let entry = self.entry(key);
        {
            let mut control = self.control();
            let held = control.held.get_mut(&key.0).filter(|held| !held.dying).ok_or(Error::Unknown)?;
            if entry.windows.load(Ordering::Relaxed) > 0 {
                return Err(Error::Busy);
            }
            held.dying = true;
            // Returns false if the key was invalidated before; the entry is dead in either case.
            entry.kill(key.0);
            control.report(|| TableChange::Ended { key });
        }
        self.passes.quiesce();
        entry.clear();
        let mut control = self.control();
        let held = control.forget(key);
        drop(control);
        // Unmapping takes time, so it is not done under the mutex.
        drop(held);
        Ok(())
    }

    /// Ends a region after unbinding its windows, for owners that cannot wait for the users of the windows.
    ///
    /// # Errors
    /// The errors of [`deregister`](Table::deregister); `Busy` only if another thread binds a window to the
    /// region at the same time.
    pub fn revoke(&self, key: Key) -> Result<(), Error> {
        if self.passes.is_inside() {
            return Err(Error::InsidePass);
        }
        self.unbind_region(key);
        self.deregister(key)
    }

    /// Allocates `len` zeroed bytes of on-NIC memory, which are freed when the last clone is dropped. The
    /// scratch of connections ([`lend_scratch`](Table::lend_scratch)) is taken from the same memory.
    ///
    /// # Errors
    /// `Invalid` for `len` 0; `Full` if the memory is used up; inside a pass also while freed memory waits
    /// for passes to end.
    pub fn on_nic(&self, len: usize) -> Result<Bytes, Error> {
        let extent = self.take_on_nic(len, LINE)?;
        let whole = self.on_nic.as_ref().ok_or(Error::Full)?;
        let bytes = Bytes::on_nic(whole, extent).ok_or(Error::Full)?;
        for line in (0..len).step_by(64) {
            let _ = bytes.write(line, &[0; 64][..(len - line).min(64)]);
        }
        Ok(bytes)
    }

    /// Returns the number of registered regions.
    pub fn regions(&self) -> usize {
        self.control().held.len()
    }

    #[inline(always)]
    pub(crate) fn entry(&self, key: Key) -> &Entry {
        // SAFETY: the number of entries is a power of two, and `location` masks with it less one.
        unsafe { self.entries.get_unchecked(location(key, self.entries.len())) }
    }

    /// Enables 32-byte updates ([`Span::update`](crate::Span::update)) by engines of this table. Must be
    /// called before a queue pair is created that may request them. Calling it a second time only costs a
    /// mutex.
    ///
    /// With one engine nothing changes until a second one is created. With several engines the call waits
    /// for the passes in progress.
    /// # Errors
    /// `InsidePass` if the calling thread is inside a pass of an engine of this table; nothing changes then.
    pub fn use_wide(&self) -> Result<(), Error> {
        if self.passes().is_inside() {
            return Err(Error::InsidePass);
        }
        self.demand().use_wide(self.passes());
        Ok(())
    }

    pub(crate) fn passes(&self) -> &Arc<Passes> {
        &self.passes
    }

    pub(crate) fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Adds an engine and returns its lock. May wait for passes of the other engines.
    pub(crate) fn add_engine(&self) -> Arc<Pass> {
        assert!(
            !self.passes.is_inside(),
            "an engine was created inside a pass of another engine of the same table"
        );
        self.demand.add(&self.passes)
    }

    pub(crate) fn whole_on_nic(&self) -> Option<&Bytes> {
        self.on_nic.as_ref()
    }

    pub(crate) fn on_nic_parts(&self) -> &Allocator {
        &self.on_nic_parts
    }

    pub(crate) fn is_on_nic(&self, at: *const u8) -> bool {
        self.on_nic
            .as_ref()
            .is_some_and(|bytes| (at as u64).wrapping_sub(bytes.address()) < bytes.len() as u64)
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("regions", &self.regions()).finish_non_exhaustive()
    }
}

impl Control {
    fn alloc_pd(&mut self) -> Result<Pd, Error> {
        let index = if self.pds.len() < self.config.max_pds {
            self.pds.push(Domain { live: None, generation: 0, users: 0 });
            self.pds.len() - 1
        } else {
            self.free_pds.pop_front().ok_or(Error::Full)?
        };
        let domain = &mut self.pds[index];
        let pd = Pd(domain.generation << PD_INDEX_BITS | (index as u32 + 1));
        domain.generation = domain.generation.wrapping_add(1);
        domain.live = Some(pd);
        Ok(pd)
    }

    pub(crate) fn domain(&mut self, pd: Pd) -> Result<&mut Domain, Error> {
        let domain = self.pds.get_mut(index_of(pd)).ok_or(Error::Unknown)?;
        if domain.live == Some(pd) { Ok(domain) } else { Err(Error::Unknown) }
    }

    fn register(
        &mut self,
        entries: &[Entry],
        pd: Pd,
        mut pieces: Vec<Piece>,
        bytes: Vec<Bytes>,
        access: Access,
    ) -> Result<Key, Error> {
        lay_out(&mut pieces, access)?;
        let key = self.hold(pd, pieces, bytes)?;
        // The entry points to the copy of the pieces that `held` keeps.
        let pieces = self.held.get(&key.0).map_or(&[][..], |held| &held.pieces);
        entries[location(key, entries.len())].publish(key.0, pd.0, access.0, pieces);
        self.report_region(key, access);
        Ok(key)
    }

    /// Reserves a location for a region; its entry is still dead.
    pub(crate) fn hold(&mut self, pd: Pd, pieces: Vec<Piece>, bytes: Vec<Bytes>) -> Result<Key, Error> {
        self.domain(pd)?;
        if self.held.len() >= self.config.max_regions || pieces.len() > self.config.max_ranges - self.ranges {
            return Err(Error::Full);
        }
        let issued = self.keyring.take().ok_or(Error::Full)?;
        self.domain(pd)?.users += 1;
        self.ranges += pieces.len();
        let ranges = pieces.len();
        self.held.insert(issued.key.0, Held { issued, pd, ranges, dying: false, pieces, _bytes: bytes });
        Ok(issued.key)
    }

    /// Removes a region that no pass can see any more.
    fn forget(&mut self, key: Key) -> Option<Held> {
        let held = self.held.remove(&key.0)?;
        self.ranges -= held.ranges;
        if let Ok(domain) = self.domain(held.pd) {
            domain.users -= 1;
        }
        self.keyring.give_back(held.issued);
        Some(held)
    }
}

/// Sorts the pieces by address. Refuses pieces that cannot form a region.
fn lay_out(pieces: &mut [Piece], access: Access) -> Result<(), Error> {
    pieces.sort_unstable_by_key(|piece| piece.iova);
    let lowest = pieces.first().ok_or(Error::Invalid)?.iova;
    if !access.registrable() {
        return Err(Error::Invalid);
    }
    for piece in pieces.iter_mut() {
        if access.contains(Access::ZERO_BASED) {
            piece.iova -= lowest;
        }
        if piece.iova.checked_add(piece.len.saturating_sub(1)).is_none() {
            return Err(Error::Invalid);
        }
    }
    let overlap = |pair: &[Piece]| pair[1].iova - pair[0].iova < pair[0].len;
    if pieces.windows(2).any(overlap) { Err(Error::Invalid) } else { Ok(()) }
}

fn index_of(pd: Pd) -> usize {
    ((pd.0 & ((1 << PD_INDEX_BITS) - 1)) as usize).wrapping_sub(1)
}

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;
