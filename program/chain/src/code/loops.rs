//! Loops (RedN, section 3.4): unrolled, with a break, and recycled.

use remora_nic::wqe::{SLOT, WqeOpcode, flag};

use super::{Code, Condition, ID, ID_BYTES, OPERAND, Operand};
use crate::program::{Location, Program, Segment, Value, Work, header};

impl Code<'_> {
    /// Stops this queue if a comparison holds, by suppressing the completion that the next WAIT needs
    /// (Figure 6). Costs 1C + 1A + 4E with a number. Only for code that runs once.
    pub fn break_when(&mut self, (x, test, y): Condition<Operand>) {
        self.choose((x, test, y), Work::nop().signaled(), Work::nop());
        // A negated comparison makes the work request unsignaled. Its completion is added here.
        self.unsaid += u64::from(!test.wakes());
        let count = self.completions();
        self.push(Work::wait(self.queue, count));
    }

    /// Generates `while x TEST y { body }`, unrolled `times` times, with a [break](Code::break_when) before
    /// each copy.
    pub fn unrolled(
        &mut self,
        times: usize,
        (x, test, y): Condition<Operand>,
        mut body: impl FnMut(&mut Self),
    ) {
        for _ in 0..times {
            self.break_when((x, test.opposite(), y));
            body(self);
        }
    }
}

/// A recycled loop: two rings of the same size that alternate, one round each. The first slot of each ring
/// is the ENABLE for the rest of the ring. The other ring rewrites it into an ENABLE or a NOP, depending on
/// the condition.
///
/// The counts of both rings grow equally, so one count of a ring can be copied from the other. Each round
/// adds to one of its two counts and copies the other one.
#[derive(Clone, Debug)]
pub struct Rings {
    /// Queue that tests the condition for the first time when the program starts.
    pub start: usize,
    /// Queues of the two rings.
    pub rings: [usize; 2],
    /// Number of slots of each ring.
    slots: u64,
    /// Slot with the ENABLE that starts the other ring.
    last: u64,
}

impl Rings {
    /// Generates `while x TEST y { body }`, which runs without the CPU. Costs 2C + 2A + 2E per round, and 1C
    /// + 1A more for an order. The body is generated twice and must not contain WAITs or ENABLEs.
    pub fn new(
        program: &mut Program,
        name: &str,
        (x, test, y): Condition<u64>,
        mut body: impl FnMut(&mut Code<'_>),
    ) -> Rings {
        let rings = ["even", "odd"].map(|turn| {
            let mut code = Code::repeated(program, &format!("{name}.{turn}"));
            let first = Work::enable(code.queue, 0);
            let ring = code.queue;
            code.push(if test.wakes() { first.dormant() } else { first });
            body(&mut code);
            ring
        });
        let compare = if test.calculation().is_some() { 4 } else { 2 };
        let last = program.queues[rings[0]].posted() + 2 + compare;
        let loops = Rings { start: program.queues.len(), rings, slots: (last + 1).next_power_of_two(), last };
        for turn in 0..2 {
            loops.count(program, turn);
            loops.look(program, turn, (x, test, y));
            program.push(rings[turn], Work { flags: flag::FENCE, ..Work::enable(rings[1 - turn], 1) });
        }
        let mut start = Code::once(program, &format!("{name}.start"));
        start.when(x, test, Operand::Number(y), Work::enable(rings[0], loops.slots));
        start.end();
        loops
    }

    /// Returns the locations of the counts in a ring's first and last ENABLE.
    fn counts(&self, turn: usize) -> [Location; 2] {
        let segment = Segment::Queue(self.rings[turn]);
        [0, self.last].map(|slot| Location { segment, offset: slot * SLOT as u64 + OPERAND })
    }

    /// Generates the update of the other ring's counts for its next round.
    fn count(&self, program: &mut Program, turn: usize) {
        let [first, last] = self.counts(turn);
        let other = self.counts(1 - turn);
        program.queues[self.rings[turn]].works[0].swap_add = Value::Number(self.slots);
        let add = |place| Work::add(place, Value::Number(self.slots), Program::scrap());
        // The even ring starts each pair of rounds. The odd ring ends at the count at which the even ring
        // ends in the next round.
        let (copied, added) = match turn {
            0 => (Work::read(first, other[0], 8), add(other[1])),
            _ => (Work::read(last, other[1], 8), add(other[0])),
        };
        program.push(self.rings[turn], copied);
        program.push(self.rings[turn], added);
    }

    /// Generates the test of the condition, which rewrites the first slot of the other ring.
    fn look(&self, program: &mut Program, turn: usize, (mut x, test, y): Condition<u64>) {
        let ring = self.rings[turn];
        let there = self.counts(1 - turn)[0].back(OPERAND);
        let scrap = Program::scrap();
        let mut fence = 0;
        if let Some(calculation) = test.calculation() {
            let copy = program.var("", 0);
            program.push(ring, Work::write(x, copy, 8));
            program.push(ring, Work::calculate(calculation, copy, Value::Number(y), scrap));
            (x, fence) = (copy, flag::FENCE);
        }
        let [asleep, awake] = [0, WqeOpcode::ENABLE.0].map(|opcode| header(opcode, 0, 0));
        let (source, target, len, expected, becomes) = if test.wakes() {
            (x.back(ID), there, 8, asleep, awake)
        } else {
            (x, there + ID, ID_BYTES, awake, asleep)
        };
        program.push(ring, Work { flags: fence, ..Work::read(source, target, len) });
        let swap =
            Work::compare_swap(there, Value::Number(expected | y << 16), Value::Number(becomes), scrap);
        program.push(ring, Work { flags: flag::FENCE, ..swap });
    }
}
