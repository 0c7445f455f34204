//! Parses a program line by line, without resolving names.

use remora_nic::wqe::{WqeOpcode, flag};
use remora_nic::{Calculation, Fetching};

use super::Mistake;
use super::repeat;
use super::tokens::{Token, tokens};
use crate::program::{Label, Piece, Program, Queue, Section, Segment, Value, Work, header};

/// Marks a copy without an explicit length, which takes the length of the field at one of its ends.
pub(super) const AS_ITS_ENDS: u64 = u64::MAX;

/// The use of a name.
#[derive(Copy, Clone, Debug)]
pub(super) enum Use {
    /// A word of a section that contains an address: section and offset.
    Word(usize, u64),
    /// A piece of a receive: queue, receive and piece.
    Piece(usize, usize, usize),
    /// The local address of a work request: queue and work request.
    Local(usize, usize),
    /// The remote address of a work request.
    Remote(usize, usize),
    /// The compare operand of a work request.
    Compare(usize, usize),
    /// The swap or add operand of a work request.
    Swap(usize, usize),
    /// The queue of a WAIT or ENABLE.
    Queue(usize, usize),
    /// The count of a WAIT or ENABLE, as a label of the queue that it names.
    Count(usize, usize),
    /// The number of slots of a queue that are enabled at the start.
    Enabled(usize),
    /// A further piece of the list of a work request.
    More(usize, usize, usize),
}

/// A use of a name, with its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub text: String,
    pub further: u64,
    pub line: u32,
    pub column: u32,
    pub used: Use,
}

/// A program with unresolved names.
pub(super) struct Draft {
    pub program: Program,
    pub names: Vec<Name>,
    /// Labels with line and column, to detect duplicates.
    pub labels: Vec<(String, u32, u32)>,
    /// Sections that are regions, with their lengths in bytes.
    regions: Vec<(usize, usize)>,
}

/// Parses all lines.
pub(super) fn read(text: &str) -> Result<Draft, Mistake> {
    let mut draft =
        Draft { program: Program::new(), names: Vec::new(), labels: Vec::new(), regions: Vec::new() };
    let mut inside = None;
    for (number, text) in repeat::unrolled(text)? {
        let tokens = tokens(number, &text)?;
        if !tokens.is_empty() {
            let end = text.trim_end().chars().count() as u32 + 1;
            let mut line = Line { number, end, tokens, position: 0, draft: &mut draft };
            inside = Some(line.read(inside)?);
        }
    }
    for (index, len) in &draft.regions {
        draft.program.sections[*index].bytes.resize(*len, 0);
    }
    Ok(draft)
}

struct Line<'a> {
    number: u32,
    end: u32,
    tokens: Vec<(u32, Token)>,
    position: usize,
    draft: &'a mut Draft,
}

impl Line<'_> {
    fn fault<T>(&self, description: impl Into<String>) -> Result<T, Mistake> {
        let column = self.tokens.get(self.position).map_or(self.end, |token| token.0);
        Err(Mistake { line: self.number, column, what: description.into() })
    }

    /// Returns an error at the previous token.
    fn fault_before<T>(&mut self, description: impl Into<String>) -> Result<T, Mistake> {
        self.position -= 1;
        self.fault(description)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position).map(|token| &token.1)
    }

    fn is(&mut self, mark: &'static str) -> bool {
        let is = self.peek() == Some(&Token::Mark(mark));
        self.position += usize::from(is);
        is
    }

    fn expect(&mut self, mark: &'static str) -> Result<(), Mistake> {
        if self.is(mark) { Ok(()) } else { self.fault(format!("`{mark}` is missing here")) }
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.position += 1;
        Some(word)
    }

    fn is_word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Word(other)) if other == word);
        self.position += usize::from(is);
        is
    }

    fn number(&mut self) -> Option<u64> {
        let Some(Token::Number(number)) = self.peek() else { return None };
        let number = *number;
        self.position += 1;
        Some(number)
    }

    fn name(&mut self, used: Use) -> Result<(), Mistake> {
        let column = self.tokens.get(self.position).map_or(self.end, |token| token.0);
        let Some(text) = self.word() else { return self.fault("a name is missing here") };
        let further = if self.is("+") {
            match self.number() {
                Some(number) => number,
                None => return self.fault("a number is missing after `+`"),
            }
        } else {
            0
        };
        self.draft.names.push(Name { text, further, line: self.number, column, used });
        Ok(())
    }

    /// Parses one line. Returns the section or queue to which the next line belongs.
    fn read(&mut self, inside: Option<Segment>) -> Result<Segment, Mistake> {
        let labelled = matches!(self.tokens.get(1), Some((_, Token::Mark(":"))));
        let label = if labelled { self.label()? } else { None };
        let now = match (label.is_none().then(|| self.word()).flatten().as_deref(), inside) {
            (Some("data"), _) => self.section()?,
            (Some("region"), _) => self.region()?,
            (Some("queue"), _) => self.queue()?,
            (Some("receive"), Some(Segment::Queue(queue))) => {
                self.receive(queue)?;
                Segment::Queue(queue)
            }
            (first, Some(Segment::Queue(queue))) => {
                self.position -= usize::from(first.is_some());
                self.work(queue, label)?;
                Segment::Queue(queue)
            }
            (None, Some(Segment::Section(section))) => {
                let Some(label) = label else { return self.fault("data has a name: `NAME: word 7`") };
                self.item(section, &label)?;
                Segment::Section(section)
            }
            (Some(_), Some(Segment::Section(_))) => {
                return self.fault_before("data has a name: `NAME: word 7`");
            }
            (_, None) => {
                self.position = 0;
                return self.fault("a program begins with `data NAME`, `region NAME BYTES` or `queue NAME`");
            }
        };
        if self.position < self.tokens.len() {
            return self.fault("unexpected text: a line has one statement");
        }
        Ok(now)
    }

    fn label(&mut self) -> Result<Option<String>, Mistake> {
        let column = self.tokens[0].0;
        let Some(label) = self.word() else { return self.fault("a label is a name") };
        if label.contains('.') {
            return self.fault_before("a label has no dots: they name fields");
        }
        self.position += 1;
        if let Some((_, line, _)) = self.draft.labels.iter().find(|(other, ..)| *other == label) {
            let description = format!("`{label}` has been named in line {line}");
            return Err(Mistake { line: self.number, column, what: description });
        }
        self.draft.labels.push((label.clone(), self.number, column));
        Ok(Some(label))
    }

    fn section(&mut self) -> Result<Segment, Mistake> {
        let Some(name) = self.word() else { return self.fault("a section has a name: `data NAME`") };
        self.draft.program.sections.push(Section { name, ..Section::default() });
        Ok(Segment::Section(self.draft.program.sections.len() - 1))
    }

    /// Parses a region: memory that already exists where the program is loaded.
    fn region(&mut self) -> Result<Segment, Mistake> {
        let Some(name) = self.word() else { return self.fault("a region has a name: `region NAME BYTES`") };
        if self.draft.labels.iter().any(|(other, ..)| *other == name) {
            return self.fault_before(format!("there is something called `{name}` already"));
        }
        self.draft.labels.push((name.clone(), self.number, 1));
        let Some(len @ 1..=0x4000_0000) = self.number() else {
            return self.fault("how many bytes, at least? `region NAME 4096`");
        };
        let index = self.draft.program.sections.len();
        let labels = vec![Label { name: name.clone(), offset: 0, len }];
        self.draft.program.sections.push(Section { name, given: true, labels, ..Section::default() });
        self.draft.regions.push((index, len as usize));
        Ok(Segment::Section(index))
    }

    fn queue(&mut self) -> Result<Segment, Mistake> {
        let Some(name) = self.word() else { return self.fault("a queue has a name: `queue NAME`") };
        if self.draft.program.queue(&name).is_some() {
            return self.fault_before(format!("there is a queue `{name}` already"));
        }
        let fetching = match self.word().as_deref() {
            None | Some("posted") => Fetching::Posted,
            Some("managed") => Fetching::Enabled,
            Some("recycled") => Fetching::Recycled,
            Some(_) => return self.fault_before("a queue is `posted`, `managed` or `recycled`"),
        };
        let index = self.draft.program.queues.len();
        let mut queue = Queue::new(&name, fetching);
        queue.slots = match self.number() {
            Some(slots) if slots > 1 << 20 => return self.fault_before("a queue has at most 2^20 slots"),
            slots => slots.unwrap_or(0) as u32,
        };
        if self.is_word("enabled") {
            if fetching == Fetching::Posted {
                return self
                    .fault_before("a posted queue is always enabled: make it `managed` or `recycled`");
            }
            match self.number() {
                Some(count) => queue.enabled = count,
                None => self.name(Use::Enabled(index))?,
            }
        }
        self.draft.program.queues.push(queue);
        Ok(Segment::Queue(index))
    }

    fn item(&mut self, section: usize, label: &str) -> Result<(), Mistake> {
        let kind = self.word();
        let mut bytes = Vec::new();
        let start = self.draft.program.sections[section].bytes.len() as u64;
        match kind.as_deref() {
            Some("word") => loop {
                bytes.extend(self.item_word(section, start + bytes.len() as u64)?.to_le_bytes());
                if self.position == self.tokens.len() {
                    break;
                }
            },
            // A zero word precedes the variable, so that a copy of the eight bytes starting two bytes before
            // the variable is a NOP's header with the variable as id.
            Some("var") => {
                self.draft.program.sections[section].bytes.extend([0; 8]);
                bytes.extend(self.item_word(section, start + 8)?.to_le_bytes());
            }
            Some("space") => match self.number() {
                Some(len) if len <= 1 << 30 => bytes.resize(len as usize, 0),
                _ => return self.fault("how many bytes? `space 64`"),
            },
            Some("text") => match self.peek().cloned() {
                Some(Token::Text(text)) => {
                    self.position += 1;
                    bytes = text;
                }
                _ => return self.fault("a text must be in quotation marks"),
            },
            _ => {
                return self.fault_before("data is `word 1 2 3`, `var 7`, `space 64` or `text \"…\"`");
            }
        }
        self.draft.program.sections[section].put(label, &bytes);
        let put = self.draft.program.sections[section].bytes.len();
        let region = self.draft.regions.iter().find(|(index, _)| *index == section);
        if let Some((_, len)) = region.filter(|(_, len)| put > *len) {
            return self.fault(format!("the region has {len} bytes"));
        }
        Ok(())
    }

    fn item_word(&mut self, section: usize, offset: u64) -> Result<u64, Mistake> {
        if self.is("&") {
            self.name(Use::Word(section, offset))?;
            return Ok(0);
        }
        if self.peek() == Some(&Token::Mark("[")) {
            return self.header();
        }
        match self.number() {
            Some(number) => Ok(number),
            None => self.fault("a word is a number, `&NAME` or a header such as `[nop 5]`"),
        }
    }

    /// Parses a header, `[OP FLAGS ID]`.
    fn header(&mut self) -> Result<u64, Mistake> {
        self.expect("[")?;
        let Some(verb) = self.word() else { return self.fault("a header begins with a verb: `[nop 5]`") };
        let Some(opcode) = opcode(&verb) else { return self.fault_before(unknown_verb(&verb)) };
        let mut flags = 0;
        while let Some(word) = self.word() {
            match flag_of(&word) {
                Some(bit) => flags |= bit,
                None => return self.fault_before("a flag is `signaled`, `fence` or `solicited`"),
            }
        }
        let id = self.number().unwrap_or(0);
        if id >> remora_nic::wqe::ID_BITS != 0 {
            return self.fault_before("an id has 48 bits");
        }
        self.expect("]")?;
        Ok(header(opcode.0, flags, id))
    }

    fn receive(&mut self, queue: usize) -> Result<(), Mistake> {
        self.expect("->")?;
        let number = self.draft.program.queues[queue].receives.len();
        let mut pieces = Vec::new();
        loop {
            self.name(Use::Piece(queue, number, pieces.len()))?;
            let len = match self.number() {
                Some(len) if len <= 1 << 30 => len as u32,
                Some(_) => return self.fault_before("a piece of a receive has at most 2^30 bytes"),
                None => u32::MAX,
            };
            pieces.push(Piece { at: Program::scrap(), len });
            if !self.is(",") {
                break;
            }
        }
        self.draft.program.queues[queue].receives.push(pieces);
        self.draft.program.queues[queue].client = true;
        Ok(())
    }

    fn work(&mut self, queue: usize, label: Option<String>) -> Result<(), Mistake> {
        let dormant = self.is_word("dormant");
        let Some(verb) = self.word() else { return self.fault("a verb is missing here") };
        let Some(opcode) = opcode(&verb) else { return self.fault_before(unknown_verb(&verb)) };
        let index = self.draft.program.queues[queue].works.len();
        let mut work = match opcode {
            WqeOpcode::NOP => Work::nop(),
            WqeOpcode::WRITE | WqeOpcode::WRITE_IMM | WqeOpcode::READ => self.copy(opcode, queue, index)?,
            WqeOpcode::SEND => {
                self.name(Use::Local(queue, index))?;
                let mut work = Work::send(Program::scrap(), AS_ITS_ENDS);
                self.local_list(&mut work, queue, index)?;
                work
            }
            WqeOpcode::WAIT | WqeOpcode::ENABLE => self.control(opcode, queue, index)?,
            _ => self.atomic(opcode, queue, index)?,
        };
        if dormant && work.slots() > 1 {
            return self.fault(
                "a work request with inline bytes or a list cannot be dormant: it takes more slots than a NOP",
            );
        }
        (work.label, work.dormant, work.line) = (label, dormant, self.number);
        self.endings(&mut work)?;
        self.draft.program.push(queue, work);
        Ok(())
    }

    fn copy(&mut self, opcode: WqeOpcode, queue: usize, index: usize) -> Result<Work, Mistake> {
        let scrap = Program::scrap();
        let brought = match self.peek().cloned() {
            Some(Token::Number(number)) => Some(number.to_le_bytes().to_vec()),
            Some(Token::Text(text)) => Some(text),
            _ => None,
        };
        let mut source = Use::Local(queue, index);
        let mut target = Use::Remote(queue, index);
        if opcode == WqeOpcode::READ {
            (source, target) = (target, source);
        }
        let mut work = match brought {
            Some(_) if opcode == WqeOpcode::READ => {
                return self.fault("a READ needs a source in memory; `write` accepts numbers");
            }
            Some(bytes) => {
                self.position += 1;
                Work { opcode: opcode.0, ..Work::put(&bytes, scrap) }
            }
            None => {
                self.name(source)?;
                Work { opcode: opcode.0, ..Work::write(scrap, scrap, AS_ITS_ENDS) }
            }
        };
        if work.inline.is_empty() && opcode != WqeOpcode::READ {
            self.local_list(&mut work, queue, index)?;
        }
        self.expect("->")?;
        self.name(target)?;
        if let Some(len) = self.number() {
            if !work.more.is_empty() {
                return self.fault_before("the pieces of a list say how long they are");
            } else if work.inline.is_empty() {
                work.len = len;
            } else if len as usize <= work.inline.len() {
                work.inline.truncate(len as usize);
                work.len = len;
            } else {
                return self.fault_before("longer than its inline bytes");
            }
        }
        if opcode == WqeOpcode::READ {
            self.pieces(&mut work, queue, index)?;
        }
        Ok(work)
    }

    /// Parses the length of the first piece and further pieces: `8, B 16`.
    fn local_list(&mut self, work: &mut Work, queue: usize, index: usize) -> Result<(), Mistake> {
        work.len = self.number().unwrap_or(work.len);
        self.pieces(work, queue, index)
    }

    /// Parses further pieces: `, B 8, C 16`.
    fn pieces(&mut self, work: &mut Work, queue: usize, index: usize) -> Result<(), Mistake> {
        while self.is(",") {
            if work.len == AS_ITS_ENDS {
                return self
                    .fault_before("how many bytes of the first piece? each of a list says it: `x 8, y 8`");
            }
            self.name(Use::More(queue, index, work.more.len()))?;
            match self.number() {
                Some(len) if len <= 1 << 30 => *work = std::mem::take(work).and(Program::scrap(), len as u32),
                _ => return self.fault("how many bytes? each piece of a list says it: `x 8, y 8`"),
            }
            if work.more.len() == remora_nic::wqe::MAX_SGE {
                return self.fault_before(format!("a list has {} pieces at most", remora_nic::wqe::MAX_SGE));
            }
        }
        Ok(())
    }

    fn atomic(&mut self, opcode: WqeOpcode, queue: usize, index: usize) -> Result<Work, Mistake> {
        self.name(Use::Remote(queue, index))?;
        self.expect(",")?;
        let scrap = Program::scrap();
        let first = if opcode == WqeOpcode::COMPARE_SWAP {
            Use::Compare(queue, index)
        } else {
            Use::Swap(queue, index)
        };
        let operand = self.value(first)?;
        let mut work = Work { opcode: opcode.0, ..Work::add(scrap, operand, scrap) };
        if opcode == WqeOpcode::COMPARE_SWAP {
            self.expect("=>")?;
            (work.compare, work.swap_add) = (operand, self.value(Use::Swap(queue, index))?);
        }
        if self.is("->") {
            self.name(Use::Local(queue, index))?;
        }
        Ok(work)
    }

    fn value(&mut self, used: Use) -> Result<Value, Mistake> {
        if self.is("&") {
            self.name(used)?;
            return Ok(Value::Number(0));
        }
        if self.peek() == Some(&Token::Mark("[")) {
            return self.header().map(Value::Number);
        }
        match self.number() {
            Some(number) => Ok(Value::Number(number)),
            None => self.fault(
                "an operand is a number, `&NAME` or a header such as `[nop 5]`: a value in memory must be copied into it first",
            ),
        }
    }

    fn control(&mut self, opcode: WqeOpcode, queue: usize, index: usize) -> Result<Work, Mistake> {
        self.name(Use::Queue(queue, index))?;
        let count = self.number();
        if count.is_none() {
            self.name(Use::Count(queue, index))?;
        }
        let count = Value::Number(count.unwrap_or(0));
        Ok(Work { opcode: opcode.0, swap_add: count, ..Work::default() })
    }

    fn endings(&mut self, work: &mut Work) -> Result<(), Mistake> {
        while let Some(word) = self.word() {
            match (flag_of(&word), word.as_str()) {
                (Some(bit), _) => work.flags |= bit,
                (None, "id") => match self.number() {
                    Some(id) if id >> remora_nic::wqe::ID_BITS == 0 => work.id = id,
                    _ => return self.fault("an id is a number of 48 bits"),
                },
                _ => return self.fault_before("this ends with `signaled`, `fence`, `solicited` or `id N`"),
            }
        }
        Ok(())
    }
}

fn flag_of(word: &str) -> Option<u8> {
    match word {
        "signaled" => Some(flag::SIGNALED),
        "fence" => Some(flag::FENCE),
        "solicited" => Some(flag::SOLICITED),
        _ => None,
    }
}

fn unknown_verb(verb: &str) -> String {
    let all: Vec<_> = VERBS.iter().map(|(name, _)| *name).collect();
    format!("`{verb}` is no verb; these are: {}", all.join(" "))
}

/// Verbs and their op-codes.
pub(crate) const VERBS: [(&str, WqeOpcode); 17] = [
    ("nop", WqeOpcode::NOP),
    ("send", WqeOpcode::SEND),
    ("write", WqeOpcode::WRITE),
    ("write_imm", WqeOpcode::WRITE_IMM),
    ("read", WqeOpcode::READ),
    ("cas", WqeOpcode::COMPARE_SWAP),
    ("add", WqeOpcode::FETCH_ADD),
    ("wait", WqeOpcode::WAIT),
    ("enable", WqeOpcode::ENABLE),
    ("max", WqeOpcode::MAX),
    ("min", WqeOpcode::MIN),
    ("and", WqeOpcode::BIT_AND),
    ("or", WqeOpcode::BIT_OR),
    ("xor", WqeOpcode::BIT_XOR),
    ("both", WqeOpcode::LOGICAL_AND),
    ("either", WqeOpcode::LOGICAL_OR),
    ("differ", WqeOpcode::LOGICAL_XOR),
];

fn opcode(verb: &str) -> Option<WqeOpcode> {
    VERBS.iter().find(|(name, _)| *name == verb).map(|(_, opcode)| *opcode)
}

const _: () = assert!(Calculation::ALL.len() + 9 == VERBS.len());
