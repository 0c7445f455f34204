//! A program: queues of work requests and sections of data. A location is a section or queue and an offset,
//! not an address.

use remora_nic::wqe::{ID_BITS, MAX_SGE, SLOT, WqeOpcode, flag};
use remora_nic::{Calculation, Fetching};

/// The section or queue of a location.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// In the section of this number.
    Section(usize),
    /// In the slots of the queue of this number.
    Queue(usize),
}

/// A byte of a program's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The section or queue that holds the byte.
    pub segment: Segment,
    /// How far from its first byte.
    pub offset: u64,
}

impl Location {
    /// So many bytes before it.
    #[must_use]
    pub fn back(self, by: u64) -> Location {
        Location { offset: self.offset.wrapping_sub(by), ..self }
    }
}

impl std::ops::Add<u64> for Location {
    type Output = Location;

    fn add(self, further: u64) -> Location {
        Location { offset: self.offset.wrapping_add(further), ..self }
    }
}

/// A word that is known when the program is loaded, if not before.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A constant of 64 bits.
    Number(u64),
    /// The address of a place.
    At(Location),
    /// The number of a queue's queue pair.
    Qp(usize),
    /// The number of its completion queue.
    SendCq(usize),
    /// The number of the completion queue of its receives.
    ReceiveCq(usize),
}

impl Default for Value {
    fn default() -> Value {
        Value::Number(0)
    }
}

/// A field of a work request: its offset in the slot, and its length.
pub struct Field {
    /// The name of the field in texts and messages.
    pub name: &'static str,
    /// Its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

const fn field(name: &'static str, offset: u64, len: u64) -> Field {
    Field { name, offset, len }
}

/// All fields; some words have a name for each operation that uses them. The first name of a word is the one
/// that is shown.
pub const FIELDS: [Field; 17] = [
    field("header", 0, 8),
    field("opcode", 0, 1),
    field("flags", 1, 1),
    field("id", 2, 6),
    field("local", 8, 8),
    field("length", 16, 8),
    field("keys", 24, 8),
    field("remote", 32, 8),
    field("compare", 40, 8),
    field("list", 40, 8),
    field("comparand", 42, 6),
    field("swap", 48, 8),
    field("add", 48, 8),
    field("operand", 48, 8),
    field("count", 48, 8),
    field("swapid", 50, 6),
    field("immediate", 56, 8),
];

/// A name for some bytes of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The label's name.
    pub name: String,
    /// Its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Bytes that work requests read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The section's name.
    pub name: String,
    /// The initial bytes.
    pub bytes: Vec<u8>,
    /// Names of places in the region, in the order of their offsets.
    pub labels: Vec<Label>,
    /// Words that are known when it is loaded.
    pub values: Vec<(u64, Value)>,
    /// It is a *region*: memory that exists where the program is loaded, with a key of its own.
    pub given: bool,
}

impl Section {
    /// Puts bytes at its end, on a word's boundary, under a name; where they are.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.labels.push(Label { name: name.into(), offset, len: bytes.len() as u64 });
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        offset
    }
}

/// A part of a list that a message is scattered to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub at: Location,
    /// Length in bytes.
    pub len: u32,
}

/// A loopback queue pair and the work requests in its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The queue's name.
    pub name: String,
    /// How far it is fetched.
    pub fetching: Fetching,
    /// Slots of its ring at least.
    pub slots: u32,
    /// Its work requests, in order.
    pub works: Vec<Work>,
    /// Its receives, in order, each with its pieces.
    pub receives: Vec<Vec<Piece>>,
    /// Slots that are enabled when it is loaded.
    pub enabled: u64,
    /// It is a connection: its receives take a client's messages, and it sends to the client. Otherwise it
    /// sends to itself.
    pub client: bool,
}

impl Queue {
    /// An empty one.
    pub fn new(name: &str, fetching: Fetching) -> Queue {
        Queue {
            name: name.into(),
            fetching,
            slots: 0,
            works: Vec::new(),
            receives: Vec::new(),
            enabled: 0,
            client: false,
        }
    }

    /// Slots that its work requests take.
    pub fn posted(&self) -> u64 {
        self.works.last().map_or(0, |work| work.slot + work.slots())
    }

    /// Slots of its ring.
    pub fn ring_slots(&self) -> u32 {
        (self.posted() as u32).max(self.slots).max(1).next_power_of_two()
    }

    /// Pieces of each of its receives. A recycled queue repeats its receives, and each takes a power of two
    /// of slots.
    pub fn receive_pieces(&self) -> u32 {
        let most = self.receives.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
        let round = 2 * remora_nic::stride(most).next_power_of_two() as u32 - 1;
        if self.fetching == Fetching::Recycled { round.min(MAX_SGE as u32) } else { most }
    }

    /// Does it repeat its receives? Then their number must be a power of two.
    pub fn recycles_receives(&self) -> bool {
        self.fetching == Fetching::Recycled && !self.receives.is_empty()
    }

    /// Work requests that are signaled among the first `count`.
    pub fn signaled(&self, count: usize) -> u64 {
        self.works[..count].iter().filter(|work| work.flags & flag::SIGNALED != 0).count() as u64
    }
}

/// A work request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Name of the work request in the text.
    pub label: Option<String>,
    /// The op-code, as the NIC reads it.
    pub opcode: u8,
    /// Flags of the work request, as in a WQE.
    pub flags: u8,
    /// The program's 48 bits.
    pub id: u64,
    /// The slot is a NOP until a work request changes its op-code.
    pub dormant: bool,
    /// Local address, or the operand of a calculation.
    pub local: Value,
    /// Length in bytes.
    pub len: u64,
    /// Remote address, or the queue that it is about.
    pub remote: Value,
    /// The expected value, if the work request compares.
    pub compare: Value,
    /// The value that is swapped in, is added, or is counted to.
    pub swap_add: Value,
    /// Immediate data of a SEND or WRITE.
    pub imm: u64,
    /// Bytes that it brings along, instead of local ones.
    pub inline: Vec<u8>,
    /// Further pieces of its list, behind `local`.
    pub more: Vec<Piece>,
    /// Its line in the text that it comes from; 0: none.
    pub line: u32,
    /// The index of the first slot in its queue.
    pub slot: u64,
}

impl Work {
    fn of(opcode: WqeOpcode) -> Work {
        Work { opcode: opcode.0, ..Work::default() }
    }

    /// A NOP: it does nothing.
    pub fn nop() -> Work {
        Work::of(WqeOpcode::NOP)
    }

    /// A WRITE: bytes from one place to another.
    pub fn write(from: Location, to: Location, len: u64) -> Work {
        let (local, remote) = (Value::At(from), Value::At(to));
        Work { local, remote, len, compare: Value::Number(1), ..Work::of(WqeOpcode::WRITE) }
    }

    /// A READ: the same with the ends exchanged.
    pub fn read(from: Location, to: Location, len: u64) -> Work {
        let (local, remote) = (Value::At(to), Value::At(from));
        Work { local, remote, len, compare: Value::Number(1), ..Work::of(WqeOpcode::READ) }
    }

    /// An inline WRITE: an immediate.
    pub fn put(bytes: &[u8], to: Location) -> Work {
        let inline = bytes.to_vec();
        let (remote, len) = (Value::At(to), bytes.len() as u64);
        Work { remote, len, flags: flag::INLINE, inline, ..Work::of(WqeOpcode::WRITE) }
    }

    /// A SEND of `len` bytes.
    pub fn send(from: Location, len: u64) -> Work {
        Work { local: Value::At(from), len, compare: Value::Number(1), ..Work::of(WqeOpcode::SEND) }
    }

    /// A compare-and-swap; the old value goes to `old`.
    pub fn compare_swap(at: Location, compare: Value, swap: Value, old: Location) -> Work {
        Work { compare, ..Work::atomic(WqeOpcode::COMPARE_SWAP, at, swap, old) }
    }

    /// A fetch-and-add; the old value goes to `old`.
    pub fn add(at: Location, add: Value, old: Location) -> Work {
        Work::atomic(WqeOpcode::FETCH_ADD, at, add, old)
    }

    /// A calculation of `calculation` on the word at `at`.
    pub fn calculate(calculation: Calculation, at: Location, operand: Value, old: Location) -> Work {
        Work::atomic(calculation.opcode(), at, operand, old)
    }

    pub(crate) fn atomic(opcode: WqeOpcode, at: Location, operand: Value, old: Location) -> Work {
        let (local, remote) = (Value::At(old), Value::At(at));
        Work { local, remote, len: 8, swap_add: operand, ..Work::of(opcode) }
    }

    /// Waits until so many of a queue's work requests have completed.
    pub fn wait(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::WAIT, Value::SendCq(queue), count)
    }

    /// Waits until so many messages have arrived at a queue.
    pub fn wait_received(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::WAIT, Value::ReceiveCq(queue), count)
    }

    /// Lets a queue be fetched so far.
    pub fn enable(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::ENABLE, Value::Qp(queue), count)
    }

    fn control(opcode: WqeOpcode, remote: Value, count: u64) -> Work {
        Work { remote, swap_add: Value::Number(count), ..Work::of(opcode) }
    }

    /// The same, with a completion.
    #[must_use]
    pub fn signaled(self) -> Work {
        Work { flags: self.flags | flag::SIGNALED, ..self }
    }

    /// The same, with a NOP in its slot until its op-code is changed.
    #[must_use]
    pub fn dormant(self) -> Work {
        Work { dormant: true, ..self }
    }

    /// The same, under a name.
    #[must_use]
    pub fn named(self, label: &str) -> Work {
        Work { label: Some(label.into()), ..self }
    }

    /// The same with its list going on.
    #[must_use]
    pub fn and(mut self, at: Location, len: u32) -> Work {
        self.more.push(Piece { at, len });
        self.compare = Value::Number(1 + self.more.len() as u64);
        self
    }

    /// Slots that the work request takes: two further list elements, or 64 inline bytes, fit into each.
    pub fn slots(&self) -> u64 {
        1 + (self.inline.len().div_ceil(SLOT) + self.more.len().div_ceil(2)) as u64
    }

    /// The initial header word.
    pub fn header(&self) -> u64 {
        header(if self.dormant { 0 } else { self.opcode }, self.flags, self.id)
    }
}

/// The header word of a work request.
pub fn header(opcode: u8, flags: u8, id: u64) -> u64 {
    u64::from(opcode) | u64::from(flags) << 8 | (id & ((1 << ID_BITS) - 1)) << 16
}

impl Default for Program {
    fn default() -> Program {
        Program::new()
    }
}

/// Sections of data and queues of work requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its data. The first section is a word that takes old values that are not used.
    pub sections: Vec<Section>,
    /// Its queues of work requests.
    pub queues: Vec<Queue>,
}

impl Program {
    /// An empty one.
    pub fn new() -> Program {
        let mut scrap = Section { name: "scrap".into(), ..Section::default() };
        scrap.put("scrap", &[0; 8]);
        Program { sections: vec![scrap], queues: Vec::new() }
    }

    /// The location that takes old values that are not used.
    pub fn scrap() -> Location {
        Location { segment: Segment::Section(0), offset: 0 }
    }

    /// The section that code puts its own data into.
    fn own(&mut self) -> usize {
        if let Some(at) = self.sections.iter().position(|section| section.name == "own") {
            return at;
        }
        self.sections.push(Section { name: "own".into(), ..Section::default() });
        self.sections.len() - 1
    }

    /// A new variable: a word with a word of zeros in front. It has a label if its name is not empty.
    pub fn var(&mut self, name: &str, value: u64) -> Location {
        let at = self.own();
        let section = &mut self.sections[at];
        section.bytes.extend([0; 8]);
        let offset = section.bytes.len() as u64;
        section.bytes.extend(value.to_le_bytes());
        if !name.is_empty() {
            section.labels.push(Label { name: name.into(), offset, len: 8 });
        }
        Location { segment: Segment::Section(at), offset }
    }

    /// A word of the data is known only when the program is loaded.
    pub(crate) fn let_be(&mut self, at: Location, value: Value) {
        if let Segment::Section(section) = at.segment {
            self.sections[section].values.push((at.offset, value));
        }
    }

    /// A word that nothing changes.
    pub fn constant(&mut self, value: u64) -> Location {
        self.var("", value)
    }

    /// Puts a work request at the end of a queue; its first byte.
    pub fn push(&mut self, queue: usize, work: Work) -> Location {
        let place =
            Location { segment: Segment::Queue(queue), offset: self.queues[queue].posted() * SLOT as u64 };
        let slot = self.queues[queue].posted();
        self.queues[queue].works.push(Work { slot, ..work });
        place
    }

    /// The place of this name and its bytes: a label of the data, or of a work request.
    pub fn find(&self, name: &str) -> Option<(Location, u64)> {
        for (at, section) in self.sections.iter().enumerate() {
            if let Some(label) = section.labels.iter().find(|label| label.name == name) {
                return Some((Location { segment: Segment::Section(at), offset: label.offset }, label.len));
            }
        }
        self.queues.iter().enumerate().find_map(|(at, queue)| {
            let work = queue.works.iter().find(|work| work.label.as_deref() == Some(name))?;
            let offset = work.slot * SLOT as u64;
            Some((Location { segment: Segment::Queue(at), offset }, work.slots() * SLOT as u64))
        })
    }

    /// The queue of this name.
    pub fn queue(&self, name: &str) -> Option<usize> {
        self.queues.iter().position(|queue| queue.name == name)
    }
}
