//! The disassembler, which converts the bytes of a slot to a line of program text.

use remora_nic::wqe::{SLOT, Wqe, WqeOpcode, flag, sges};

use crate::assemble::VERBS;
use crate::link::Numbers;
use crate::program::{FIELDS, Location, Program, Segment};

/// The names for the addresses and numbers of a loaded program.
pub struct Names<'a> {
    program: &'a Program,
    numbers: &'a Numbers,
}

impl<'a> Names<'a> {
    /// Returns the names for a program that was loaded with these addresses and numbers.
    pub fn new(program: &'a Program, numbers: &'a Numbers) -> Names<'a> {
        Names { program, numbers }
    }

    /// Returns the location of an address, or `None` if it is not in the program's memory.
    pub fn place(&self, address: u64) -> Option<Location> {
        let find = |segment, base: u64, len: u64| {
            (base..base + len).contains(&address).then(|| Location { segment, offset: address - base })
        };
        let sections = self.program.sections.iter().zip(&self.numbers.sections).enumerate();
        let mut sections = sections.map(|(index, (section, base))| {
            find(Segment::Section(index), *base, section.bytes.len().max(8) as u64)
        });
        let queues = self.program.queues.iter().zip(&self.numbers.queues).enumerate();
        let mut queues = queues.map(|(index, (queue, numbers))| {
            find(Segment::Queue(index), numbers.code, u64::from(queue.ring_slots()) * SLOT as u64)
        });
        sections.find_map(|place| place).or_else(|| queues.find_map(|place| place))
    }

    /// Returns the name of a location: a label, a field, and the distance from it.
    pub fn called(&self, place: Location) -> String {
        match place.segment {
            Segment::Section(index) => {
                let section = &self.program.sections[index];
                let before = section.labels.iter().filter(|label| label.offset <= place.offset);
                match before.max_by_key(|label| label.offset) {
                    Some(label) => further(&label.name, place.offset - label.offset),
                    None => further(&section.name, place.offset),
                }
            }
            Segment::Queue(index) => {
                let slot = place.offset / SLOT as u64;
                let byte = place.offset % SLOT as u64;
                // `max_by_key` returns the last of equal fields; `rev` makes that the first name of a word.
                let fields = FIELDS.iter().rev().filter(|field| field.offset <= byte);
                let field = fields.max_by_key(|field| field.offset);
                let field = field.map_or(String::new(), |field| further(field.name, byte - field.offset));
                format!("{}.{field}", self.work(index, slot))
            }
        }
    }

    /// Returns the name of a work request: its label, or queue and slot.
    pub fn work(&self, queue: usize, slot: u64) -> String {
        let queue = &self.program.queues[queue];
        let label = queue.works.iter().find(|work| work.slot == slot).and_then(|work| work.label.clone());
        label.unwrap_or_else(|| format!("{}:{slot}", queue.name))
    }

    fn address(&self, address: u64) -> String {
        match self.place(address) {
            Some(place) => self.called(place),
            None => format!("{address:#x}"),
        }
    }

    /// Returns the text of an operand, as a name if the value is an address of the program.
    fn operand(&self, value: u64) -> String {
        match self.place(value) {
            Some(place) => format!("&{}", self.called(place)),
            None if value < 1 << 16 => value.to_string(),
            None => format!("{value:#x}"),
        }
    }

    fn queue_pair(&self, number: u64) -> String {
        let index = self.numbers.queues.iter().position(|queue| u64::from(queue.qp) == number);
        index.map_or(format!("{number:#x}"), |index| self.program.queues[index].name.clone())
    }

    fn completion_queue(&self, number: u64) -> String {
        let name = |index: usize| &self.program.queues[index].name;
        let all = &self.numbers.queues;
        let sent = all.iter().position(|queue| u64::from(queue.send_cq) == number);
        let received = || all.iter().position(|queue| u64::from(queue.receive_cq) == number);
        match sent {
            Some(index) => name(index).clone(),
            None => received().map_or(format!("{number:#x}"), |index| format!("{}.received", name(index))),
        }
    }
}

fn further(name: &str, by: u64) -> String {
    if by == 0 { name.to_owned() } else { format!("{name}+{by}") }
}

/// Returns the text of a header word, such as `[write signaled 7]`.
pub fn header(word: u64) -> String {
    let wqe = Wqe { header: word, ..Wqe::default() };
    let id = if wqe.id() == 0 { String::new() } else { format!(" {}", wqe.id()) };
    format!("[{}{}{id}]", verb(wqe.opcode()), flags(wqe.flags()))
}

fn verb(opcode: WqeOpcode) -> String {
    let known = VERBS.iter().find(|(_, code)| *code == opcode);
    known.map_or(format!("op{}", opcode.0), |(name, _)| (*name).to_owned())
}

fn flags(bits: u8) -> String {
    let named = [(flag::SIGNALED, " signaled"), (flag::FENCE, " fence"), (flag::SOLICITED, " solicited")];
    named.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect()
}

/// Returns the text of a work request; `more` are the slots after the first.
///
/// A NOP with other non-zero words is a dormant work request. Its text shows a copy, the most frequent kind.
pub fn disassemble(slot: &[u8; SLOT], more: &[[u8; SLOT]], names: &Names<'_>) -> String {
    let wqe = Wqe::parse(slot);
    let opcode = wqe.opcode();
    let text = match opcode {
        WqeOpcode::NOP => dormant(&wqe, names),
        WqeOpcode::WAIT => format!("wait {} {}", names.completion_queue(wqe.remote), wqe.swap_add),
        WqeOpcode::ENABLE => format!("enable {} {}", names.queue_pair(wqe.remote), wqe.swap_add),
        WqeOpcode::WRITE | WqeOpcode::WRITE_IMM => write(&wqe, more, names),
        WqeOpcode::READ => format!("read {} -> {}", names.address(wqe.remote), list(&wqe, more, names)),
        WqeOpcode::SEND => format!("send {}", list(&wqe, more, names)),
        WqeOpcode::COMPARE_SWAP => {
            let counts = names.place(wqe.remote).is_some_and(is_count);
            let swap = if counts { names.operand(wqe.swap_add) } else { side(wqe.swap_add, names) };
            let compare = side(wqe.compare, names);
            format!("cas {}, {compare} => {swap}{}", names.address(wqe.remote), old(&wqe, names))
        }
        _ if opcode == WqeOpcode::FETCH_ADD || opcode.is_calculation() => {
            let target = names.address(wqe.remote);
            let operand = names.operand(wqe.swap_add);
            format!("{} {target}, {operand}{}", verb(opcode), old(&wqe, names))
        }
        _ => verb(opcode),
    };
    let id = if wqe.id() == 0 { String::new() } else { format!(" id {}", wqe.id()) };
    format!("{text}{}{id}", flags(wqe.flags()))
}

/// Returns the text of a WRITE, with or without immediate data.
fn write(wqe: &Wqe, more: &[[u8; SLOT]], names: &Names<'_>) -> String {
    let verb = verb(wqe.opcode());
    let target = names.address(wqe.remote);
    if wqe.flags() & flag::INLINE != 0 {
        let bytes: Vec<u8> = more.iter().flatten().copied().take(wqe.length() as usize).collect();
        return format!("{verb} {} -> {target}", brought(&bytes));
    }
    match wqe.elements() {
        0 => format!("{verb} {} -> {target} 0", names.address(wqe.local)),
        1 => format!("{verb} {} -> {target} {}", names.address(wqe.local), wqe.length()),
        _ => format!("{verb} {} -> {target}", list(wqe, more, names)),
    }
}

/// Returns the text of a list of pieces with their lengths.
fn list(wqe: &Wqe, more: &[[u8; SLOT]], names: &Names<'_>) -> String {
    let first = format!("{} {}", names.address(wqe.local), wqe.length());
    let rest = more.iter().flat_map(sges).take(wqe.elements().saturating_sub(1));
    let rest = rest.map(|piece| format!(", {} {}", names.address(piece.addr), piece.len));
    std::iter::once(first).chain(rest).collect()
}

fn dormant(wqe: &Wqe, names: &Names<'_>) -> String {
    if wqe.remote == 0 && wqe.local == 0 && wqe.swap_add == 0 {
        return "nop".into();
    }
    if wqe.keys == 0 {
        return format!("dormant enable {} {}", names.queue_pair(wqe.remote), wqe.swap_add);
    }
    format!("dormant write {} -> {} {}", names.address(wqe.local), names.address(wqe.remote), wqe.length())
}

/// Returns true if this location is the count of a work request such as an ENABLE.
fn is_count(place: Location) -> bool {
    matches!(place.segment, Segment::Queue(_)) && place.offset % SLOT as u64 == 40
}

/// Returns the text of an operand of a compare-and-swap, usually a header.
fn side(value: u64, names: &Names<'_>) -> String {
    if names.place(value).is_some() { names.operand(value) } else { header(value) }
}

fn brought(bytes: &[u8]) -> String {
    match <[u8; 8]>::try_from(bytes) {
        Ok(word) => u64::from_le_bytes(word).to_string(),
        Err(_) => format!("\"{}\"", bytes.escape_ascii()),
    }
}

fn old(wqe: &Wqe, names: &Names<'_>) -> String {
    match names.place(wqe.local) {
        Some(place) if place == Program::scrap() => String::new(),
        _ => format!(" -> {}", names.address(wqe.local)),
    }
}
