//! Code regions: one key for the slots of a chain's queues and for the chain's data.

use remora_memory::{Access, Bytes, Range};
use remora_nic::Device;

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
        let device = self.device();
        let mut memory: Vec<Bytes> = Vec::with_capacity(sections.len());
        for section in sections {
            memory.push(match on_nic {
                true => device.engine()?.table().on_nic(section.len)?,
                false => device.allocate(section.len)?,
            });
        }
        let data = memory.iter().zip(sections).map(|(bytes, section)| Range::at(bytes, section.iova));
        let code = slots.iter().map(|(pair, iova)| Range { iova: *iova, ..pair.code() });
        let region = self.register_ranges(&data.chain(code).collect::<Vec<_>>(), RIGHTS)?;
        Ok((region, memory.into_iter().map(|bytes| (bytes, 0)).collect()))
    }
}
