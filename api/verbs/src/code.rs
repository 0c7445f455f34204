//! Code regions: one key for the slots of a chain's queues and for the chain's data.

use remora_memory::{Access, Bytes, Range};

use crate::nicd::DaemonClient;
use crate::nicd::message::{CodeOf, CodePart, CreateCode, MAX_PARTS};
use crate::{CreateError, MemoryRegion, ProtectionDomain, QueuePair};

/// All rights: a chain reads and writes its own memory, and changes it by atomics.
const RIGHTS: Access = Access::from_bits(0xf).expect("four rights");

/// A section of a chain program's data: its length in bytes and the address of its first byte.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Section {
    pub len: usize,
    pub iova: u64,
}

/// The place of a section: a block of memory, and the offset of the section's first byte in it.
pub(crate) type Placed = (Bytes, usize);

/// Queue pairs, each with the address of its first slot.
pub(crate) type Slots<'a> = (&'a QueuePair, u64);

impl ProtectionDomain {
    /// Creates a code region with zeroed memory for `sections`. Returns the region and the place of each
    /// section.
    pub(crate) fn create_code(
        &self,
        sections: &[Section],
        slots: &[Slots<'_>],
        on_nic: bool,
    ) -> Result<(MemoryRegion, Vec<Placed>), CreateError> {
        match self.context().daemon() {
            Some(_) if on_nic => Err(CreateError::NotByDaemon),
            Some(daemon) => self.code_of_daemon(daemon, sections, slots),
            None => self.own_code(sections, slots, on_nic),
        }
    }

    fn own_code(
        &self,
        sections: &[Section],
        slots: &[Slots<'_>],
        on_nic: bool,
    ) -> Result<(MemoryRegion, Vec<Placed>), CreateError> {
        let table = self.context().adapter()?.table();
        let memory = |section: &Section| match on_nic {
            true => table.on_nic(section.len),
            false => Bytes::heap(section.len),
        };
        let memory = sections.iter().map(memory).collect::<Result<Vec<Bytes>, _>>()?;
        let data = memory.iter().zip(sections).map(|(bytes, section)| Range::at(bytes, section.iova));
        let code = slots.iter().map(|(pair, iova)| Range { iova: *iova, ..pair.code() });
        let region = self.register_ranges(&data.chain(code).collect::<Vec<_>>(), RIGHTS)?;
        Ok((region, memory.into_iter().map(|bytes| (bytes, 0)).collect()))
    }

    /// Like [`create_code`], in the daemon's memory: the chain continues when this program has ended.
    fn code_of_daemon(
        &self,
        daemon: &DaemonClient,
        sections: &[Section],
        slots: &[Slots<'_>],
    ) -> Result<(MemoryRegion, Vec<Placed>), CreateError> {
        let count = sections.len() + slots.len();
        if count > MAX_PARTS {
            return Err(CreateError::TooMany("queues and sections", count as u64, MAX_PARTS as u64));
        }
        let mut parts = Vec::with_capacity(count);
        let mut places = Vec::new();
        let mut len = 0;
        for section in sections {
            let source = CodeOf::Memory(len as u64, section.len as u64);
            parts.push(CodePart { of: source, iova: section.iova });
            places.push(len);
            len += section.len.next_multiple_of(64);
        }
        let code = |(pair, iova): &Slots<'_>| CodePart { of: CodeOf::Pair(pair.number()), iova: *iova };
        parts.extend(slots.iter().map(code));
        let asked = CreateCode { domain: self.number()?, len: len.max(64) as u64, parts };
        let (facts, bytes) = daemon.create_code(asked)?;
        let placed = places.into_iter().map(|offset| (bytes.clone(), offset)).collect();
        Ok((MemoryRegion::lent(self, &facts, bytes), placed))
    }
}
