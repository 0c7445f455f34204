//! Code generation from a syntax tree. Each sequence of statements without a branch is a *block*, a recycled
//! queue of its own. A block ends with an ENABLE of the next block. A record with the number and the count
//! of the next block is copied into that ENABLE.

use remora_nic::wqe::WqeOpcode;
use std::collections::BTreeMap;

use super::parse::{Amount, Condition, Statement, Target, Tree};
use crate::code::{Code, Operand, RECORD};
use crate::program::{Location, Program, Section, Segment, Value, Work};

/// Offset of the count in a record.
const COUNT: u64 = 16;

/// The block to execute after a block.
enum Successor<'t> {
    Nowhere,
    To(usize),
    /// The first block if the condition holds, otherwise the second.
    Either(&'t Condition, usize, usize),
}

struct Block<'t> {
    body: Vec<&'t Statement>,
    successor: Successor<'t>,
}

/// Compiles a syntax tree.
pub(super) fn compile(tree: &Tree) -> Program {
    let mut blocks = Blocks { all: Vec::new(), exits: Vec::new() };
    let first = blocks.open();
    let _ = blocks.lower(first, &tree.body);
    let mut program = Program::new();
    let names = Names::new(&mut program, tree);
    program.sections.push(Section { name: "jumps".into(), ..Section::default() });
    let jumps = program.sections.len() - 1;
    let mut record = |name: &str| {
        let offset = program.sections[jumps].put(name, &[0; RECORD as usize]);
        Location { segment: Segment::Section(jumps), offset }
    };
    let next = record("next");
    let records: Vec<_> = (0..blocks.all.len()).map(|index| record(&format!("to_block{index}"))).collect();
    for (index, block) in blocks.all.iter().enumerate() {
        let mut code = Code::repeated(&mut program, &format!("block{index}"));
        code.push(Work::add(records[index] + COUNT, Value::Number(0), Program::scrap()));
        for statement in &block.body {
            names.statement(&mut code, statement);
        }
        let goes_on = match block.successor {
            Successor::Nowhere => None,
            Successor::To(target) => {
                code.push(Work::write(records[target], next, RECORD));
                Some(next)
            }
            Successor::Either(condition, yes, no) => {
                code.push(Work::write(records[no], next, RECORD));
                names.when(&mut code, condition, Work::write(records[yes], next, RECORD));
                Some(next)
            }
        };
        let queue = code.end_of_round(goes_on);
        let ring = u64::from(program.queues[queue].ring_slots());
        program.queues[queue].works[0].swap_add = Value::Number(ring);
        let enabled = program.queues[queue].enabled;
        program.set_at_load(records[index], Value::Qp(queue));
        program.set_at_load(records[index] + COUNT, Value::Number(enabled));
        if index != first {
            program.queues[queue].enabled = 0;
        }
    }
    program
}

struct Blocks<'t> {
    all: Vec<Block<'t>>,
    /// Target block of a `break`, for each enclosing loop.
    exits: Vec<usize>,
}

impl<'t> Blocks<'t> {
    fn open(&mut self) -> usize {
        self.all.push(Block { body: Vec::new(), successor: Successor::Nowhere });
        self.all.len() - 1
    }

    /// Appends statements to a block. Returns the block in which execution continues after them, or `None`
    /// after a `break`.
    fn lower(&mut self, mut index: usize, statements: &'t [Statement]) -> Option<usize> {
        for statement in statements {
            match statement {
                Statement::If(condition, yes, no) => {
                    let then = self.open();
                    let other = self.open();
                    let behind = self.open();
                    self.all[index].successor = Successor::Either(condition, then, other);
                    for (block, statements) in [(then, yes), (other, no)] {
                        if let Some(end) = self.lower(block, statements) {
                            self.all[end].successor = Successor::To(behind);
                        }
                    }
                    index = behind;
                }
                Statement::While(condition, body) => {
                    let head = self.open();
                    let inner = self.open();
                    let behind = self.open();
                    self.all[index].successor = Successor::To(head);
                    self.all[head].successor = match condition {
                        Some(condition) => Successor::Either(condition, inner, behind),
                        None => Successor::To(inner),
                    };
                    self.exits.push(behind);
                    if let Some(end) = self.lower(inner, body) {
                        self.all[end].successor = Successor::To(head);
                    }
                    self.exits.pop();
                    index = behind;
                }
                Statement::Break => {
                    // The parser checks that a `break` is inside a loop.
                    self.all[index].successor =
                        self.exits.last().map_or(Successor::Nowhere, |exit| Successor::To(*exit));
                    return None;
                }
                simple => self.all[index].body.push(simple),
            }
        }
        Some(index)
    }
}

/// Locations of variables and arrays.
struct Names {
    vars: BTreeMap<String, Location>,
    /// First element of each array, and the variable that contains its address.
    arrays: BTreeMap<String, (Location, Location)>,
}

impl Names {
    fn new(program: &mut Program, tree: &Tree) -> Names {
        let vars = tree.vars.iter().map(|(name, value)| (name.clone(), program.var(name, *value))).collect();
        let mut arrays = BTreeMap::new();
        for (name, values) in &tree.arrays {
            let mut section = Section { name: name.clone(), ..Section::default() };
            section.put(name, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
            program.sections.push(section);
            let first = Location { segment: Segment::Section(program.sections.len() - 1), offset: 0 };
            let pointer = program.var("", 0);
            program.set_at_load(pointer, Value::At(first));
            arrays.insert(name.clone(), (first, pointer));
        }
        Names { vars, arrays }
    }

    fn statement(&self, code: &mut Code<'_>, statement: &Statement) {
        match statement {
            Statement::Set(Target::Var(name), amount) => self.bring(code, self.vars[name], amount),
            Statement::Set(Target::Element(array, index), amount) => {
                let source = self.var(code, amount);
                self.put(code, array, index, source);
            }
            Statement::Change(target, opcode, amount) => {
                self.change(code, target, |code, x, names| {
                    let by = names.operand(code, amount);
                    code.change(x, *opcode, by);
                });
            }
            Statement::Subtract(target, amount) => {
                self.change(code, target, |code, x, names| {
                    let by = names.operand(code, amount);
                    code.subtract(x, by);
                });
            }
            // These statements end blocks and are handled by `lower`.
            Statement::If(..) | Statement::While(..) | Statement::Break => {}
        }
    }

    fn change(&self, code: &mut Code<'_>, target: &Target, modify: impl Fn(&mut Code<'_>, Location, &Names)) {
        match target {
            Target::Var(name) => modify(code, self.vars[name], self),
            Target::Element(array, Amount::Number(number)) => {
                modify(code, self.arrays[array].0 + 8 * number, self)
            }
            Target::Element(array, index) => {
                let copy = code.var("", 0);
                self.bring(code, copy, &Amount::Element(array.clone(), Box::new(index.clone())));
                modify(code, copy, self);
                self.put(code, array, index, copy);
            }
        }
    }

    /// Generates `target = amount`.
    fn bring(&self, code: &mut Code<'_>, target: Location, amount: &Amount) {
        match amount {
            Amount::Number(number) => code.set(target, *number),
            Amount::Var(name) => code.copy(target, self.vars[name]),
            Amount::Element(array, index) => match **index {
                Amount::Number(number) => code.copy(target, self.arrays[array].0 + 8 * number),
                _ => {
                    let offset = self.offset(code, index);
                    code.load(target, self.arrays[array].1, offset);
                }
            },
        }
    }

    fn put(&self, code: &mut Code<'_>, array: &str, index: &Amount, source: Location) {
        let (first, pointer) = self.arrays[array];
        if let Amount::Number(number) = index {
            return code.copy(first + 8 * number, source);
        }
        let offset = self.offset(code, index);
        code.store(pointer, offset, source);
    }

    /// Computes the offset of an element in bytes by three doublings, because there is no shift operation.
    fn offset(&self, code: &mut Code<'_>, index: &Amount) -> Operand {
        let offset = code.var("", 0);
        self.bring(code, offset, index);
        for _ in 0..3 {
            code.change(offset, WqeOpcode::FETCH_ADD, Operand::Var(offset));
        }
        Operand::Var(offset)
    }

    fn operand(&self, code: &mut Code<'_>, amount: &Amount) -> Operand {
        match amount {
            Amount::Number(number) => Operand::Number(*number),
            other => Operand::Var(self.var(code, other)),
        }
    }

    /// Returns a variable that contains the amount.
    fn var(&self, code: &mut Code<'_>, amount: &Amount) -> Location {
        match amount {
            Amount::Number(number) => code.program().constant(*number),
            Amount::Var(name) => self.vars[name],
            Amount::Element(..) => {
                let copy = code.var("", 0);
                self.bring(code, copy, amount);
                copy
            }
        }
    }

    fn when(&self, code: &mut Code<'_>, condition: &Condition, then: Work) {
        let left = self.var(code, &condition.left);
        let right = self.operand(code, &condition.right);
        code.when(left, condition.test, right, then);
    }
}
