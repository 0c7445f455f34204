//! The requests of PRISM-RS to a replica: the READs of a read phase, and the chain of a write phase.

use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest};
use remora_nic::{Flags, Payload, PostError, Remote, Sge};

use super::super::grant::WORD;
use super::super::{Grant, Tag};
use crate::PostPrism;

/// Maximum number of send queue slots that a READ and a chain take together.
pub(crate) const SLOTS: u32 = 2 + 3 + 2 + 3;

const SIGNALED: Flags = Flags { signaled: true, ..QUIET };
const QUIET: Flags = Flags { signaled: false, solicited: false, fence: false };
const TAG_ONLY: [u64; 4] = [u64::MAX, 0, 0, 0];
const NOTHING: [u64; 4] = [0; 4];
const WHOLE: [u64; 4] = [u64::MAX, u64::MAX, 0, 0];

/// The local memory to which a chain's results are returned.
pub(crate) struct Answers {
    /// The previous metadata: 16 bytes. Unchanged if no buffer was free.
    pub old: Sge,
    /// The address of the new buffer: 8 bytes; 0 if no buffer was free.
    pub mine: Sge,
}

fn entry(grant: &Grant, block: u64) -> Remote {
    Remote { addr: grant.table.addr + grant.layout.entry(block) as u64, rkey: grant.table.rkey }
}

/// Posts an indirect READ of a block's tag and value through the address in its metadata.
pub(crate) fn read(
    grant: &Grant,
    block: u64,
    id: u64,
    landing: Sge,
    nic: &mut impl PostPrism,
) -> Result<(), PostError> {
    let pointer = entry(grant, block);
    let pointer = Remote { addr: pointer.addr + WORD as u64, ..pointer };
    let operation = Operation::Read {
        from: Address::indirect(pointer),
        len: grant.layout.tagged_len() as u32,
        into: &[landing],
    };
    nic.post_prism(&WorkRequest {
        id,
        operation,
        conditional: false,
        redirect: None,
        result: None,
        flags: SIGNALED,
    })
}

/// Posts a READ of the tag alone, from the metadata. The tag is one word, so it cannot be torn. A writer
/// needs no value, and a reader gets the value from another replica.
pub(crate) fn read_tag(
    grant: &Grant,
    block: u64,
    id: u64,
    landing: Sge,
    nic: &mut impl PostPrism,
) -> Result<(), PostError> {
    nic.post_send(&remora_nic::WorkRequest {
        id,
        operation: remora_nic::Operation::Read(entry(grant, block)),
        payload: Payload::Sges(&[landing]),
        flags: SIGNALED,
    })
}

/// Posts the chain that stores a block if its tag is greater than the replica's. Only the last operation is
/// signaled.
///
/// 1. WRITE of ⟨tag, 0⟩ to scratch memory.
/// 2. ALLOCATE of a buffer for tag and value. The address is stored behind the tag in scratch memory, and
///    returned to the client, which must give the buffer back if the CAS fails. The address is 0 if no buffer
///    was free.
/// 3. If a buffer was allocated: CAS of the metadata with scratch memory, mode *greater*, comparing only the
///    tags.
///
/// Without `checks` the CAS always swaps.
pub(crate) fn write(
    grant: &Grant,
    block: u64,
    tag: Tag,
    checks: bool,
    id: u64,
    source: Sge,
    answers: &Answers,
    nic: &mut impl PostPrism,
) -> Result<(), PostError> {
    let rkey = grant.table.rkey;
    let scratch = |offset: usize| Remote { addr: SCRATCH + offset as u64, rkey };
    let quiet = |operation| WorkRequest {
        id,
        operation,
        conditional: false,
        redirect: None,
        result: None,
        flags: QUIET,
    };
    let start = (u128::from(tag.0)).to_le_bytes();
    let source = [source];
    let data = Data::Local(Payload::Sges(&source));
    let allocate = Operation::Allocate { list: grant.class.list, rkey, data };
    let operands = Operands {
        mode: if checks { Mode::Greater } else { Mode::Equal },
        size: 16,
        compare_mask: if checks { TAG_ONLY } else { NOTHING },
        swap_mask: WHOLE,
        compare: Operand::At(SCRATCH),
        swap_add: Operand::At(SCRATCH),
    };
    let swap = Operation::CompareSwap { at: Address::direct(entry(grant, block)), operands };
    // A standard verb needs no response of its own, whereas each PRISM operation is answered.
    nic.post_send(&remora_nic::WorkRequest {
        id,
        operation: remora_nic::Operation::Write(scratch(0)),
        payload: Payload::Inline(&start),
        flags: QUIET,
    })?;
    let redirect = Some(SCRATCH + WORD as u64);
    let result = Some(answers.mine);
    // `conditional` sends this operation together with those whose execution depends on it.
    nic.post_prism(&WorkRequest { conditional: true, redirect, result, ..quiet(allocate) })?;
    let result = Some(answers.old);
    nic.post_prism(&WorkRequest { conditional: true, result, flags: SIGNALED, ..quiet(swap) })
}
