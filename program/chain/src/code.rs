//! Code generation for straight-line code, conditionals and loads (RedN), in a queue that enables itself
//! group by group.
//!
//! The NIC fetches a *group* of work requests after the ENABLE before it has ended, so the group sees all
//! earlier changes of its slots. A variable is a word preceded by two zero bytes. A copy of the eight bytes
//! that start there is a NOP's header with the variable as id.

mod loops;

pub use loops::Rings;

use remora_nic::wqe::{ID_BITS, SLOT, WqeOpcode, flag};
use remora_nic::{Calculation, Fetching};

use crate::program::{Location, Program, Queue, Value, Work, header};

/// Offsets of the fields of a work request that code rewrites.
const ID: u64 = 2;
const LOCAL: u64 = 8;
const REMOTE: u64 = 32;
const COMPARE: u64 = 40;
const OPERAND: u64 = 48;
/// Length of the words from the queue to the count of an ENABLE, in bytes.
pub(crate) const RECORD: u64 = 24;
/// Length of an id in bytes, which is the width of a comparison.
const ID_BYTES: u64 = ID_BITS as u64 / 8;

/// An operand of a comparison or an arithmetic operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant of 64 bits.
    Number(u64),
    /// The variable at a location.
    Var(Location),
}

/// A comparison of unsigned 48-bit numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Test {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A condition `x TEST y`.
pub type Condition<Y> = (Location, Test, Y);

impl Test {
    /// List of all comparisons.
    pub const ALL: [Test; 6] =
        [Test::Equal, Test::NotEqual, Test::Less, Test::LessOrEqual, Test::Greater, Test::GreaterOrEqual];

    /// Returns the negated comparison.
    #[must_use]
    pub fn opposite(self) -> Test {
        match self {
            Test::Equal => Test::NotEqual,
            Test::NotEqual => Test::Equal,
            Test::Less => Test::GreaterOrEqual,
            Test::LessOrEqual => Test::Greater,
            Test::Greater => Test::LessOrEqual,
            Test::GreaterOrEqual => Test::Less,
        }
    }

    /// Returns true if the comparison holds for `x` and `y`.
    pub fn holds(self, x: u64, y: u64) -> bool {
        match self {
            Test::Equal => x == y,
            Test::NotEqual => x != y,
            Test::Less => x < y,
            Test::LessOrEqual => x <= y,
            Test::Greater => x > y,
            Test::GreaterOrEqual => x >= y,
        }
    }

    /// Returns the calculation that reduces an order to an equality: `max(x, y) = y` or `min(x, y) = y`.
    fn calculation(self) -> Option<Calculation> {
        match self {
            Test::Equal | Test::NotEqual => None,
            Test::LessOrEqual | Test::Greater => Some(Calculation::Max),
            Test::GreaterOrEqual | Test::Less => Some(Calculation::Min),
        }
    }

    /// Returns true if the comparison holds when the equality holds.
    fn wakes(self) -> bool {
        matches!(self, Test::Equal | Test::LessOrEqual | Test::GreaterOrEqual)
    }
}

/// The cost of work requests in the categories of `RedN`'s Table 2: copies, atomics and calculations, WAITs
/// and ENABLEs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// READs, WRITEs and SENDs, including dormant ones.
    pub copies: usize,
    /// Compare-and-swaps, fetch-and-adds and calculations.
    pub atomics: usize,
    /// WAITs and ENABLEs.
    pub controls: usize,
}

impl Cost {
    /// Returns the cost of work requests.
    pub fn of(works: &[Work]) -> Cost {
        let mut cost = Cost::default();
        for work in works {
            match WqeOpcode(work.opcode) {
                WqeOpcode::NOP => {}
                WqeOpcode::WAIT | WqeOpcode::ENABLE => cost.controls += 1,
                opcode if opcode.has_list() => cost.copies += 1,
                _ => cost.atomics += 1,
            }
        }
        cost
    }
}

/// Code that is being generated into a queue of its own.
pub struct Code<'p> {
    program: &'p mut Program,
    queue: usize,
    /// Index of the ENABLE that opens the current group; `None` for the first group.
    open: Option<usize>,
    /// Indices of the code's own WAITs and ENABLEs, whose counts grow in every round.
    counts: Vec<usize>,
    /// Number of leading work requests whose headers may be compared and must not be modified any more.
    compared: usize,
    /// Number of completions of work requests that become signaled only when they are rewritten.
    unsaid: u64,
}

impl Code<'_> {
    /// Starts code that runs once.
    pub fn once<'p>(program: &'p mut Program, name: &str) -> Code<'p> {
        Code::of(program, name, Fetching::Enabled)
    }

    /// Starts code that runs repeatedly, once for each time that its first group is enabled.
    pub fn repeated<'p>(program: &'p mut Program, name: &str) -> Code<'p> {
        Code::of(program, name, Fetching::Recycled)
    }

    fn of<'p>(program: &'p mut Program, name: &str, fetching: Fetching) -> Code<'p> {
        program.queues.push(Queue::new(name, fetching));
        let queue = program.queues.len() - 1;
        Code { program, queue, open: None, counts: Vec::new(), compared: 0, unsaid: 0 }
    }

    /// Returns the program that contains the code.
    pub fn program(&mut self) -> &mut Program {
        self.program
    }

    /// Returns the index of the queue.
    pub fn number(&self) -> usize {
        self.queue
    }

    /// Returns the work requests generated so far.
    pub fn works(&self) -> &[Work] {
        &self.program.queues[self.queue].works
    }

    fn is_recycled(&self) -> bool {
        self.program.queues[self.queue].fetching == Fetching::Recycled
    }

    /// Adds a variable to the program and returns its location.
    pub fn var(&mut self, name: &str, value: u64) -> Location {
        self.program.var(name, value)
    }

    /// Appends a work request and returns its location.
    pub fn push(&mut self, work: Work) -> Location {
        self.program.push(self.queue, work)
    }

    fn works_mut(&mut self) -> &mut Vec<Work> {
        &mut self.program.queues[self.queue].works
    }

    /// Appends a WAIT, so that all earlier work requests complete before the next one starts.
    pub fn order(&mut self) {
        let compared = self.compared;
        match self.works_mut().split_at_mut(compared).1.last_mut() {
            Some(last) => last.flags |= flag::SIGNALED,
            _ => _ = self.push(Work::nop().signaled()),
        }
        let count = self.completions();
        self.counts.push(self.works().len());
        self.push(Work::wait(self.queue, count));
    }

    /// Returns the number of completions of the work requests so far.
    fn completions(&self) -> u64 {
        self.program.queues[self.queue].signaled(self.works().len()) + self.unsaid
    }

    /// Appends a WAIT and an ENABLE, so that the next work requests are fetched only after all earlier ones
    /// have completed.
    pub fn barrier(&mut self) {
        self.order();
        let index = self.works().len();
        self.counts.push(index);
        self.push(Work::enable(self.queue, 0));
        self.close();
        self.open = Some(index);
    }

    /// Ends the current group.
    fn close(&mut self) {
        let end = self.program.queues[self.queue].posted();
        match self.open {
            Some(index) => self.works_mut()[index].swap_add = Value::Number(end),
            None => self.program.queues[self.queue].enabled = end,
        }
    }

    /// Ends code that runs once and returns its queue. The initially enabled slots of the queue start the
    /// code.
    pub fn end(mut self) -> usize {
        self.close();
        self.queue
    }

    /// Ends code that runs repeatedly and returns its queue. Each round increases the counts of the code's
    /// WAITs and ENABLEs.
    ///
    /// The last work request is the ENABLE that the three words at `next` describe: the number of a queue,
    /// 0, and a count. With `None` the program ends after the round.
    pub fn end_of_round(mut self, next: Option<Location>) -> usize {
        // The last ENABLE follows a WAIT, an ENABLE, and an add for each count, including the counts of this
        // WAIT and ENABLE.
        let adds = self.counts.len() as u64 + 2;
        let last = self.ahead(3 + adds);
        if let Some(next) = next {
            self.push(Work::read(next, last + REMOTE, RECORD));
        } else {
            self.push(Work::nop());
        }
        self.barrier();
        let slots = self.program.queues[self.queue].posted() + adds + 1;
        let ring = slots.next_power_of_two();
        let completions = self.program.queues[self.queue].signaled(self.works().len());
        for index in self.counts.clone() {
            let work = &self.works()[index];
            let by = if work.opcode == WqeOpcode::WAIT.0 { completions } else { ring };
            let count = self.place(index) + OPERAND;
            self.push(Work::add(count, Value::Number(by), Program::scrap()));
        }
        self.push(if next.is_some() { Work::enable(self.queue, 0) } else { Work::nop() });
        self.close();
        self.queue
    }

    fn place(&self, index: usize) -> Location {
        Location {
            segment: crate::program::Segment::Queue(self.queue),
            offset: self.works()[index].slot * SLOT as u64,
        }
    }

    /// Returns the location `further` slots after the next work request.
    fn ahead(&self, further: u64) -> Location {
        let posted = self.program.queues[self.queue].posted();
        Location {
            segment: crate::program::Segment::Queue(self.queue),
            offset: (posted + further) * SLOT as u64,
        }
    }

    /// Executes `then`, a work request of one slot, if a comparison holds. Costs 1C + 1A + 3E (copies,
    /// atomics, ENABLEs and WAITs) with a number, and 1C + 1A more for an order.
    pub fn when(&mut self, x: Location, test: Test, y: Operand, then: Work) {
        self.choose((x, test, y), then.clone().dormant(), then);
    }

    /// Executes the second of two work requests if a comparison holds, otherwise the first. The two may
    /// differ in op-code and flags only.
    fn choose(&mut self, (mut x, test, y): Condition<Operand>, without: Work, then: Work) {
        let old = Program::scrap();
        let patched = matches!(y, Operand::Var(_));
        let reset = self.is_recycled() && !test.wakes();
        if let Some(calculation) = test.calculation() {
            let copy = self.var("", 0);
            self.push(Work::write(x, copy, 8));
            if let Operand::Var(y) = y {
                let operand = self.ahead(3) + OPERAND;
                self.push(Work::read(y, operand, 8));
                self.barrier();
            }
            self.push(Work::calculate(calculation, copy, number(y), old));
            x = copy;
        }
        // The following slots are the copies, a WAIT (and an ENABLE if the comparand is copied), the swap, a
        // WAIT and an ENABLE.
        let copies = 1 + u64::from(patched) + u64::from(reset);
        let swap = self.ahead(copies + 1 + u64::from(patched));
        let woken = self.ahead(copies + 4 + u64::from(patched));
        let [asleep, awake] = [&without, &then].map(|work| Work { id: 0, ..work.clone() }.header());
        let (expected, becomes) = if test.wakes() { (asleep, awake) } else { (awake, asleep) };
        if reset {
            let template = self.program.constant(awake);
            self.push(Work::read(template, woken, 8));
        }
        match (self.is_recycled(), test.wakes()) {
            (true, true) => self.push(Work::write(x.back(ID), woken, 8)),
            _ => self.push(Work::write(x, woken + ID, ID_BYTES)),
        };
        if let Operand::Var(y) = y {
            self.push(Work::read(y, swap + COMPARE + ID, ID_BYTES));
            self.barrier();
        } else {
            self.order();
        }
        let operand = match y {
            Operand::Number(y) => y,
            Operand::Var(_) => 0,
        };
        let expected = Value::Number(expected | operand << 16);
        self.push(Work::compare_swap(woken, expected, Value::Number(becomes), old));
        self.barrier();
        self.push(if test.wakes() { without } else { then });
        self.compared = self.works().len();
    }

    /// Executes `then` if the bytes at `x` equal `bytes`. Each six bytes need a comparison of 1C + 1A + 3E.
    /// Only for code that runs once.
    pub fn when_bytes(&mut self, x: Location, bytes: &[u8], then: Work) {
        let pieces: Vec<&[u8]> = bytes.chunks(ID_BYTES as usize).collect();
        let id = |piece: &[u8]| {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            u64::from_le_bytes(word)
        };
        let first = self.ahead(5);
        self.push(Work::read(x, first + ID, pieces[0].len() as u64));
        for (number, piece) in pieces.iter().enumerate() {
            self.order();
            let woken = self.ahead(3);
            let step = match pieces.get(number + 1) {
                // If this work request is awake, it copies the next piece into the next comparison.
                // Otherwise the next comparison sees other bytes and fails.
                Some(next) => {
                    let place = x + (number as u64 + 1) * ID_BYTES;
                    let len = next.len() as u64;
                    Work::write(place, self.ahead(4 + 5) + ID, len)
                }
                None => then.clone(),
            };
            let bits = step.flags;
            let expected = Value::Number(header(0, bits, id(piece)));
            let awake = Value::Number(header(step.opcode, bits, 0));
            self.push(Work::compare_swap(woken, expected, awake, Program::scrap()));
            self.barrier();
            let other = !id(piece) & (u64::MAX >> (64 - 8 * piece.len()));
            self.push(Work { id: if number == 0 { 0 } else { other }, ..step.dormant() });
            self.compared = self.works().len();
        }
    }

    /// Generates `target = number`, an inline WRITE.
    pub fn set(&mut self, target: Location, number: u64) {
        self.push(Work::put(&number.to_le_bytes(), target));
    }

    /// Generates `target = source`.
    pub fn copy(&mut self, target: Location, source: Location) {
        self.push(Work::write(source, target, 8));
    }

    /// Generates `x += y` or another atomic.
    pub fn change(&mut self, x: Location, opcode: WqeOpcode, y: Operand) {
        if let Operand::Var(y) = y {
            let operand = self.ahead(3) + OPERAND;
            self.push(Work::read(y, operand, 8));
            self.barrier();
        }
        self.push(Work::atomic(opcode, x, number(y), Program::scrap()));
    }

    /// Generates `x -= y`, by adding the two's complement.
    pub fn subtract(&mut self, x: Location, y: Operand) {
        match y {
            Operand::Number(y) => self.change(x, WqeOpcode::FETCH_ADD, Operand::Number(y.wrapping_neg())),
            Operand::Var(y) => {
                let negative = self.var("", 0);
                self.copy(negative, y);
                self.change(negative, WqeOpcode::BIT_XOR, Operand::Number(u64::MAX));
                self.change(negative, WqeOpcode::FETCH_ADD, Operand::Number(1));
                self.change(x, WqeOpcode::FETCH_ADD, Operand::Var(negative));
            }
        }
    }

    /// Generates `target = [pointer + offset]`: the address is written into the source of a copy (the
    /// indirect and indexed modes of `mov`).
    pub fn load(&mut self, target: Location, pointer: Location, offset: Operand) {
        let copy = self.ahead_of_copy(offset);
        self.push(Work::read(pointer, copy + LOCAL, 8));
        self.offset(copy + LOCAL, offset);
        self.push(Work::write(Program::scrap(), target, 8));
    }

    /// Generates `[pointer + offset] = source`.
    pub fn store(&mut self, pointer: Location, offset: Operand, source: Location) {
        let copy = self.ahead_of_copy(offset);
        self.push(Work::read(pointer, copy + REMOTE, 8));
        self.offset(copy + REMOTE, offset);
        self.push(Work::write(source, Program::scrap(), 8));
    }

    /// Returns the location of the copy of a load or store.
    fn ahead_of_copy(&self, offset: Operand) -> Location {
        self.ahead(match offset {
            Operand::Number(0) => 3,
            Operand::Number(_) => 4,
            Operand::Var(_) => 7,
        })
    }

    fn offset(&mut self, address: Location, offset: Operand) {
        if let Operand::Var(offset) = offset {
            let add = self.ahead(3) + OPERAND;
            self.push(Work::read(offset, add, 8));
            self.barrier();
        }
        if offset != Operand::Number(0) {
            self.push(Work::add(address, number(offset), Program::scrap()));
        }
        self.barrier();
    }
}

fn number(operand: Operand) -> Value {
    Value::Number(if let Operand::Number(number) = operand { number } else { 0 })
}
