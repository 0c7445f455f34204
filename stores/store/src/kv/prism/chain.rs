//! The work requests of a PRISM-KV operation.

use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest};
use remora_nic::{Flags, Payload, Remote};

use super::client_config::{Arena, FRONT_WORD};
use super::flight::Flight;
use super::slot::{SLOT, TableSlot};
use crate::heap::Class;
use crate::words::{set_u64, u64_at};
use crate::{Broken, PostPrism};

/// The purpose of a request. The high bits of its id hold the purpose, the low bits the slot of the window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The READ through a slot.
    Look = 1,
    /// The CAS of a slot.
    Swap = 2,
    /// A message that returns buffers.
    Return = 3,
    /// A message from the server.
    Listen = 4,
    /// A request that brings no completion unless it fails.
    Quiet = 5,
    /// The READ of the word in front of the tables.
    Front = 6,
    /// The move of a slot to the next table.
    Move = 7,
}

impl Part {
    #[inline]
    pub(crate) fn id(self, place: u16) -> u64 {
        (self as u64) << 44 | u64::from(place)
    }

    #[inline]
    pub(crate) fn of(id: u64) -> Option<(Part, u16)> {
        let part = match id >> 44 {
            1 => Part::Look,
            2 => Part::Swap,
            3 => Part::Return,
            4 => Part::Listen,
            5 => Part::Quiet,
            6 => Part::Front,
            7 => Part::Move,
            _ => return None,
        };
        Some((part, id as u16))
    }
}

pub(super) const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

pub(super) fn request(id: u64, operation: Operation<'_>) -> WorkRequest<'_> {
    WorkRequest { id, operation, conditional: false, redirect: None, result: None, flags: Flags::default() }
}

/// Posts the bounded READ through a slot, of at most `len` bytes to offset `landing` of the arena.
#[inline]
pub(super) fn look(
    slot: Remote,
    place: u16,
    len: u32,
    landing: usize,
    arena: &Arena,
    nic: &mut impl PostPrism,
) -> Result<(), Broken> {
    let into = [arena.block.sge(landing, len as usize)];
    let read = Operation::Read { from: Address::bounded(slot), len, into: &into };
    Ok(nic.post_prism(&WorkRequest { flags: SIGNALED, ..request(Part::Look.id(place), read) })?)
}

/// Posts the READ of the word in front of the tables.
pub(super) fn ask(
    front: Remote,
    place: u16,
    landing: usize,
    arena: &Arena,
    nic: &mut impl PostPrism,
) -> Result<(), Broken> {
    let into = [arena.block.sge(landing, FRONT_WORD)];
    let read = Operation::Read { from: Address::direct(front), len: FRONT_WORD as u32, into: &into };
    Ok(nic.post_prism(&WorkRequest { flags: SIGNALED, ..request(Part::Front.id(place), read) })?)
}

/// Returns the CAS of a whole slot, which swaps if the slot has this generation.
fn swap<'a>(slot: Remote, place: u16, generation: u64, new: Operand, arena: &Arena) -> WorkRequest<'a> {
    let operands = Operands {
        mode: Mode::Equal,
        size: SLOT as u8,
        compare_mask: [0, 0, u64::MAX, 0],
        swap_mask: [u64::MAX; 4],
        compare: Operand::Immediate([0, 0, generation, 0]),
        swap_add: new,
    };
    let operation = Operation::CompareSwap { at: Address::direct(slot), operands };
    let result = Some(arena.block.sge(arena.old(place), SLOT));
    WorkRequest { result, flags: SIGNALED, ..request(Part::Swap.id(place), operation) }
}

/// Posts the CAS of a DELETE: the slot no longer points to an object.
pub(super) fn delete(
    slot: Remote,
    place: u16,
    flight: &Flight,
    arena: &Arena,
    nic: &mut impl PostPrism,
) -> Result<(), Broken> {
    let bare = TableSlot::bare(slot.addr, flight.next_generation(), flight.hash);
    let new = Operand::Immediate(bare.number());
    Ok(nic.post_prism(&swap(slot, place, flight.generation, new, arena))?)
}

/// Posts the chain of a PUT (§6.1), in three steps:
///
/// 1. WRITE of the new slot without its pointer to scratch memory.
/// 2. ALLOCATE of a buffer for the object. Its address is stored in front of the scratch words, and returned
///    to the client, which may have to give the buffer back.
/// 3. CAS of the scratch words into the slot, if the slot still has the generation that was read.
pub(super) fn put(
    slot: Remote,
    place: u16,
    flight: &Flight,
    class: &Class,
    arena: &Arena,
    nic: &mut impl PostPrism,
) -> Result<(), Broken> {
    let len = super::HEADER + flight.key_len as usize + flight.value_len as usize;
    let generation = flight.next_generation();
    arena.block.write(arena.object(place), &generation.to_le_bytes());
    let mut words = [0; SLOT - 8];
    [len as u64, generation, flight.hash]
        .iter()
        .enumerate()
        .for_each(|(index, w)| set_u64(&mut words, index * 8, *w));
    arena.block.write(arena.new_words(place), &words);
    let quiet = Part::Quiet.id(place);
    let scratch = |offset: u64| Remote { addr: SCRATCH + offset, rkey: slot.rkey };
    nic.post_send(&remora_nic::WorkRequest {
        id: quiet,
        operation: remora_nic::Operation::Write(scratch(8)),
        payload: Payload::Sges(&[arena.block.sge(arena.new_words(place), words.len())]),
        flags: Flags::default(),
    })?;
    let object = [arena.block.sge(arena.object(place), len)];
    let data = Data::Local(Payload::Sges(&object));
    let allocate = Operation::Allocate { list: class.list, rkey: slot.rkey, data };
    let taken = Some(arena.block.sge(arena.taken(place), 8));
    // `conditional` sends this operation together with those whose execution depends on it. The WRITE needs
    // no such flag, because nothing depends on it.
    let allocate = WorkRequest { conditional: true, ..request(quiet, allocate) };
    nic.post_prism(&WorkRequest { redirect: Some(SCRATCH), result: taken, ..allocate })?;
    let swap = swap(slot, place, flight.generation, Operand::At(SCRATCH), arena);
    Ok(nic.post_prism(&WorkRequest { conditional: true, ..swap })?)
}

/// Returns the previous content of the slot, which the CAS returned.
pub(super) fn old(arena: &Arena, place: u16) -> TableSlot {
    let mut bytes = [0; SLOT];
    arena.block.read(arena.old(place), &mut bytes);
    TableSlot::parse(&bytes)
}

/// Returns the address of the buffer that a chain allocated.
pub(super) fn taken(arena: &Arena, place: u16) -> u64 {
    let mut bytes = [0; 8];
    arena.block.read(arena.taken(place), &mut bytes);
    u64_at(&bytes, 0)
}
