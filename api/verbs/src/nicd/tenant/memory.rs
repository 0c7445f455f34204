//! Protection domains, regions and windows of a tenant.

use remora_memory::{Access, Bytes, Key, MemoryCommand, MemoryReply, Pd, Range, WindowType};
use remora_nic::ObjectName;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::message::{Refusal, Reply, SentRange, TableCommand};
use super::super::users::{Amounts, Resource};
use super::lent_memory::MemoryOwner;
pub(super) use super::regions::{Domain, Region};
use super::{ReplyResult, Tenant, sent_len, words};

/// A range of a null region, which has no memory.
const NO_RANGE: SentRange = SentRange { descriptor: 0, offset: 0, len: 0, iova: 0 };

impl Tenant {
    /// Executes a command of the memory table that names objects of this tenant.
    pub(super) fn table_command(&mut self, command: TableCommand, memory: Vec<OwnedFd>) -> ReplyResult {
        let done = || Ok((Reply::Done, Vec::new()));
        match command {
            TableCommand::AllocDomain => self.alloc_domain(),
            TableCommand::FreeDomain(pd) => {
                self.refuse_unknown(ObjectName::Domain(pd))?;
                self.table().free_pd(pd)?;
                self.domains.remove(&pd.get());
                done()
            }
            TableCommand::Register { pd, access, ranges, own } => {
                let owner = if own { Some(self.memory_owner()?) } else { None };
                self.register(pd, access, &ranges, memory, owner)
            }
            TableCommand::RegisterNull(pd) => {
                self.refuse_unknown(ObjectName::Domain(pd))?;
                let claim = self.claim(Resource::Region)?;
                let key = self.key_of(MemoryCommand::RegisterNull(pd))?;
                self.keep_region(Region {
                    key,
                    pd,
                    name: String::new(),
                    first: NO_RANGE,
                    blocks: Vec::new(),
                    claim: Some(claim),
                    owner: None,
                })
            }
            TableCommand::Deregister(key) => {
                self.deregister(MemoryCommand::Deregister(key), key).and_then(|_| done())
            }
            TableCommand::Revoke(key) => {
                self.deregister(MemoryCommand::Revoke(key), key).and_then(|_| done())
            }
            TableCommand::Retire(key) => {
                let region = self.deregister(MemoryCommand::Deregister(key), key)?;
                Ok((Reply::Number(self.retired.keep(region)), Vec::new()))
            }
            TableCommand::FreeMemory(number) => {
                let known = self.retired.regions.remove(&number);
                let unknown = || super::unknown("memory of an ended region with number", number);
                // The program has pages of its own again.
                known.ok_or_else(unknown)?.owner = None;
                done()
            }
            TableCommand::AllocWindow { pd, second } => {
                self.refuse_unknown(ObjectName::Domain(pd))?;
                let claim = self.claim(Resource::Window)?;
                let kind = if second { WindowType::Type2B } else { WindowType::Type1 };
                let key = self.key_of(MemoryCommand::AllocWindow { pd, kind })?;
                self.windows.insert(window(key), claim);
                Ok((Reply::Key(key), Vec::new()))
            }
            TableCommand::QueryWindow(key) => {
                self.refuse_unknown_window(key)?;
                Ok((Reply::Key(self.key_of(MemoryCommand::QueryWindow(key))?), Vec::new()))
            }
            TableCommand::FreeWindow(key) => {
                self.refuse_unknown_window(key)?;
                self.table().free_window(key)?;
                self.windows.remove(&window(key));
                done()
            }
        }
    }

    fn refuse_unknown(&self, name: ObjectName) -> Result<(), Refusal> {
        self.refusal_of(name).map_or(Ok(()), Err)
    }

    fn refuse_unknown_window(&self, key: Key) -> Result<(), Refusal> {
        match self.windows.contains_key(&window(key)) {
            true => Ok(()),
            false => Err(super::unknown("memory window with key", key.get())),
        }
    }

    fn key_of(&self, command: MemoryCommand<'_>) -> Result<Key, Refusal> {
        let reply = self.table().execute(command)?;
        reply.key().ok_or_else(|| "the table gives no key".into())
    }

    fn alloc_domain(&mut self) -> ReplyResult {
        let claim = self.claim(Resource::Domain)?;
        let MemoryReply::Domain(pd) = self.table().execute(MemoryCommand::AllocDomain)? else {
            return Err("the table gives no protection domain".into());
        };
        self.domains.insert(pd.get(), Domain { pd, _claim: claim });
        Ok((Reply::Domain(pd), Vec::new()))
    }

    /// The attached program as the owner of memory.
    fn memory_owner(&self) -> Result<MemoryOwner, Refusal> {
        let process = self.process.clone().ok_or(
            "the NIC daemon cannot see this process, and so cannot share its memory: run both in one pid namespace",
        )?;
        Ok(MemoryOwner { process, outliving: Arc::clone(&self.outliving) })
    }

    fn register(
        &mut self,
        pd: Pd,
        access: Access,
        sent: &[SentRange],
        memory: Vec<OwnedFd>,
        owner: Option<MemoryOwner>,
    ) -> ReplyResult {
        self.refuse_unknown(ObjectName::Domain(pd))?;
        // Mapping the memory allocates its pages.
        let lens = memory.iter().map(sent_len).collect::<Result<Vec<u64>, Refusal>>()?;
        let claim = self.claim_all(of_region(&lens))?;
        let mut blocks = Vec::with_capacity(memory.len());
        for (memory, len) in memory.into_iter().zip(lens) {
            let len = usize::try_from(len).map_err(words)?;
            blocks.push(Bytes::from_memfd_of(memory, len)?);
        }
        let mut ranges = Vec::with_capacity(sent.len());
        for range in sent {
            let bytes = blocks.get(usize::from(range.descriptor)).ok_or("a range without memory")?.clone();
            let [offset, len] =
                [range.offset, range.len].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
            ranges.push(Range { bytes, offset, len, iova: range.iova });
        }
        let first = *sent.first().ok_or("a region without ranges")?;
        let key = self.key_of(MemoryCommand::Register { pd, ranges: &ranges, access })?;
        let blocks = blocks.into_iter().map(|bytes| self.memories.lend(bytes)).collect();
        self.keep_region(Region { key, pd, name: String::new(), first, blocks, claim: Some(claim), owner })
    }

    fn keep_region(&mut self, region: Region) -> ReplyResult {
        let key = region.key;
        self.regions.insert(key.get(), region);
        Ok((Reply::Key(key), Vec::new()))
    }

    pub(super) fn name_region(&mut self, key: u32, name: String) -> Result<(), Refusal> {
        if !name.is_empty() && self.regions.values().any(|region| region.name == name) {
            return Err(format!(
                "there is a region `{name}` already: take it out of what was kept, or give it back"
            )
            .into());
        }
        let region = self.regions.get_mut(&key).ok_or_else(|| super::unknown("region with key", key))?;
        region.name = name;
        Ok(())
    }

    /// Ends a region and takes it out of the tenant.
    fn deregister(&mut self, command: MemoryCommand<'_>, key: Key) -> Result<Region, Refusal> {
        let key = key.get();
        let unknown = || super::unknown("region with key", key);
        if !self.regions.contains_key(&key) {
            return Err(unknown());
        }
        self.exposed.retain(|_, exposed| exposed.region != key);
        self.table().execute(command)?;
        self.regions.remove(&key).ok_or_else(unknown)
    }

    /// Ends the windows and the regions without memory, of which a later program does not learn.
    pub(super) fn end_unlisted_memory(&mut self) {
        for window in std::mem::take(&mut self.windows).into_keys() {
            let ended = self.table().free_window(Key::new(window << 8));
            debug_assert!(ended.is_ok(), "only its tenant ends a window: {ended:?}");
        }
        let empty = |region: &Region| region.blocks.is_empty();
        for region in self.regions.extract_if(.., |_, region| empty(region)).map(|(_, region)| region.key) {
            let ended = self.engine.table().revoke(region);
            debug_assert!(ended.is_ok(), "only its tenant ends a region: {ended:?}");
        }
    }

    /// Ends all windows, regions and domains.
    pub(super) fn end_memory(&mut self) {
        self.end_unlisted_memory();
        let table = Arc::clone(self.table());
        for (_, region) in std::mem::take(&mut self.regions) {
            let ended = table.revoke(region.key);
            debug_assert!(ended.is_ok(), "only its tenant ends a region: {ended:?}");
        }
        for (_, domain) in std::mem::take(&mut self.domains) {
            let ended = table.free_pd(domain.pd);
            debug_assert!(ended.is_ok(), "all users of the domain have ended: {ended:?}");
        }
    }
}

/// The amounts of a region of several memories.
fn of_region(lens: &[u64]) -> Amounts {
    let bytes = lens.iter().fold(0, |sum: u64, len| sum.saturating_add(*len));
    Amounts::of(Resource::Region, 1).and(Resource::Byte, bytes).and(Resource::Descriptor, lens.len() as u64)
}

/// The part of a window's key that stays when the window is bound.
fn window(key: Key) -> u32 {
    key.get() >> 8
}
