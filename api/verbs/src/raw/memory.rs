//! Protection domains, regions and windows of the raw layer. The table of a process's own NIC has them, or
//! the daemon that lends the NIC.

use remora_memory::{Access, AccessError, Bytes, Key, MemoryCommand, Pd, Range, WindowType};
use remora_nic::{Device, ObjectName};

use super::ChannelAdapter;
use crate::CreateError;

impl ChannelAdapter {
    /// Executes a command of the memory table that gives a key.
    fn key_of(&self, command: MemoryCommand<'_>) -> Result<Key, CreateError> {
        Ok(self.handle().memory(command)?.key().ok_or(remora_memory::Error::Unknown)?)
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// `Memory(Full)`; `Forked` in a forked child.
    pub fn alloc_domain(&self) -> Result<Pd, CreateError> {
        self.refuse_child()?;
        let domain = self.handle().memory(MemoryCommand::AllocDomain)?.domain();
        Ok(domain.ok_or(remora_memory::Error::Unknown)?)
    }

    /// Frees a protection domain.
    ///
    /// # Errors
    /// `Memory(Busy)` while an object uses it; `Forked` in a forked child.
    pub fn free_domain(&self, domain: Pd) -> Result<(), CreateError> {
        self.refuse_child()?;
        self.handle().memory(MemoryCommand::FreeDomain(domain))?;
        Ok(())
    }

    /// Counts one user of a domain more. A daemon counts the users of its domains itself.
    pub(super) fn retain_domain(&self, domain: Pd) -> Result<(), CreateError> {
        Ok(self.table().map_or(Ok(()), |table| table.retain_pd(domain))?)
    }

    /// Counts one user of a domain less.
    pub(super) fn release_domain(&self, domain: Pd) {
        let released = self.table().map_or(Ok(()), |table| table.release_pd(domain));
        debug_assert!(released.is_ok(), "the caller is a user of the domain");
    }

    /// Registers ranges of memory as one region.
    ///
    /// # Errors
    /// `Memory` with the refusal of the table; `Forked` in a forked child. A daemon refuses memory without a
    /// descriptor.
    pub fn register(&self, domain: Pd, ranges: &[Range], access: Access) -> Result<Key, CreateError> {
        self.refuse_child()?;
        self.key_of(MemoryCommand::Register { pd: domain, ranges, access })
    }

    /// Registers memory of the process that a daemon maps, too. It keeps its bytes as long as the process
    /// runs, also if the daemon ends the attachment.
    ///
    /// # Errors
    /// The errors of [`register`](ChannelAdapter::register).
    pub fn register_own(&self, domain: Pd, ranges: &[Range], access: Access) -> Result<Key, CreateError> {
        match self.handle().daemon() {
            Some(daemon) => daemon.register_own(domain, ranges, access),
            None => self.register(domain, ranges, access),
        }
    }

    /// Registers memory that the caller owns, as `ibv_reg_mr_iova2` does. `len` may be 0.
    ///
    /// # Errors
    /// The errors of [`register`](ChannelAdapter::register); `NotByDaemon` for the NIC of a daemon.
    ///
    /// # Safety
    /// From now until [`deregister`](ChannelAdapter::deregister) has returned `Ok`, the following must hold.
    /// The `len` bytes from `start` on stay mapped, readable and, if `access` allows any write, writable; or
    /// page faults are handled ([`page_fault`](crate::page_fault)). No Rust reference to the bytes is used,
    /// because they may change at any time.
    pub unsafe fn register_raw(
        &self,
        domain: Pd,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Key, CreateError> {
        self.refuse_child()?;
        let table = self.table().ok_or(CreateError::NotByDaemon)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { table.register_raw(domain, start, len, iova, access) }?)
    }

    /// Registers all addresses of the process, as `ibv_reg_mr` does for implicit on-demand paging.
    ///
    /// # Errors
    /// The errors of [`register_raw`](ChannelAdapter::register_raw).
    ///
    /// # Safety
    /// Page faults must be handled ([`page_fault`](crate::page_fault)). Every user of the key may read, and
    /// if `access` allows also write, every byte of the process.
    pub unsafe fn register_all(&self, domain: Pd, access: Access) -> Result<Key, CreateError> {
        self.refuse_child()?;
        let table = self.table().ok_or(CreateError::NotByDaemon)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { table.register_all(domain, access) }?)
    }

    /// Gives a region other memory, another domain or other rights. The region keeps its key.
    ///
    /// # Errors
    /// The errors of [`register_raw`](ChannelAdapter::register_raw), and `Memory(Busy)` while windows are
    /// bound to the region.
    ///
    /// # Safety
    /// As for [`register_raw`](ChannelAdapter::register_raw).
    pub unsafe fn reregister_raw(
        &self,
        key: Key,
        domain: Pd,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<(), CreateError> {
        self.refuse_child()?;
        let table = self.table().ok_or(CreateError::NotByDaemon)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { table.reregister_raw(key, domain, start, len, iova, access) }?)
    }

    /// Registers a null region: reads return zeros, and writes are discarded.
    ///
    /// # Errors
    /// The errors of [`register`](ChannelAdapter::register).
    pub fn register_null(&self, domain: Pd) -> Result<Key, CreateError> {
        self.refuse_child()?;
        self.key_of(MemoryCommand::RegisterNull(domain))
    }

    /// Ends a region. When this returns, the NIC accesses the memory no more.
    ///
    /// # Errors
    /// `Memory(Busy)` while windows are bound to the region; `Memory(Unknown)`; `Forked` in a forked child.
    pub fn deregister(&self, key: Key) -> Result<(), CreateError> {
        self.refuse_child()?;
        self.handle().memory(MemoryCommand::Deregister(key))?;
        Ok(())
    }

    /// Like [`deregister`](ChannelAdapter::deregister). `take` runs when the NIC accesses the memory no more,
    /// and before a daemon frees the memory that the process shares with it.
    ///
    /// # Errors
    /// The errors of [`deregister`](ChannelAdapter::deregister); `take` has not run then.
    pub fn deregister_and(&self, key: Key, take: impl FnOnce()) -> Result<(), CreateError> {
        let Some(daemon) = self.handle().daemon() else {
            return self.deregister(key).map(|()| take());
        };
        self.refuse_child()?;
        let memory = daemon.retire(key)?;
        take();
        daemon.free_memory(memory);
        Ok(())
    }

    /// Allocates a window.
    ///
    /// # Errors
    /// `Memory(Full)`; `Forked` in a forked child.
    pub fn alloc_window(&self, domain: Pd, kind: WindowType) -> Result<Key, CreateError> {
        self.refuse_child()?;
        self.key_of(MemoryCommand::AllocWindow { pd: domain, kind })
    }

    /// Frees a window, bound or not.
    ///
    /// # Errors
    /// `Memory(Unknown)`; `Forked` in a forked child.
    pub fn free_window(&self, key: Key) -> Result<(), CreateError> {
        self.refuse_child()?;
        self.handle().memory(MemoryCommand::FreeWindow(key))?;
        Ok(())
    }

    /// Allocates `len` bytes of on-NIC memory, which the last clone frees. On the NIC of a daemon it is
    /// memory that this process and the daemon share.
    ///
    /// # Errors
    /// `Memory(Full)` if the memory is used up; `Forked` in a forked child.
    pub fn on_nic(&self, len: usize) -> Result<Bytes, CreateError> {
        self.refuse_child()?;
        match self.table() {
            Some(table) => Ok(table.on_nic(len)?),
            None => Ok(self.handle().allocate(len)?),
        }
    }

    /// Checks that the NIC may read these bytes by this local key. A daemon checks each access only when it
    /// happens.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn check_bytes(&self, domain: Pd, key: Key, addr: u64, len: u32) -> Result<(), AccessError> {
        self.handle().engine().map_or(Ok(()), |engine| engine.probe(domain, key, addr, len as usize))
    }

    /// Makes a daemon keep an object when this process ends, if the tenant is a kept one.
    pub(super) fn keep(&self, object: ObjectName) -> Result<(), CreateError> {
        match self.handle().daemon().filter(|daemon| daemon.keeps()) {
            Some(daemon) => daemon.note(object, &(), None),
            None => Ok(()),
        }
    }
}
