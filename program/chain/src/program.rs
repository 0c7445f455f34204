//! The representation of a program: queues of work requests and sections of data. A location is a section or
//! queue and an offset, not an address.

use remora_nic::wqe::{ID_BITS, MAX_SGE, SLOT, WqeOpcode, flag};
use remora_nic::{Calculation, Fetching};

/// The section or queue of a location.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// The section with this index.
    Section(usize),
    /// The slots of the queue with this index.
    Queue(usize),
}

/// A byte of a program's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Section or queue that contains the byte.
    pub segment: Segment,
    /// Offset from the first byte of the section or queue.
    pub offset: u64,
}

impl Location {
    /// Returns the location `by` bytes before this one.
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

/// A word that is known when the program is loaded, or earlier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A constant of 64 bits.
    Number(u64),
    /// The address of a location.
    At(Location),
    /// The number of a queue's queue pair; holds the index of the queue.
    Qp(usize),
    /// The number of a queue's completion queue for work requests.
    SendCq(usize),
    /// The number of a queue's completion queue for receives.
    ReceiveCq(usize),
}

impl Default for Value {
    fn default() -> Value {
        Value::Number(0)
    }
}

/// A field of a work request.
pub struct Field {
    /// Name of the field in program texts and messages.
    pub name: &'static str,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

const fn field(name: &'static str, offset: u64, len: u64) -> Field {
    Field { name, offset, len }
}

/// All fields. Some words have a name for each operation that uses them; the disassembler shows the first
/// name.
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

/// A name for a range of bytes in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Name of the label.
    pub name: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Data that work requests read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Name of the section.
    pub name: String,
    /// Initial bytes of the memory.
    pub bytes: Vec<u8>,
    /// Labels of the section, in the order of their offsets.
    pub labels: Vec<Label>,
    /// Words that are known only when the program is loaded: offset and value.
    pub values: Vec<(u64, Value)>,
    /// True for a *region*: memory that already exists where the program is loaded, with a key of its own.
    pub given: bool,
}

impl Section {
    /// Appends bytes under a name, padded to a multiple of 8, and returns their offset.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.labels.push(Label { name: name.into(), offset, len: bytes.len() as u64 });
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        offset
    }
}

/// An element of a scatter or gather list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Location of the first byte.
    pub at: Location,
    /// Length in bytes.
    pub len: u32,
}

/// A loopback queue pair and the work requests in its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name of the queue.
    pub name: String,
    /// Fetching mode: posted, managed (`Enabled`) or recycled.
    pub fetching: Fetching,
    /// Minimum number of slots of the ring.
    pub slots: u32,
    /// Work requests, in order.
    pub works: Vec<Work>,
    /// Receives, in order, each with its pieces.
    pub receives: Vec<Vec<Piece>>,
    /// Number of slots that are enabled when the program is loaded.
    pub enabled: u64,
    /// True for a queue with a client: its receives take the client's messages, and its SENDs go to the
    /// client. Otherwise the queue sends to itself.
    pub client: bool,
}

impl Queue {
    /// Returns an empty queue.
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

    /// Returns the number of slots of the work requests.
    pub fn posted(&self) -> u64 {
        self.works.last().map_or(0, |work| work.slot + work.slots())
    }

    /// Returns the number of slots of the ring.
    pub fn ring_slots(&self) -> u32 {
        (self.posted() as u32).max(self.slots).max(1).next_power_of_two()
    }

    /// Returns the maximum number of pieces per receive. In a recycled queue, which repeats its receives,
    /// each receive occupies a power of two of slots.
    pub fn receive_pieces(&self) -> u32 {
        let most = self.receives.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
        let round = 2 * remora_nic::stride(most).next_power_of_two() as u32 - 1;
        if self.fetching == Fetching::Recycled { round.min(MAX_SGE as u32) } else { most }
    }

    /// Returns true if the queue repeats its receives; their number must then be a power of two.
    pub fn recycles_receives(&self) -> bool {
        self.fetching == Fetching::Recycled && !self.receives.is_empty()
    }

    /// Returns the number of signaled work requests among the first `count`.
    pub fn signaled(&self, count: usize) -> u64 {
        self.works[..count].iter().filter(|work| work.flags & flag::SIGNALED != 0).count() as u64
    }
}

/// A work request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Label of the work request in the text.
    pub label: Option<String>,
    /// Op-code, as in a WQE.
    pub opcode: u8,
    /// Flags of the work request, as in a WQE.
    pub flags: u8,
    /// Id of 48 bits, chosen by the program.
    pub id: u64,
    /// True for a dormant work request: its slot is a NOP until another work request changes its op-code.
    pub dormant: bool,
    /// Local address, or the operand of a calculation.
    pub local: Value,
    /// Length in bytes.
    pub len: u64,
    /// Remote address, or the queue that a WAIT or ENABLE names.
    pub remote: Value,
    /// Expected value of a compare-and-swap; otherwise the number of list elements.
    pub compare: Value,
    /// Value to swap in or add, or the count of a WAIT or ENABLE.
    pub swap_add: Value,
    /// Immediate data of a SEND or WRITE.
    pub imm: u64,
    /// Inline bytes in place of local memory.
    pub inline: Vec<u8>,
    /// Further pieces of the list, after `local`.
    pub more: Vec<Piece>,
    /// Line of the program text, or 0 if there is no text.
    pub line: u32,
    /// The index of the first slot in its queue.
    pub slot: u64,
}

impl Work {
    fn of(opcode: WqeOpcode) -> Work {
        Work { opcode: opcode.0, ..Work::default() }
    }

    /// Returns a NOP.
    pub fn nop() -> Work {
        Work::of(WqeOpcode::NOP)
    }

    /// Returns a WRITE of `len` bytes.
    pub fn write(source: Location, target: Location, len: u64) -> Work {
        let local = Value::At(source);
        let remote = Value::At(target);
        Work { local, remote, len, compare: Value::Number(1), ..Work::of(WqeOpcode::WRITE) }
    }

    /// Returns a READ of `len` bytes.
    pub fn read(source: Location, target: Location, len: u64) -> Work {
        let local = Value::At(target);
        let remote = Value::At(source);
        Work { local, remote, len, compare: Value::Number(1), ..Work::of(WqeOpcode::READ) }
    }

    /// Returns an inline WRITE of constant bytes.
    pub fn put(bytes: &[u8], target: Location) -> Work {
        let inline = bytes.to_vec();
        let remote = Value::At(target);
        let len = bytes.len() as u64;
        Work { remote, len, flags: flag::INLINE, inline, ..Work::of(WqeOpcode::WRITE) }
    }

    /// Returns a SEND of `len` bytes.
    pub fn send(source: Location, len: u64) -> Work {
        Work { local: Value::At(source), len, compare: Value::Number(1), ..Work::of(WqeOpcode::SEND) }
    }

    /// Returns a compare-and-swap that stores the old value at `old`.
    pub fn compare_swap(target: Location, compare: Value, swap: Value, old: Location) -> Work {
        Work { compare, ..Work::atomic(WqeOpcode::COMPARE_SWAP, target, swap, old) }
    }

    /// Returns a fetch-and-add that stores the old value at `old`.
    pub fn add(target: Location, add: Value, old: Location) -> Work {
        Work::atomic(WqeOpcode::FETCH_ADD, target, add, old)
    }

    /// Returns a calculation on the word at `target` that stores the old value at `old`.
    pub fn calculate(calculation: Calculation, target: Location, operand: Value, old: Location) -> Work {
        Work::atomic(calculation.opcode(), target, operand, old)
    }

    pub(crate) fn atomic(opcode: WqeOpcode, target: Location, operand: Value, old: Location) -> Work {
        let local = Value::At(old);
        let remote = Value::At(target);
        Work { local, remote, len: 8, swap_add: operand, ..Work::of(opcode) }
    }

    /// Returns a WAIT for `count` completions of a queue's work requests.
    pub fn wait(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::WAIT, Value::SendCq(queue), count)
    }

    /// Returns a WAIT for `count` messages to a queue.
    pub fn wait_received(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::WAIT, Value::ReceiveCq(queue), count)
    }

    /// Returns an ENABLE of the first `count` slots of a queue.
    pub fn enable(queue: usize, count: u64) -> Work {
        Work::control(WqeOpcode::ENABLE, Value::Qp(queue), count)
    }

    fn control(opcode: WqeOpcode, remote: Value, count: u64) -> Work {
        Work { remote, swap_add: Value::Number(count), ..Work::of(opcode) }
    }

    /// Returns the work request with a completion.
    #[must_use]
    pub fn signaled(self) -> Work {
        Work { flags: self.flags | flag::SIGNALED, ..self }
    }

    /// Returns the work request as a dormant one: its slot is a NOP until its op-code is changed.
    #[must_use]
    pub fn dormant(self) -> Work {
        Work { dormant: true, ..self }
    }

    /// Returns the work request with a label.
    #[must_use]
    pub fn named(self, label: &str) -> Work {
        Work { label: Some(label.into()), ..self }
    }

    /// Returns the work request with another piece in its list.
    #[must_use]
    pub fn and(mut self, place: Location, len: u32) -> Work {
        self.more.push(Piece { at: place, len });
        self.compare = Value::Number(1 + self.more.len() as u64);
        self
    }

    /// Returns the number of slots of the work request. Each slot after the first has two list elements or
    /// 64 inline bytes.
    pub fn slots(&self) -> u64 {
        1 + (self.inline.len().div_ceil(SLOT) + self.more.len().div_ceil(2)) as u64
    }

    /// Returns the initial header word.
    pub fn header(&self) -> u64 {
        header(if self.dormant { 0 } else { self.opcode }, self.flags, self.id)
    }
}

/// Returns the header word of a work request.
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
    /// Sections of data. The first section is a scrap word for unused old values.
    pub sections: Vec<Section>,
    /// Queues of work requests.
    pub queues: Vec<Queue>,
}

impl Program {
    /// Returns an empty program with the scrap word.
    pub fn new() -> Program {
        let mut scrap = Section { name: "scrap".into(), ..Section::default() };
        scrap.put("scrap", &[0; 8]);
        Program { sections: vec![scrap], queues: Vec::new() }
    }

    /// Returns the location of the scrap word, which receives unused old values.
    pub fn scrap() -> Location {
        Location { segment: Segment::Section(0), offset: 0 }
    }

    /// Returns the section for data of generated code, adding it if necessary.
    fn own(&mut self) -> usize {
        if let Some(index) = self.sections.iter().position(|section| section.name == "own") {
            return index;
        }
        self.sections.push(Section { name: "own".into(), ..Section::default() });
        self.sections.len() - 1
    }

    /// Adds a variable, a word preceded by a zero word, and returns its location. It has a label if `name`
    /// is not empty.
    pub fn var(&mut self, name: &str, value: u64) -> Location {
        let index = self.own();
        let section = &mut self.sections[index];
        section.bytes.extend([0; 8]);
        let offset = section.bytes.len() as u64;
        section.bytes.extend(value.to_le_bytes());
        if !name.is_empty() {
            section.labels.push(Label { name: name.into(), offset, len: 8 });
        }
        Location { segment: Segment::Section(index), offset }
    }

    /// Sets a word of the data to a value that is known only when the program is loaded.
    pub fn set_at_load(&mut self, place: Location, value: Value) {
        if let Segment::Section(section) = place.segment {
            self.sections[section].values.push((place.offset, value));
        }
    }

    /// Adds a constant word and returns its location.
    pub fn constant(&mut self, value: u64) -> Location {
        self.var("", value)
    }

    /// Appends a work request to a queue and returns its location.
    pub fn push(&mut self, queue: usize, work: Work) -> Location {
        let place =
            Location { segment: Segment::Queue(queue), offset: self.queues[queue].posted() * SLOT as u64 };
        let slot = self.queues[queue].posted();
        self.queues[queue].works.push(Work { slot, ..work });
        place
    }

    /// Returns location and length of a label of the data or of a work request, or `None`.
    pub fn find(&self, name: &str) -> Option<(Location, u64)> {
        for (index, section) in self.sections.iter().enumerate() {
            if let Some(label) = section.labels.iter().find(|label| label.name == name) {
                return Some((
                    Location { segment: Segment::Section(index), offset: label.offset },
                    label.len,
                ));
            }
        }
        self.queues.iter().enumerate().find_map(|(index, queue)| {
            let work = queue.works.iter().find(|work| work.label.as_deref() == Some(name))?;
            let offset = work.slot * SLOT as u64;
            Some((Location { segment: Segment::Queue(index), offset }, work.slots() * SLOT as u64))
        })
    }

    /// Returns the index of the queue with this name, or `None`.
    pub fn queue(&self, name: &str) -> Option<usize> {
        self.queues.iter().position(|queue| queue.name == name)
    }
}
