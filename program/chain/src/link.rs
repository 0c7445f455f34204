//! The linker, which converts a program to bytes by replacing locations with addresses, keys and numbers.

use remora_memory::Key;
use remora_nic::Sge;
use remora_nic::wqe::{SLOT, Wqe, sge_slot};

use crate::program::{Location, Piece, Program, Queue, Segment, Value, Work};

/// Distance between the sections and code regions of a program on its own NIC. It is large enough that an
/// address beyond one of them is not inside another.
const APART: u64 = 1 << 16;
/// Lowest address. It is larger than any count of a program, and fits an id.
const FIRST: u64 = 1 << 44;

/// The numbers of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueueNumbers {
    /// Number of the queue pair.
    pub qp: u32,
    /// Number of the completion queue for work requests.
    pub send_cq: u32,
    /// Number of the completion queue for receives.
    pub receive_cq: u32,
    /// Address of the first slot.
    pub code: u64,
}

/// The addresses, keys and numbers of a loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Key of all memory that the program owns.
    pub key: u32,
    /// Addresses of the sections.
    pub sections: Vec<u64>,
    /// Keys of the sections that are regions; `None` for other sections.
    pub regions: Vec<Option<u32>>,
    /// Numbers of the queues.
    pub queues: Vec<QueueNumbers>,
}

impl Numbers {
    /// Returns the address of a location.
    pub fn address(&self, place: Location) -> u64 {
        let base = match place.segment {
            Segment::Section(index) => self.sections[index],
            Segment::Queue(index) => self.queues[index].code,
        };
        base.wrapping_add(place.offset)
    }

    fn element(&self, piece: &Piece) -> Sge {
        let lkey = Key::new(self.key_of(Value::At(piece.at)));
        Sge { addr: self.address(piece.at), len: piece.len, lkey }
    }

    /// Returns the key of the memory to which a value points.
    pub fn key_of(&self, value: Value) -> u32 {
        match value {
            Value::At(Location { segment: Segment::Section(index), .. }) => {
                self.regions[index].unwrap_or(self.key)
            }
            _ => self.key,
        }
    }

    /// Returns the 64-bit word for a value.
    pub fn word(&self, value: Value) -> u64 {
        match value {
            Value::Number(number) => number,
            Value::At(place) => self.address(place),
            Value::Qp(index) => self.queues[index].qp.into(),
            Value::SendCq(index) => self.queues[index].send_cq.into(),
            Value::ReceiveCq(index) => self.queues[index].receive_cq.into(),
        }
    }
}

/// Assigns addresses to a program on a NIC of its own: first the sections, then the code. The key and the
/// numbers of the queues are those of a NIC that runs nothing else.
pub fn layout(program: &Program) -> Numbers {
    let mut next = FIRST;
    let mut place = |len: u64| {
        let start = next;
        next += len.next_multiple_of(APART) + APART;
        start
    };
    let sections = program.sections.iter().map(|section| place(section.bytes.len() as u64)).collect();
    let numbers = |(index, queue): (usize, &Queue)| QueueNumbers {
        qp: index as u32 + 1,
        send_cq: 2 * index as u32,
        receive_cq: 2 * index as u32 + 1,
        code: place(u64::from(queue.ring_slots()) * SLOT as u64),
    };
    let queues = program.queues.iter().enumerate().map(numbers).collect();
    Numbers { key: 1, sections, regions: vec![None; program.sections.len()], queues }
}

/// The bytes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Bytes of the sections.
    pub sections: Vec<Vec<u8>>,
    /// Slots of the queues.
    pub queues: Vec<Vec<[u8; SLOT]>>,
    /// List elements of the receives, per queue.
    pub receives: Vec<Vec<Vec<Sge>>>,
}

/// Converts a program to bytes.
pub fn link(program: &Program, numbers: &Numbers) -> Image {
    let section = |section: &crate::program::Section| {
        let mut bytes = section.bytes.clone();
        for (offset, value) in &section.values {
            let start = *offset as usize;
            bytes[start..start + 8].copy_from_slice(&numbers.word(*value).to_le_bytes());
        }
        bytes
    };
    let element = |piece: &Piece| numbers.element(piece);
    let receives =
        |queue: &Queue| queue.receives.iter().map(|pieces| pieces.iter().map(element).collect()).collect();
    Image {
        sections: program.sections.iter().map(section).collect(),
        queues: program
            .queues
            .iter()
            .map(|queue| queue.works.iter().flat_map(|work| slots(work, numbers)).collect())
            .collect(),
        receives: program.queues.iter().map(receives).collect(),
    }
}

fn slots(work: &Work, numbers: &Numbers) -> Vec<[u8; SLOT]> {
    let memory = !matches!(work.opcode, 0 | 15 | 16);
    let key = |value| if memory { u64::from(numbers.key_of(value)) } else { 0 };
    let first = Wqe {
        header: work.header(),
        local: numbers.word(work.local),
        len: work.len,
        keys: key(work.local) | key(work.remote) << 32,
        remote: numbers.word(work.remote),
        compare: numbers.word(work.compare),
        swap_add: numbers.word(work.swap_add),
        imm: work.imm,
    };
    let mut all = vec![first.emit()];
    for piece in work.inline.chunks(SLOT) {
        let mut slot = [0; SLOT];
        slot[..piece.len()].copy_from_slice(piece);
        all.push(slot);
    }
    let more: Vec<Sge> = work.more.iter().map(|piece| numbers.element(piece)).collect();
    all.extend(more.chunks(2).map(sge_slot));
    all
}
