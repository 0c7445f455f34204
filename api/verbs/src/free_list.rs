//! Free lists of PRISM: buffers that the ALLOCATE operation takes without the server's CPU.

use remora_nic::prism::{FreeListFacts, FreeListInit};
use remora_nic::{Command, MAX_WORDS, NicError, ReceiveQueue};

use crate::engine_handle::EngineHandle;
use crate::{CreateError, MemoryRegion, PostError, ProtectionDomain};

/// Attributes of a new free list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FreeListOptions {
    /// Offset of the first buffer in its region, in bytes.
    pub offset: usize,
    /// Size of each buffer in bytes, which bounds the values stored in it.
    pub size: u32,
    /// The number of buffers, up to 2^24.
    pub count: u32,
    /// The engine that serves the list. Only queue pairs of that engine allocate from it.
    pub engine: usize,
}

/// A free list of PRISM. Only queue pairs of its protection domain allocate from it, with the key of its
/// region.
///
/// ```
/// use remora_verbs::prism::{Address, Data, Operation, Verdict, WorkRequest};
/// use remora_verbs::{Access, Device, EMPTY, Flags, FreeListOptions, Payload, QpOptions, QueuePair};
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(64)?;
/// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
/// let (server, client) = (domain.allocate(1 << 16, access)?, domain.allocate(4096, Access::LOCAL_WRITE)?);
/// let options = FreeListOptions { offset: 4096, size: 1024, count: 16, engine: 0 };
/// let mut list = domain.create_free_list(&server, &options)?;
/// for index in 0..16 {
///     list.post(index)?;
/// }
/// let options = QpOptions { prism: true, ..QpOptions::default() };
/// let (a, b) = (domain.create_qp(&cq, &cq, &options)?, domain.create_qp(&cq, &cq, &options)?);
/// let (mut a, _b) = QueuePair::connect_pair(a, b)?;
///
/// // Allocate a buffer, write the value to it, and store its address in the server's first word, all in
/// // one round trip.
/// let data = Data::Local(Payload::Inline(b"a value"));
/// a.post_prism(&WorkRequest {
///     id: 1,
///     operation: Operation::Allocate { list: list.number(), rkey: server.rkey(), data },
///     conditional: false,
///     redirect: Some(server.remote(0).addr),
///     result: None,
///     flags: Flags { signaled: true, ..Flags::default() },
/// })?;
/// a.post_prism(&WorkRequest {
///     id: 2,
///     operation: Operation::Read {
///         from: Address::indirect(server.remote(0)),
///         len: 7,
///         into: &[client.sge(0, 7)],
///     },
///     conditional: true,
///     redirect: None,
///     result: None,
///     flags: Flags { signaled: true, ..Flags::default() },
/// })?;
/// let (mut done, mut came) = ([EMPTY; 2], 0);
/// while came < 2 {
///     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
/// }
/// assert!(done.iter().all(|wc| wc.outcome == Verdict::Done));
/// assert_eq!(client.get::<[u8; 7]>(0)?, *b"a value");
/// assert_eq!(list.facts()?.free, 15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FreeList {
    number: u64,
    base: u64,
    size: u32,
    engine: EngineHandle,
    domain: ProtectionDomain,
    posts: ReceiveQueue,
}

impl Drop for FreeList {
    fn drop(&mut self) {
        if !self.domain.context().fork().is_child() {
            self.engine.end(Command::DestroyFreeList { list: self.number });
        }
    }
}

impl FreeList {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        region: &MemoryRegion,
        options: &FreeListOptions,
    ) -> Result<FreeList, CreateError> {
        domain.context().refuse_child()?;
        let engine = domain.context().engine_handle(options.engine)?;
        let most = u64::from(remora_nic::MAX_RING_SLOTS);
        if !(1..=most).contains(&u64::from(options.count)) {
            return Err(CreateError::TooMany("count", options.count.into(), most));
        }
        if options.size == 0 {
            return Err(CreateError::TooMany("size", 0, u32::MAX.into()));
        }
        let bytes = u64::from(options.count) * u64::from(options.size);
        let left = (region.len() as u64).checked_sub(options.offset as u64);
        if left.is_none_or(|left| bytes > left) {
            return Err(CreateError::Nic(NicError::TooSmall));
        }
        let base = region.remote(options.offset as u64).addr;
        let size = options.size;
        let count = options.count;
        let (posts, ring) = engine.queue(count)?;
        let init = FreeListInit { pd: domain.pd(), ring, base, size, count };
        let number = engine.ask(Command::CreateFreeList(init))?;
        let domain = domain.clone();
        Ok(FreeList { number, base, size, engine, domain, posts: ReceiveQueue::new(posts, 1) })
    }

    /// The number by which ALLOCATE names the list.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the address of buffer `index`, as peers use it.
    pub fn address(&self, index: u32) -> u64 {
        self.base + u64::from(index) * u64::from(self.size)
    }

    /// Returns the index of the buffer at an address that a client sent, or `None` if no buffer can begin
    /// there. The index may exceed the number of buffers.
    pub fn index(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        let index = u32::try_from(offset / u64::from(self.size)).ok()?;
        offset.is_multiple_of(u64::from(self.size)).then_some(index)
    }

    /// Makes a buffer free for the next allocation. The owner posts each buffer once after the list was
    /// created, and later whenever a buffer is no longer used. If an operation may still access the buffer,
    /// it rests until that operation has ended. The NIC counts and ignores an index that is out of bounds or
    /// free already.
    ///
    /// # Errors
    /// `Queue(QueueFull)` if as many posts wait as there are buffers; `Forked` in a forked child.
    pub fn post(&mut self, index: u32) -> Result<(), PostError> {
        if self.domain.context().fork().is_child() {
            return Err(PostError::Forked);
        }
        Ok(self.posts.post_buffer(self.address(index))?)
    }

    /// Marks in `bits` the buffers that are neither free nor resting. Bit 0 of the first word stands for
    /// buffer `first`; bits beyond the last buffer are 0. A server uses it to find the buffers of dead
    /// clients.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn out(&self, first: u32, bits: &mut [u64]) -> Result<(), CreateError> {
        self.domain.context().refuse_child()?;
        let mut first = first;
        for part in bits.chunks_mut(MAX_WORDS as usize) {
            let command = Command::FindBuffers { list: self.number, first, words: part.len() as u32 };
            part.copy_from_slice(&self.engine.ask::<Vec<u64>>(command)?);
            first = first.saturating_add(part.len() as u32 * u64::BITS);
        }
        Ok(())
    }

    /// The numbers of free, resting and allocated buffers.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn facts(&self) -> Result<FreeListFacts, CreateError> {
        self.domain.context().refuse_child()?;
        self.engine.ask(Command::QueryFreeList { list: self.number })
    }
}
