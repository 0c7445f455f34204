//! Tests of universal machines that run entirely as chains: after the first ENABLE nothing is posted and no
//! doorbell rings. The NIC's own counter counts the executed work requests. Each machine is compared step by
//! step with an ordinary program.

use remora_chain::{Location, Machine, Program, RunEnd, Segment, compile};

struct Universal {
    machine: Machine,
}

impl Universal {
    fn new(program: Program) -> Universal {
        let mut machine = Machine::load(program).unwrap();
        machine.start();
        Universal { machine }
    }

    /// Executes a few work requests. Returns false at the end of the program.
    fn go(&mut self, works: u64) -> bool {
        self.machine.run(works) == RunEnd::Budget
    }

    fn word(&self, name: &str) -> u64 {
        self.machine.word(name).unwrap()
    }

    fn array(&self, name: &str) -> Vec<u64> {
        let (place, len) = self.machine.program().find(name).unwrap();
        let bytes = self.machine.read(place, len as usize).unwrap();
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

/// Fills an array of a program before loading.
fn fill(program: &mut Program, name: &str, values: &[u64]) {
    let (Location { segment, offset }, len) = program.find(name).unwrap();
    let Segment::Section(section) = segment else { panic!("{name} is no data") };
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert!(bytes.len() as u64 <= len, "{name} has no space for {} words", values.len());
    program.sections[section].bytes[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
}

/// Applies the rule that the bits of its number define.
fn rule_110(row: &[u64]) -> Vec<u64> {
    let mut next = vec![0; row.len()];
    for index in 1..row.len() - 1 {
        let pattern = row[index - 1] << 2 | row[index] << 1 | row[index + 1];
        next[index] = 110 >> pattern & 1;
    }
    next
}

#[test]
fn rule_110_goes_its_way_generation_by_generation() {
    let mut chain = Universal::new(compile(include_str!("../programs/rule110.chain")).unwrap());
    while chain.go(1 << 20) {}
    let mut row = vec![0; 64];
    let mut generations = Vec::new();
    row[62] = 1;
    for _ in 0..30 {
        row = rule_110(&row);
        generations.extend(&row[1..63]);
    }
    assert_eq!(chain.array("history"), generations);
    assert_eq!((chain.array("row"), chain.word("generation")), (row.clone(), 30));
    assert_eq!(chain.machine.failures(), []);
    assert!(row.iter().sum::<u64>() > 10, "not a row of the dead");
    assert!(chain.machine.executed() > 100_000);
}

#[test]
fn a_busy_beaver_works_as_long_as_it_is_known_to() {
    let mut chain = Universal::new(compile(include_str!("../programs/beaver.chain")).unwrap());
    // The published busy-beaver champion: for each state and symbol, the symbol to write, the move of the
    // head, and the next state.
    let table =
        [[(1, 1, 2), (1, -1, 2)], [(1, -1, 1), (0, -1, 3)], [(1, 1, 0), (1, -1, 4)], [(1, 1, 4), (0, 1, 1)]];
    let mut tape = vec![0_u64; 64];
    let mut head = 32_i64;
    let mut state = 1_usize;
    let mut heads = Vec::new();
    let mut states = Vec::new();
    while state != 0 {
        let (write, by, next) = table[state - 1][tape[head as usize] as usize];
        tape[head as usize] = write;
        head += by;
        state = next;
        heads.push(head as u64);
        states.push(state as u64);
    }
    assert_eq!(heads.len(), 107, "as published");
    while chain.go(1 << 20) {}
    assert_eq!((&chain.array("heads")[..107], &chain.array("states")[..107]), (&heads[..], &states[..]));
    assert_eq!((chain.word("steps"), chain.word("ones")), (107, 13));
    assert_eq!((chain.array("tape"), chain.word("state")), (tape, 0));
    assert_eq!(chain.machine.failures(), []);
}

/// An ordinary interpreter of Brainfuck. Returns the output, the tape, and the position in each step.
fn brainfuck(code: &str, input: &[u64]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let code: Vec<u8> = code.bytes().filter(|byte| b"+-<>[].,".contains(byte)).collect();
    let mut tape = vec![0_u64; 128];
    let mut head = 0;
    let mut pc = 0;
    let mut trail = Vec::new();
    let mut output = Vec::new();
    let mut input = input.iter();
    let jump = |start: usize, by: i64| {
        let mut position = start as i64;
        let mut depth = 0;
        loop {
            depth += match code[position as usize] {
                b'[' => 1,
                b']' => -1,
                _ => 0,
            };
            if depth == 0 {
                return position as usize;
            }
            position += by;
        }
    };
    while pc < code.len() {
        match code[pc] {
            b'+' => tape[head] = (tape[head] + 1) & 255,
            b'-' => tape[head] = (tape[head] + 255) & 255,
            b'<' => head -= 1,
            b'>' => head += 1,
            b'[' if tape[head] == 0 => pc = jump(pc, 1),
            b']' if tape[head] != 0 => pc = jump(pc, -1),
            b'.' => output.push(tape[head]),
            b',' => tape[head] = input.next().copied().unwrap_or(0),
            _ => {}
        }
        trail.push(pc as u64);
        pc += 1;
    }
    (output, tape, trail)
}

fn interpreted(code: &str, input: &[u64]) -> Universal {
    let mut program = compile(include_str!("../programs/brainfuck.chain")).unwrap();
    let numbers = code.bytes().filter_map(|byte| b"+-<>[].,".iter().position(|known| *known == byte));
    fill(&mut program, "code", &numbers.map(|number| number as u64 + 1).collect::<Vec<_>>());
    fill(&mut program, "input", input);
    let mut chain = Universal::new(program);
    let (output, tape, trail) = brainfuck(code, input);
    while chain.go(1 << 20) {}
    assert_eq!(chain.machine.failures(), []);
    assert_eq!((chain.word("steps"), chain.array("tape")), (trail.len() as u64, tape), "{code}");
    let watched = trail.len().min(1000);
    assert_eq!(chain.array("trail")[..watched], trail[..watched], "{code}");
    assert_eq!(chain.array("output")[..output.len()], output);
    assert_eq!(chain.word("written") as usize, output.len());
    chain
}

/// The "Hello World" program of the language.
const HELLO: &str = "++++++++[>++++[>++>+++>+++>+<<<<-]>+>+>->>+[<]<-]>>.>---.+++++++..+++.>>.<-.<.+++.------.--------.>>+.>++.";

#[test]
fn published_programs_of_a_tiny_language_run_on_the_nic() {
    let chain = interpreted(HELLO, &[]);
    let output: Vec<u8> =
        chain.array("output").iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    assert_eq!(output, b"Hello World!\n");
    // Programs: the input in reverse, a product, and a test for zero.
    interpreted(">,[>,]<[.<]", &[3, 1, 4, 1, 5, 0]);
    let product = interpreted(",>,<[>[>+>+<<-]>>[<<+>>-]<<<-]>>.", &[12, 11]);
    assert_eq!(product.array("output")[0], 132);
    interpreted(",[[-]>+<]>.", &[0]);
    interpreted(",[[-]>+<]>.", &[200]);
}

#[test]
fn what_is_interpreted_never_ends_if_it_should_not() {
    let mut program = compile(include_str!("../programs/brainfuck.chain")).unwrap();
    fill(&mut program, "code", &[1, 5, 6]);
    let mut chain = Universal::new(program);
    let before = chain.machine.executed();
    assert!(chain.go(3_000_000), "an endless loop");
    assert!(chain.machine.executed() - before >= 3_000_000);
    assert!(chain.word("steps") > 1000);
}
