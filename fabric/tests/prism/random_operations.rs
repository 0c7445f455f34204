//! Random operations with every flag, over bad links, beside the model: each verb, flag, outcome and fault is counted, and
//! none may be missing in the end.

use std::collections::BTreeMap;

use memory::Key;
use nic::prism::{Address, Data, Mode, Operand, Operands, Operation, Outcome, SCRATCH, WorkRequest};
use nic::{Flags, Payload, Remote};
use remora_fabric::fault::{Action, Rule, Rules};
use remora_fabric::{Config, FreeList, Random, Settings};

use crate::bench::{Bench, RESULTS, outcome, settings};
use crate::model::{Expected, Model, Request};

/// The server's memory: pointers with bounds, then cells and values, then buffers.
const POINTERS: usize = 0;
const VALUES: usize = 4096;
const VALUES_LEN: usize = 60 << 10;
const BUFFERS: usize = 64 << 10;
const BUFFER: usize = 2048;
const COUNT: usize = 5;
/// 16 packets.
const LONGEST: u64 = 16 * 256;
/// Operations at once.
const ROUND: u64 = 24;
/// The client's bytes to write, and where its READs come to.
const LOCAL: usize = 512 << 10;

struct Run {
    bench: Bench,
    random: Random,
    model: Model,
    list: FreeList,
    seen: BTreeMap<String, u64>,
}

/// What an operation is made of, so that its borrowed parts live long enough.
struct Parts {
    address: Address,
    len: u32,
    there: Option<u64>,
    operands: Operands,
    verb: u64,
    conditional: bool,
    redirect: Option<u64>,
    fence: bool,
}

fn bad_links(random: &mut Random) -> Rules {
    let some = |random: &mut Random, most: f64| most * random.below(1000) as f64 / 1000.0;
    Rules::of(vec![
        Rule::chance(Action::Drop, some(random, 0.08)),
        Rule::chance(Action::Duplicate, some(random, 0.05)),
        Rule::chance(Action::Reorder { frames: 3 }, some(random, 0.08)),
        Rule::chance(Action::Corrupt, some(random, 0.03)),
        Rule::chance(Action::Delay { min_ns: 100, max_ns: 300_000 }, some(random, 0.05)),
    ])
}

impl Run {
    fn new(seed: u64, settings: &Settings) -> Run {
        let mut random = Random::new(seed);
        let mut bench = Bench::over(&Config { seed, ..Config::default() }, settings);
        bench.world.set_rules(&bad_links(&mut random), seed);
        let list = bench.list(BUFFERS, BUFFER as u32, COUNT as u32);
        let bytes: Vec<u8> = (0..BUFFERS + COUNT * BUFFER).map(|_| random.bits() as u8).collect();
        bench.there.store(0, &bytes);
        let local: Vec<u8> = (0..LONGEST).map(|_| random.bits() as u8).collect();
        bench.here.store(LOCAL, &local);
        let model = Model {
            bytes,
            base: bench.there.address,
            scratch: [0; 32],
            last: Outcome::Done,
            posted: (0..COUNT).map(|at| bench.at(BUFFERS + at * BUFFER).addr).collect(),
            free: Vec::new(),
            buffer: BUFFER,
        };
        Run { bench, random, model, list, seen: BTreeMap::new() }
    }

    fn saw(&mut self, what: impl ToString) {
        *self.seen.entry(what.to_string()).or_default() += 1;
    }

    /// Pointers to places of values, with bounds, anew.
    fn point(&mut self) {
        for at in 0..16 {
            let target = VALUES as u64 + 32 * self.random.below((VALUES_LEN as u64 - LONGEST) / 32);
            let pair = [self.bench.at(0).addr + target, self.random.below(LONGEST + 500)];
            for (word, value) in pair.into_iter().enumerate() {
                let offset = POINTERS + 16 * at + 8 * word;
                self.model.bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
            self.bench.set(POINTERS + 16 * at, &pair);
        }
    }

    fn remote(&self, addr: u64) -> Remote {
        Remote { addr, rkey: self.bench.there.key }
    }

    /// An aligned place of values, or of scratch.
    fn cell(&mut self, size: u64) -> u64 {
        if self.random.below(5) == 0 {
            return SCRATCH + size * self.random.below(32 / size);
        }
        self.bench.at(VALUES).addr + size * self.random.below((VALUES_LEN as u64 - LONGEST) / size)
    }

    /// A place for `len` bytes that is not within `LONGEST` of another.
    fn apart(&mut self, from: u64, len: u64) -> u64 {
        loop {
            let at = if len <= 32 {
                self.cell(32)
            } else {
                self.bench.at(VALUES).addr + 8 * self.random.below((VALUES_LEN as u64 - LONGEST) / 8)
            };
            if at.abs_diff(from) > 2 * LONGEST && (at < SCRATCH || from < SCRATCH) {
                return at;
            }
        }
    }

    fn operands(&mut self, swaps: bool) -> Operands {
        let size = [8u8, 16, 32][self.random.below(3) as usize];
        let limbs = usize::from(size) / 8;
        let mut random = self.random.split();
        let mut number = |dense: bool| -> [u64; 4] {
            std::array::from_fn(|at| match (at < limbs, dense) {
                (false, _) => 0,
                (true, true) => [0, u64::MAX, random.bits()][random.below(3) as usize],
                (true, false) => random.below(3),
            })
        };
        let (compare_mask, swap_mask) = (number(true), number(true));
        let (compare, swap_add) = (Operand::Immediate(number(false)), Operand::Immediate(number(true)));
        let mut place = |operand| {
            if self.random.below(3) == 0 { Operand::At(self.cell(u64::from(size))) } else { operand }
        };
        let swap_add = place(swap_add);
        if !swaps {
            return Operands {
                mode: Mode::Equal,
                size,
                compare_mask,
                swap_mask: [0; 4],
                compare: Operand::default(),
                swap_add,
            };
        }
        let compare = place(compare);
        let mode = Mode::ALL[self.random.below(6) as usize];
        Operands { mode, size, compare_mask, swap_mask, compare, swap_add }
    }

    fn parts(&mut self) -> Parts {
        let verb = self.random.below(5);
        let atomic = verb >= 3;
        let operands = self.operands(verb == 3);
        let indirect = verb != 2 && self.random.below(3) > 0;
        let bounded = indirect && !atomic && self.random.below(2) == 0;
        let pointer = self.bench.at(POINTERS).addr + 16 * self.random.below(16);
        let target = if indirect { pointer } else { self.cell(u64::from(operands.size)) };
        let most = if !indirect && target >= SCRATCH { 32 - (target - SCRATCH) } else { LONGEST };
        let most = [most, most.min(40)][self.random.below(2) as usize];
        let len = self.random.below(most + 1) as u32;
        let address = Address { remote: self.remote(target), indirect, bounded };
        let place = self.model.target(&address, len as usize).0;
        let there =
            (matches!(verb, 1 | 2) && self.random.below(3) == 0).then(|| self.apart(place, u64::from(len)));
        let redirects = verb != 1 && self.random.below(3) == 0;
        let room = match verb {
            0 => u64::from(len),
            2 => 8,
            _ => 32,
        };
        let redirect = redirects.then(|| self.apart(place, room));
        Parts {
            address,
            len,
            there,
            operands,
            verb,
            conditional: self.random.below(3) == 0,
            redirect,
            fence: false,
        }
    }

    /// One round: operations posted together, then what each of them gave.
    fn round(&mut self) {
        self.point();
        let mut expected: Vec<(Expected, u64)> = Vec::new();
        let mut reading = false;
        let first = (self.bench.world.posted(self.bench.left), expected.len());
        for id in 0..ROUND {
            let mut parts = self.parts();
            // What a long READ brings is fetched when its answer leaves; what comes after it may not change that.
            parts.fence = reading;
            let answer = self.put(id, &parts);
            reading = parts.verb == 0 && parts.redirect.is_none();
            expected.push(answer);
        }
        assert!(self.bench.world.posted(self.bench.left) > first.0);
        self.bench.world.ring(self.bench.left);
        assert!(self.bench.world.settle(10_000_000), "it never comes to rest");
        let ended = self.bench.world.drain(self.bench.left_cq);
        assert_eq!(ended.len(), expected.len(), "each operation ends once");
        for (wc, (expected, verb)) in ended.iter().zip(expected) {
            let outcome = outcome(wc);
            assert_eq!(outcome, expected.outcome, "operation {} of verb {verb}", wc.id);
            self.saw(format!("{verb} {outcome:?}"));
            let at = wc.id as usize * LONGEST as usize;
            if verb == 0 {
                assert_eq!(
                    wc.byte_len as usize,
                    expected.bytes.len().max(wc.byte_len as usize * usize::from(expected.number.is_some()))
                );
                assert!(self.bench.here.load(at, expected.bytes.len()) == expected.bytes, "READ {}", wc.id);
            }
            if let Some((number, size)) = expected.number {
                assert_eq!(
                    self.bench.result(wc.id, size),
                    number,
                    "result {} of verb {verb} {outcome:?}",
                    wc.id
                );
            }
        }
        let (len, there) = (self.model.bytes.len(), &self.bench.there);
        assert!(there.load(0, len) == self.model.bytes, "the server's memory is the model's");
        self.give_back();
    }

    fn put(&mut self, id: u64, parts: &Parts) -> (Expected, u64) {
        let Parts { address, len, there, operands, verb, conditional, redirect, fence } = *parts;
        let into = [self.bench.here.sge(id as usize * LONGEST as usize, LONGEST as usize)];
        let into: &[nic::Sge] = if redirect.is_some() { &[] } else { &into };
        let local = self.bench.here.load(LOCAL, LONGEST as usize);
        let list = [self.bench.here.sge(LOCAL, len as usize)];
        let inline = &local[..len as usize];
        let data = match there {
            Some(addr) => Data::There { addr, len },
            None if len <= 512 && id.is_multiple_of(2) => Data::Local(Payload::Inline(inline)),
            None => Data::Local(Payload::Sges(&list)),
        };
        let (number, rkey): (u64, Key) = (self.list.number, self.bench.there.key);
        let operation = match verb {
            0 => Operation::Read { from: address, len, into },
            1 => Operation::Write { to: address, data },
            2 => Operation::Allocate { list: number, rkey, data },
            3 => Operation::CompareSwap { at: address, operands },
            _ => Operation::FetchAdd { at: address, operands },
        };
        let expected = self.model.apply(&Request { operation, conditional, redirect }, &local);
        let flags = Flags { signaled: true, fence, solicited: false };
        let result = (verb != 0 || redirect.is_some()).then(|| self.bench.sge(id));
        self.bench.put(&WorkRequest { id, operation, conditional, redirect, result, flags });
        for (there, name) in [
            (address.indirect, "indirect"),
            (address.bounded, "bounded"),
            (conditional, "conditional"),
            (redirect.is_some(), "redirected"),
            (there.is_some() || operands.is_indirect() && verb > 2, "data at the server"),
        ] {
            if there {
                self.saw(format!("{verb} {name}"));
            }
        }
        (expected, verb)
    }

    /// The server posts some of the buffers that are neither free nor posted.
    fn give_back(&mut self) {
        for at in 0..COUNT {
            let addr = self.bench.at(BUFFERS + at * BUFFER).addr;
            let out = !self.model.free.contains(&addr) && !self.model.posted.contains(&addr);
            if out && self.random.below(3) > 0 {
                self.bench.world.post_buffer(&mut self.list, addr).unwrap();
                self.model.posted.push_back(addr);
            }
        }
    }

    /// Nobody has lost a buffer.
    fn end(mut self) -> BTreeMap<String, u64> {
        let facts = self.bench.world.free_list_facts(&self.list);
        let known = (self.model.free.len() + self.model.posted.len()) as u32;
        assert_eq!((facts.free, facts.resting, facts.bad_posts), (known, 0, 0));
        let tally = self.bench.world.faults();
        for (name, count) in [
            ("dropped", tally.dropped),
            ("duplicated", tally.duplicated),
            ("reordered", tally.reordered),
            ("corrupted", tally.corrupted),
            ("delayed", tally.delayed),
        ] {
            *self.seen.entry(name.to_owned()).or_default() += count;
        }
        self.seen
    }
}

fn all_seeds(settings: &Settings) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..100 {
        let mut run = Run::new(seed, settings);
        for _ in 0..3 {
            run.round();
        }
        for (what, count) in run.end() {
            *seen.entry(what).or_default() += count;
        }
    }
    let each = |verb: u64, names: &[&str]| {
        for name in names {
            let count = seen.get(&format!("{verb} {name}")).copied().unwrap_or(0);
            assert!(count > 0, "verb {verb} was never {name}: {seen:?}");
        }
    };
    each(0, &["indirect", "bounded", "conditional", "redirected", "Done", "Skipped"]);
    each(1, &["indirect", "bounded", "conditional", "data at the server", "Done", "Skipped"]);
    each(2, &["conditional", "redirected", "data at the server", "Done", "Skipped", "NoBuffer", "TooLong"]);
    each(
        3,
        &["indirect", "conditional", "redirected", "data at the server", "Done", "Skipped", "NotSwapped"],
    );
    each(4, &["indirect", "conditional", "redirected", "data at the server", "Done", "Skipped"]);
    for fault in ["dropped", "duplicated", "reordered", "corrupted", "delayed"] {
        assert!(seen[fault] > 0, "nothing was {fault}");
    }
    assert!(RESULTS > ROUND as usize * LONGEST as usize);
}

#[test]
fn seven_thousand_random_operations_over_bad_links_do_what_the_model_does() {
    all_seeds(&settings());
}
