//! Tests of RedN's constructs against plain arithmetic, and of their costs against RedN's Table 2.

use remora_chain::{
    Code, Cost, Location, Machine, Operand, Program, Rings, RunEnd, Section, Segment, Test, Work,
};
use remora_nic::wqe::WqeOpcode;

const MOST: u64 = (1 << 48) - 1;

/// Numbers that are hard to distinguish: neighbours, extremes, single bits.
struct Numbers(u64);

impl Numbers {
    fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 13
    }

    fn operand(&mut self) -> u64 {
        match self.any() % 4 {
            0 => self.any() % 3,
            1 => MOST - self.any() % 3,
            2 => 1 << (self.any() % 48),
            _ => self.any() & MOST,
        }
    }

    fn pair(&mut self) -> (u64, u64) {
        let x = self.operand();
        let y = match self.any() % 3 {
            0 => x,
            1 => (x + 1) & MOST,
            _ => self.operand(),
        };
        (x, y)
    }
}

fn run(program: Program) -> Machine {
    let mut machine = Machine::load(program).unwrap();
    machine.start();
    assert_eq!(machine.run(100_000), RunEnd::Rest);
    assert_eq!(machine.failures(), []);
    machine
}

fn word(machine: &Machine, place: Location) -> u64 {
    u64::from_le_bytes(machine.read(place, 8).unwrap().try_into().unwrap())
}

/// Runs `if x TEST y { answer = 1 }`. Returns the answer and the cost of the condition.
fn decide(x: u64, test: Test, y: u64, by_var: bool) -> (u64, Cost) {
    let mut program = Program::new();
    let mut code = Code::once(&mut program, "main");
    let x = code.var("x", x);
    let one = code.var("one", 1);
    let answer = code.var("answer", 0);
    let y = if by_var { Operand::Var(code.var("y", y)) } else { Operand::Number(y) };
    code.when(x, test, y, Work::write(one, answer, 8));
    let works = code.works().len() - 1;
    let cost = Cost::of(&code.works()[..works]);
    // The work requests after it must not change the compared header.
    code.barrier();
    code.end();
    (word(&run(program), answer), cost)
}

#[test]
fn every_comparison_is_that_of_plain_numbers() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let (x, y) = numbers.pair();
        for test in Test::ALL {
            for by_var in [false, true] {
                let expected = u64::from(test.holds(x, y));
                assert_eq!(decide(x, test, y, by_var).0, expected, "{x} {test:?} {y}, {by_var}, seed {seed}");
            }
        }
    }
}

#[test]
fn comparisons_cost_what_table_2_says() {
    let cost = |test, by_var| {
        let Cost { copies, atomics, controls } = decide(3, test, 4, by_var).1;
        [copies, atomics, controls]
    };
    for test in [Test::Equal, Test::NotEqual] {
        assert_eq!(cost(test, false), [1, 1, 3], "Table 2");
        assert_eq!(
            cost(test, true),
            [2, 1, 4],
            "the comparand is copied into the swap, which is fetched then"
        );
    }
    for test in [Test::Less, Test::LessOrEqual, Test::Greater, Test::GreaterOrEqual] {
        assert_eq!(cost(test, false), [2, 2, 3], "a copy and a calculation more");
    }
}

/// Maximum number of rounds of an unrolled loop.
const ROUNDS: u64 = 12;
/// Locations of the tested value, its increment, and a counter of rounds.
type Vars = [u64; 3];

/// Computes `while x TEST y { rounds += 1; x += step }` in Rust, up to a number of rounds.
fn plain(test: Test, y: u64, [mut x, step, mut rounds]: Vars, most: u64) -> Vars {
    while rounds < most && test.holds(x, y) {
        (rounds, x) = (rounds + 1, x.wrapping_add(step));
    }
    [x, step, rounds]
}

fn vars(code: &mut Program, [x, step, rounds]: Vars) -> [Location; 3] {
    [("x", x), ("step", step), ("rounds", rounds)].map(|(name, value)| code.var(name, value))
}

fn body(code: &mut Code<'_>, [x, _, rounds]: [Location; 3], step: u64) {
    code.change(rounds, WqeOpcode::FETCH_ADD, Operand::Number(1));
    code.change(x, WqeOpcode::FETCH_ADD, Operand::Number(step));
}

/// Runs the loop unrolled, with breaks.
fn written_out(test: Test, y: u64, start: Vars, by_var: bool) -> Vars {
    let mut program = Program::new();
    let places = vars(&mut program, start);
    let mut code = Code::once(&mut program, "main");
    let y = if by_var { Operand::Var(code.var("y", y)) } else { Operand::Number(y) };
    code.unrolled(ROUNDS as usize, (places[0], test, y), |code| body(code, places, start[1]));
    code.end();
    let machine = run(program);
    places.map(|place| word(&machine, place))
}

/// Runs the loop as two rings for at most `budget` work requests. Also returns the reason why it ended.
fn recycled(test: Test, y: u64, start: Vars, budget: u64) -> (Vars, RunEnd) {
    let mut program = Program::new();
    let places = vars(&mut program, start);
    Rings::new(&mut program, "loop", (places[0], test, y), |code| body(code, places, start[1]));
    let mut machine = Machine::load(program).unwrap();
    machine.start();
    let end = machine.run(budget);
    assert_eq!(machine.failures(), []);
    (places.map(|place| word(&machine, place)), end)
}

#[test]
fn loops_end_where_those_of_plain_numbers_do() {
    let mut ended = 0;
    let mut endless = 0;
    for seed in 0..120 {
        let mut numbers = Numbers(seed);
        let x = numbers.any() % 40;
        let y = numbers.any() % 40;
        let start = [x, [1, 2, 3, 0][(numbers.any() % 4) as usize], 0];
        for test in Test::ALL {
            for by_var in [false, true] {
                let expected = plain(test, y, start, ROUNDS);
                assert_eq!(written_out(test, y, start, by_var), expected, "{x} {test:?} {y}, seed {seed}");
            }
            // A loop that has not ended after 40 rounds never ends.
            let expected = plain(test, y, start, 50);
            let (now, end) = recycled(test, y, start, 16 * 100);
            if expected[2] < 50 {
                assert_eq!((now, end), (expected, RunEnd::Rest), "{x} {test:?} {y}, seed {seed}");
                ended += 1;
            } else {
                assert_eq!(end, RunEnd::Budget, "{x} {test:?} {y}, seed {seed}");
                // The loop was stopped between two of its steps.
                let rounds = now[2];
                assert!(
                    rounds > 50
                        && (now[0] == x + rounds * start[1] || now[0] + start[1] == x + rounds * start[1])
                );
                endless += 1;
            }
        }
    }
    assert!(ended > 300 && endless > 100, "{ended} {endless}");
}

#[test]
fn loops_cost_no_more_than_table_2_says() {
    let costs = |works: &[Work]| {
        let Cost { copies, atomics, controls } = Cost::of(works);
        [copies, atomics, controls]
    };
    for test in Test::ALL {
        let order = usize::from(!matches!(test, Test::Equal | Test::NotEqual));
        let mut program = Program::new();
        let mut code = Code::once(&mut program, "main");
        let x = code.var("x", 0);
        code.unrolled(1, (x, test, Operand::Number(5)), |_| ());
        assert_eq!(
            costs(code.works()),
            [1 + order, 1 + order, 4],
            "that of `if`, and the WAIT that never passes"
        );

        let rings = Rings::new(&mut program, "loop", (x, test, 5), |_| ()).rings;
        for ring in rings {
            let cost = costs(&program.queues[ring].works);
            assert_eq!(cost, [2 + order, 2 + order, 2]);
            assert!(order > 0 || cost.iter().zip([3, 2, 4]).all(|(ours, table)| *ours <= table), "Table 2");
        }
    }
    // Cost of a round of each shipped loop without the add of its body, queue by queue.
    let shipped = |text: &str| {
        let program = remora_chain::assemble(text).unwrap();
        let all: Vec<Work> = program.queues.iter().flat_map(|queue| queue.works.clone()).collect();
        let [copies, atomics, controls] = costs(&all);
        [copies, atomics - 1, controls]
    };
    assert_eq!(shipped(include_str!("../programs/while.chain")), [1, 3, 2]);
    assert_eq!(shipped(include_str!("../programs/count.chain")), [2, 6, 5]);
}

#[test]
fn longer_operands_take_a_comparison_for_each_six_bytes() {
    for len in [1, 6, 7, 8, 12, 13, 24] {
        let bytes: Vec<u8> = (1..=len).map(|byte| byte * 9).collect();
        for wrong in (0..=len).map(usize::from) {
            let mut program = Program::new();
            let mut section = Section { name: "data".into(), ..Section::default() };
            let mut stored = bytes.clone();
            if let Some(byte) = stored.get_mut(wrong) {
                *byte ^= 1;
            }
            section.put("key", &stored);
            program.sections.push(section);
            let key = Location { segment: Segment::Section(1), offset: 0 };
            let mut code = Code::once(&mut program, "main");
            let one = code.var("one", 1);
            let answer = code.var("answer", 0);
            code.when_bytes(key, &bytes, Work::write(one, answer, 8));
            let pieces = usize::from(len).div_ceil(6);
            let Cost { copies, atomics, controls } = Cost::of(code.works());
            assert_eq!([copies - 1, atomics, controls], [pieces, pieces, 3 * pieces]);
            code.end();
            assert_eq!(word(&run(program), answer), u64::from(wrong == usize::from(len)), "{len}, {wrong}");
        }
    }
}

/// An operation of the plain model.
type Model = [u64; 4];

fn one_step(code: &mut Code<'_>, vars: [Location; 4], numbers: &mut Numbers, model: &mut Model) {
    let a = (numbers.any() % 4) as usize;
    let b = (numbers.any() % 4) as usize;
    let number = numbers.any();
    let (operand, value) = if numbers.any().is_multiple_of(2) {
        (Operand::Var(vars[b]), model[b])
    } else {
        (Operand::Number(number), number)
    };
    match numbers.any() % 7 {
        0 => {
            code.set(vars[a], number);
            model[a] = number;
        }
        1 => {
            code.copy(vars[a], vars[b]);
            model[a] = model[b];
        }
        2 => {
            code.change(vars[a], WqeOpcode::FETCH_ADD, operand);
            model[a] = model[a].wrapping_add(value);
        }
        3 => {
            code.subtract(vars[a], operand);
            model[a] = model[a].wrapping_sub(value);
        }
        4 => {
            code.change(vars[a], WqeOpcode::MAX, operand);
            model[a] = model[a].max(value);
        }
        5 => {
            code.change(vars[a], WqeOpcode::BIT_AND, operand);
            model[a] &= value;
        }
        _ => {
            code.change(vars[a], WqeOpcode::BIT_XOR, operand);
            model[a] ^= value;
        }
    }
}

#[test]
fn arithmetic_is_that_of_plain_numbers() {
    for seed in 0..100 {
        let mut numbers = Numbers(seed);
        let mut program = Program::new();
        let mut model = Model::default();
        let mut code = Code::once(&mut program, "main");
        let vars = [0; 4].map(|_| code.var("", 0));
        for _ in 0..30 {
            one_step(&mut code, vars, &mut numbers, &mut model);
        }
        code.end();
        let machine = run(program);
        assert_eq!(vars.map(|var| word(&machine, var)), model, "seed {seed}");
    }
}

#[test]
fn the_modes_of_mov_reach_what_they_name() {
    for seed in 0..100 {
        let mut numbers = Numbers(seed);
        let mut program = Program::new();
        let mut section = Section { name: "data".into(), ..Section::default() };
        let table: Vec<u64> = (0..16).map(|_| numbers.any()).collect();
        section.put("table", &table.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        // The value of the pointer is known only when the program is loaded.
        section.bytes.extend([0; 16]);
        let place = |offset| Location { segment: Segment::Section(1), offset };
        section.values.push((128, remora_chain::Value::At(place(0))));
        program.sections.push(section);
        let pointer = place(128);
        let mut code = Code::once(&mut program, "main");
        let [i, j, k] = [0; 3].map(|_| numbers.any() % 16);
        let index = code.var("", 8 * i);
        let targets = [0; 3].map(|_| code.var("", 0));
        code.load(targets[0], pointer, Operand::Number(0));
        code.load(targets[1], pointer, Operand::Number(8 * j));
        code.load(targets[2], pointer, Operand::Var(index));
        let given = code.var("", 77);
        code.store(pointer, Operand::Number(8 * k), given);
        code.store(pointer, Operand::Var(index), targets[0]);
        code.end();
        let machine = run(program);
        let loaded = targets.map(|var| word(&machine, var));
        assert_eq!(loaded, [table[0], table[j as usize], table[i as usize]], "seed {seed}");
        let mut expected = table.clone();
        (expected[k as usize], expected[i as usize]) = (77, if i == k { table[0] } else { 0 });
        expected[i as usize] = table[0];
        let now: Vec<_> = (0..16).map(|number| word(&machine, place(8 * number))).collect();
        assert_eq!(now, expected, "seed {seed}");
    }
}
