//! Tests of the language against an ordinary interpreter of the same syntax trees.

use remora_chain::language::{Amount, Condition, Statement, Target, Tree, parse};
use remora_chain::{Machine, RunEnd, compile};
use remora_nic::wqe::WqeOpcode;
use std::collections::BTreeMap;

/// An ordinary interpreter.
struct Plain {
    vars: BTreeMap<String, u64>,
    arrays: BTreeMap<String, Vec<u64>>,
}

impl Plain {
    fn run(tree: &Tree) -> Plain {
        let mut plain = Plain { vars: tree.vars.clone(), arrays: tree.arrays.clone() };
        plain.all(&tree.body);
        plain
    }

    fn amount(&self, amount: &Amount) -> u64 {
        match amount {
            Amount::Number(number) => *number,
            Amount::Var(name) => self.vars[name],
            Amount::Element(array, index) => self.arrays[array][self.amount(index) as usize],
        }
    }

    fn place(&mut self, target: &Target) -> &mut u64 {
        match target {
            Target::Var(name) => self.vars.get_mut(name).unwrap(),
            Target::Element(array, index) => {
                let index = self.amount(index) as usize;
                &mut self.arrays.get_mut(array).unwrap()[index]
            }
        }
    }

    fn holds(&self, condition: &Condition) -> bool {
        condition.test.holds(self.amount(&condition.left), self.amount(&condition.right))
    }

    /// Executes statements. Returns true while a `break` is leaving its loop.
    fn all(&mut self, statements: &[Statement]) -> bool {
        statements.iter().any(|statement| self.one(statement))
    }

    fn one(&mut self, statement: &Statement) -> bool {
        match statement {
            Statement::Set(target, amount) => *self.place(target) = self.amount(amount),
            Statement::Change(target, opcode, amount) => {
                let by = self.amount(amount);
                let place = self.place(target);
                *place = match *opcode {
                    WqeOpcode::FETCH_ADD => place.wrapping_add(by),
                    WqeOpcode::BIT_AND => *place & by,
                    WqeOpcode::BIT_OR => *place | by,
                    _ => *place ^ by,
                };
            }
            Statement::Subtract(target, amount) => {
                let by = self.amount(amount);
                let place = self.place(target);
                *place = place.wrapping_sub(by);
            }
            Statement::If(condition, yes, no) => {
                return if self.holds(condition) { self.all(yes) } else { self.all(no) };
            }
            Statement::While(condition, body) => {
                while condition.as_ref().is_none_or(|condition| self.holds(condition)) {
                    if self.all(body) {
                        break;
                    }
                }
            }
            Statement::Break => return true,
        }
        false
    }
}

fn chain(text: &str) -> Machine {
    let mut machine =
        Machine::load(compile(text).unwrap_or_else(|mistake| panic!("{}", mistake.show("it", text))))
            .unwrap();
    machine.start();
    assert_eq!(machine.run(10_000_000), RunEnd::Rest);
    assert_eq!(machine.failures(), []);
    machine
}

/// Checks that chain and interpreter compute the same variables and arrays.
fn same(text: &str) -> Plain {
    let machine = chain(text);
    let plain = Plain::run(&parse(text).unwrap());
    for (name, value) in &plain.vars {
        assert_eq!(machine.word(name), Some(*value), "{name} of\n{text}");
    }
    for (name, values) in &plain.arrays {
        let (place, len) = machine.program().find(name).unwrap();
        let bytes = machine.read(place, len as usize).unwrap();
        let words: Vec<_> =
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(&words, values, "{name} of\n{text}");
    }
    plain
}

#[test]
fn loops_branches_and_arrays_do_what_they_say() {
    let gcd = "var a = 1071\nvar b = 462\nwhile a != b {\n if a > b {\n a -= b\n } else {\n b -= a\n }\n}";
    assert_eq!(same(gcd).vars["a"], 21);
    let sieve = "
        array sieve[50]
        var i = 2
        var j
        var primes
        while i < 50 {
            if sieve[i] == 0 {
                primes += 1
                j = i
                j += i
                while j < 50 {
                    sieve[j] = 1
                    j += i
                }
            }
            i += 1
        }";
    assert_eq!(same(sieve).vars["primes"], 15);
    let find = "
        array list[8] = 5, 9, 2,
            7, 7, 1
        var i
        var found = -1
        loop {
            if list[i] == 7 {
                found = i
                break
            }
            if i == 7 { break }
            i += 1
        }
        list[2] += 3
        list[i] ^= list[0]";
    assert_eq!(same(find).vars["found"], 3);
}

/// Generates random nested statements from a seed; each loop has a bound.
fn any(seed: &mut u64, depth: u32, loops: &mut u32) -> String {
    let mut draw = |below: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    };
    let var = |number: u64| ["a", "b", "c"][number as usize].to_owned();
    let amount = |draw: &mut dyn FnMut(u64) -> u64| match draw(4) {
        0 => draw(5).to_string(),
        1 => "t[2]".to_owned(),
        2 => "t[k]".to_owned(),
        _ => var(draw(3)),
    };
    let x = amount(&mut draw);
    let y = amount(&mut draw);
    let z = amount(&mut draw);
    let target = if draw(4) == 0 { "t[k]".to_owned() } else { var(draw(3)) };
    let test = ["==", "!=", "<", "<=", ">", ">="][draw(6) as usize];
    let kind = draw(if depth == 0 { 6 } else { 9 });
    let change = ["+=", "|=", "^=", "&="][draw(4) as usize];
    match kind {
        0 => format!("{target} = {x}\n"),
        1 => format!("k = {}\n", draw(4)),
        2..=5 => format!("{target} {change} {x}\n{target} &= 63\n"),
        6 | 7 => {
            let yes = any(seed, depth - 1, loops);
            let no = any(seed, depth - 1, loops);
            format!("if {y} {test} {z} {{\n{yes}}} else {{\n{no}}}\n")
        }
        _ => {
            *loops += 1;
            let name = format!("n{loops}");
            let body = any(seed, depth - 1, loops);
            let more = any(seed, depth - 1, loops);
            format!(
                "{name} = 3\nwhile {name} > 0 {{\n{name} -= 1\n{body}if {y} {test} {z} {{\nbreak\n}}\n{more}}}\n"
            )
        }
    }
}

#[test]
fn programs_out_of_seeds_agree_with_an_ordinary_interpreter() {
    for seed in 0..150 {
        let mut state = seed * 77 + 1;
        let mut loops = 0;
        let body: String = (0..6).map(|_| any(&mut state, 2, &mut loops)).collect();
        let counters: String = (1..=loops).map(|number| format!("var n{number}\n")).collect();
        same(&format!("var a = 1\nvar b = 2\nvar c = 3\nvar k\narray t[4] = 4, 3, 2, 1\n{counters}{body}"));
    }
}

#[test]
fn mistakes_point_at_their_place() {
    let cases = [
        ("x = 1", 1, 1, "there is no `x`"),
        ("var x\nvar x", 2, 5, "there already"),
        ("var x\nx ++ 1", 2, 3, "means nothing"),
        ("var x\nx == 1", 2, 3, "changes nothing"),
        ("var x\nif x = 1 {\n}", 2, 6, "a comparison is missing"),
        ("var x\nif x == 1 {\nx = 2", 3, 6, "`}` is missing"),
        ("break", 1, 1, "no loop"),
        ("array a[2] = 1, 2, 3", 1, 20, "more values than it has elements"),
        ("array a[2]\nvar x\nx = a[2]", 3, 7, "has 2 elements"),
        ("var x\nx = 1 x = 2", 2, 7, "one statement"),
    ];
    for (text, line, column, description) in cases {
        let mistake = compile(text).unwrap_err();
        assert_eq!((mistake.line, mistake.column), (line, column), "{text}: {mistake}");
        assert!(mistake.what.contains(description), "{text}: {mistake}");
    }
}
