//! Memory windows (`ibv_mw`), and the null region.

use remora_memory::{Access, Binding, Key, MemoryCommand, WindowType};
use remora_nic::{Operation, Sge, WorkRequest};

use crate::{CreateError, MemoryRegion, ProtectionDomain, work};

/// A memory window: a part of a region under a key of its own, which work requests bind and invalidate.
/// Dropping the window deallocates it.
///
/// ```
/// use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, Status, WindowType, work};
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(64)?;
/// let pair = || domain.create_qp(&cq, &cq, &QpOptions::default());
/// let (mut user, mut owner) = QueuePair::connect_pair(pair()?, pair()?)?;
/// let region = domain.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let mut window = domain.allocate_window(WindowType::Type2B)?;
///
/// let mut run = |pair: &mut QueuePair, request| -> Result<Status, Box<dyn std::error::Error>> {
///     pair.post_send(&request)?;
///     let mut done = [EMPTY; 1];
///     cq.wait(&mut done, std::time::Duration::from_secs(1))?;
///     Ok(done[0].status)
/// };
/// assert_eq!(run(&mut owner, window.bind(1, &region, 64, 16, Access::REMOTE_WRITE))?, Status::Success);
/// let there = window.remote(0);
/// assert_eq!(run(&mut user, work::write_inline(2, b"through it", there))?, Status::Success);
/// assert_eq!(region.get::<[u8; 10]>(64)?, *b"through it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryWindow {
    domain: ProtectionDomain,
    kind: WindowType,
    key: Key,
    /// Address of the window's first byte for peers, as last bound.
    first: u64,
}

impl MemoryWindow {
    pub(crate) fn new(domain: &ProtectionDomain, kind: WindowType) -> Result<MemoryWindow, CreateError> {
        domain.context().refuse_child()?;
        let key = domain.key_of(MemoryCommand::AllocWindow { pd: domain.pd(), kind })?;
        Ok(MemoryWindow { domain: domain.clone(), kind, key, first: 0 })
    }

    /// Type 1, or type 2B (IBTA vol. 1 §10.6.7).
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The window's key (R_Key), to be sent to peers. Each [`bind`](MemoryWindow::bind) gives the window
    /// another key.
    pub fn rkey(&self) -> Key {
        self.key
    }

    /// Returns the remote address `offset` bytes into the window, for a peer's work request.
    pub fn remote(&self, offset: u64) -> remora_nic::Remote {
        remora_nic::Remote { addr: self.first.wrapping_add(offset), rkey: self.key }
    }

    /// Returns the work request that gives peers access to `len` bytes of `region` from `offset` on, with
    /// these rights. [`rkey`](MemoryWindow::rkey) returns the new key from now on; peers can use the key once
    /// the request has succeeded. If the request fails or is never posted, the window keeps its previous key.
    /// [`look`](MemoryWindow::look) then restores it, and the window can be bound again.
    ///
    /// With [`Access::ZERO_BASED`] (type 2 only) the window's addresses count from 0. A length of 0 unbinds a
    /// window of type 1.
    pub fn bind(
        &mut self,
        id: u64,
        region: &MemoryRegion,
        offset: usize,
        len: usize,
        access: Access,
    ) -> WorkRequest<'static> {
        let window = self.key;
        let key = self.key.next();
        let va = region.address().wrapping_add(offset as u64);
        self.key = key;
        self.first = if access.contains(Access::ZERO_BASED) { 0 } else { va };
        let binding = Binding { window, key, region: region.lkey(), va, len: len as u64, access };
        work::request(id, Operation::BindWindow(binding), &[])
    }

    /// Reads the window's present key from the NIC, after a binding that was not executed.
    pub fn look(&mut self) {
        if !self.domain.context().fork().is_child() {
            self.key = self.domain.key_of(MemoryCommand::QueryWindow(self.key)).unwrap_or(self.key);
        }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if !self.domain.context().fork().is_child() {
            self.domain.device().end_memory(MemoryCommand::FreeWindow(self.key));
        }
    }
}

/// The null region (`ibv_alloc_null_mr`). Bytes received into it are discarded; bytes sent from it are
/// zeros.
///
/// ```
/// use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, work};
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(64)?;
/// let pair = || domain.create_qp(&cq, &cq, &QpOptions::default());
/// let (mut pair, _peer) = QueuePair::connect_pair(pair()?, pair()?)?;
/// let here = domain.allocate(64, Access::LOCAL_WRITE)?;
/// let there = domain.allocate(64, Access::REMOTE_READ)?;
/// there.write(0, b"header:payload")?;
///
/// // Skip the first seven bytes, "header:".
/// let nothing = domain.null_region()?;
/// pair.post_send(&work::read(1, &[nothing.sge(7), here.sge(0, 7)], there.remote(0)))?;
/// cq.wait(&mut [EMPTY; 1], std::time::Duration::from_secs(1))?;
/// assert_eq!(here.get::<[u8; 7]>(0)?, *b"payload");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NullRegion {
    domain: ProtectionDomain,
    key: Key,
}

impl NullRegion {
    pub(crate) fn new(domain: &ProtectionDomain) -> Result<NullRegion, CreateError> {
        domain.context().refuse_child()?;
        let key = domain.key_of(MemoryCommand::RegisterNull(domain.pd()))?;
        Ok(NullRegion { domain: domain.clone(), key })
    }

    /// The local key (L_Key). A null region has no remote key.
    pub fn lkey(&self) -> Key {
        self.key
    }

    /// Returns a scatter/gather list element of `len` bytes, which are discarded or zero.
    pub fn sge(&self, len: u32) -> Sge {
        Sge { addr: 0, len, lkey: self.key }
    }
}

impl Drop for NullRegion {
    fn drop(&mut self) {
        if !self.domain.context().fork().is_child() {
            self.domain.device().end_memory(MemoryCommand::Deregister(self.key));
        }
    }
}
