//! Random operations with every flag, compared with the model, over any connection. Each verb, flag and
//! outcome is counted, and none may be missing at the end.

use std::collections::BTreeMap;

use remora_nic::prism::{
    Address, Data, FreeListFacts, Mode, Number, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest,
};
use remora_nic::{Flags, Payload, Remote, Sge, Status, WorkCompletion};

use super::Random;
use super::model::{Expected, Model, Request};

/// A client and a server, each with 2 MiB of memory, and a free list of the server.
pub(crate) trait Arm {
    /// Returns true if the connection uses IRN.
    fn over_irn(&self) -> bool;
    /// Returns address and key of the server's memory.
    fn there(&self) -> Remote;
    /// Reads from the server's memory.
    fn load_there(&self, offset: usize, len: usize) -> Vec<u8>;
    /// Writes to the server's memory, as the server's program does.
    fn store_there(&self, offset: usize, bytes: &[u8]);
    /// Reads from the client's memory.
    fn load_here(&self, offset: usize, len: usize) -> Vec<u8>;
    /// Writes to the client's memory, as the client's program does.
    fn store_here(&self, offset: usize, bytes: &[u8]);
    /// Returns a scatter/gather element of the client's memory.
    fn sge(&self, offset: usize, len: usize) -> Sge;
    /// Creates the free list, from `offset` on, and posts all its buffers. Returns its number.
    fn make_list(&mut self, offset: usize, size: u32, count: u32) -> u64;
    /// Posts a buffer of the free list.
    fn post_buffer(&mut self, index: usize);
    /// Returns the state of the free list.
    fn facts(&mut self) -> FreeListFacts;
    /// Posts an operation of the client.
    fn post(&mut self, request: &WorkRequest<'_>);
    /// Waits until all `count` posted operations have ended. Returns their completions.
    fn finish(&mut self, count: usize) -> Vec<WorkCompletion>;
}

/// Offset of the results in the client's memory.
const RESULTS: usize = 1 << 20;

/// Layout of the server's memory: pointers with bounds, then cells and values, then buffers.
const POINTERS: usize = 0;
const VALUES: usize = 4096;
const VALUES_LEN: usize = 60 << 10;
const BUFFERS: usize = 64 << 10;
const BUFFER: usize = 2048;
const COUNT: usize = 5;
/// Size of the longest value: 16 packets.
const LONGEST: u64 = 16 * 256;
/// Number of operations that are posted together.
const ROUND: u64 = 24;
/// Offset in the client's memory of the bytes to write and of the destinations of READs.
const LOCAL: usize = 512 << 10;

struct Run<'a, A> {
    arm: &'a mut A,
    random: Random,
    model: Model,
    list: u64,
    seen: BTreeMap<String, u64>,
}

/// The parts of an operation, kept so that its borrows live long enough.
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

impl<'a, A: Arm> Run<'a, A> {
    fn new(seed: u64, arm: &'a mut A) -> Run<'a, A> {
        let mut random = Random::new(seed);
        let list = arm.make_list(BUFFERS, BUFFER as u32, COUNT as u32);
        let bytes: Vec<u8> = (0..BUFFERS + COUNT * BUFFER).map(|_| random.bits() as u8).collect();
        arm.store_there(0, &bytes);
        let local: Vec<u8> = (0..LONGEST).map(|_| random.bits() as u8).collect();
        arm.store_here(LOCAL, &local);
        let base = arm.there().addr;
        let model = Model {
            bytes,
            base,
            scratch: [0; 32],
            last: Verdict::Done,
            posted: (0..COUNT).map(|index| base + (BUFFERS + index * BUFFER) as u64).collect(),
            free: Vec::new(),
            buffer: BUFFER,
        };
        Run { arm, random, model, list, seen: BTreeMap::new() }
    }

    fn at(&self, offset: usize) -> u64 {
        self.arm.there().addr + offset as u64
    }

    /// Returns the result of the operation with this id, of `size` bytes.
    fn result(&self, id: u64, size: usize) -> Number {
        let bytes = self.arm.load_here(RESULTS + 32 * id as usize, size);
        let mut number = [0; 4];
        for (index, byte) in bytes.iter().enumerate() {
            number[index / 8] |= u64::from(*byte) << (8 * (index % 8));
        }
        number
    }

    fn saw(&mut self, event: impl ToString) {
        *self.seen.entry(event.to_string()).or_default() += 1;
    }

    /// Writes new pointers with bounds to offsets of values.
    fn point(&mut self) {
        for index in 0..16 {
            let target = VALUES as u64 + 32 * self.random.below((VALUES_LEN as u64 - LONGEST) / 32);
            let pair = [self.at(0) + target, self.random.below(LONGEST + 500)];
            for (word, value) in pair.into_iter().enumerate() {
                let offset = POINTERS + 16 * index + 8 * word;
                self.model.bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
            let pair: Vec<u8> = pair.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.arm.store_there(POINTERS + 16 * index, &pair);
        }
    }

    fn remote(&self, addr: u64) -> Remote {
        Remote { addr, ..self.arm.there() }
    }

    /// Returns an aligned offset among the values or in scratch memory.
    fn cell(&mut self, size: u64) -> u64 {
        if self.random.below(5) == 0 {
            return SCRATCH + size * self.random.below(32 / size);
        }
        self.at(VALUES) + size * self.random.below((VALUES_LEN as u64 - LONGEST) / size)
    }

    /// Returns an offset for `len` bytes that is not within `LONGEST` of another one.
    fn apart(&mut self, origin: u64, len: u64) -> u64 {
        loop {
            let offset = if len <= 32 {
                self.cell(32)
            } else {
                self.at(VALUES) + 8 * self.random.below((VALUES_LEN as u64 - LONGEST) / 8)
            };
            if offset.abs_diff(origin) > 2 * LONGEST && (offset < SCRATCH || origin < SCRATCH) {
                return offset;
            }
        }
    }

    fn operands(&mut self, swaps: bool) -> Operands {
        let size = [8u8, 16, 32][self.random.below(3) as usize];
        let limbs = usize::from(size) / 8;
        let mut random = self.random.split();
        let mut number = |dense: bool| -> [u64; 4] {
            std::array::from_fn(|index| match (index < limbs, dense) {
                (false, _) => 0,
                (true, true) => [0, u64::MAX, random.bits()][random.below(3) as usize],
                (true, false) => random.below(3),
            })
        };
        let compare_mask = number(true);
        let swap_mask = number(true);
        let compare = Operand::Immediate(number(false));
        let swap_add = Operand::Immediate(number(true));
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
        let pointer = self.at(POINTERS) + 16 * self.random.below(16);
        let target = if indirect { pointer } else { self.cell(u64::from(operands.size)) };
        let most = if !indirect && target >= SCRATCH { 32 - (target - SCRATCH) } else { LONGEST };
        let most = [most, most.min(40)][self.random.below(2) as usize];
        let len = self.random.below(most + 1) as u32;
        let address = Address { remote: self.remote(target), indirect, bounded };
        let place = self.model.target(&address, len as usize).0;
        let there =
            (matches!(verb, 1 | 2) && self.random.below(3) == 0).then(|| self.apart(place, u64::from(len)));
        let redirects = verb != 1 && self.random.below(3) == 0;
        let extent = match verb {
            0 => u64::from(len),
            2 => 8,
            _ => 32,
        };
        let redirect = redirects.then(|| self.apart(place, extent));
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

    /// Runs a round: posts operations together, then checks the result of each.
    fn round(&mut self) {
        self.point();
        let mut expected: Vec<(Expected, u64)> = Vec::new();
        let mut reading = false;
        for id in 0..ROUND {
            let mut parts = self.parts();
            // The bytes of a long READ are fetched when its answer leaves, so the next operations must not
            // change them.
            parts.fence = reading || self.passes(&parts);
            let answer = self.put(id, &parts);
            reading = parts.verb == 0 && parts.redirect.is_none();
            expected.push(answer);
        }
        let ended = self.arm.finish(expected.len());
        assert_eq!(ended.len(), expected.len(), "each operation ends once");
        for (wc, (expected, verb)) in ended.iter().zip(expected) {
            assert_eq!(wc.status, Status::Success, "{wc:?}");
            let outcome = wc.outcome;
            assert_eq!(outcome, expected.outcome, "operation {} of verb {verb}", wc.id);
            self.saw(format!("{verb} {outcome:?}"));
            let offset = wc.id as usize * LONGEST as usize;
            if verb == 0 {
                assert_eq!(
                    wc.byte_len as usize,
                    expected.bytes.len().max(wc.byte_len as usize * usize::from(expected.number.is_some()))
                );
                assert!(self.arm.load_here(offset, expected.bytes.len()) == expected.bytes, "READ {}", wc.id);
            }
            if let Some((number, size)) = expected.number {
                assert_eq!(self.result(wc.id, size), number, "result {} of verb {verb} {outcome:?}", wc.id);
            }
        }
        assert!(
            self.arm.load_there(0, self.model.bytes.len()) == self.model.bytes,
            "the server's memory is the model's"
        );
        self.give_back();
    }

    /// Returns true if the operation may be placed early: over IRN a plain WRITE is placed when it arrives,
    /// even if earlier packets are missing, but not into scratch memory.
    fn passes(&self, parts: &Parts) -> bool {
        let plain = parts.verb == 1 && !parts.address.indirect && !parts.conditional && parts.there.is_none();
        self.arm.over_irn() && plain && parts.address.remote.addr < SCRATCH
    }

    fn put(&mut self, id: u64, parts: &Parts) -> (Expected, u64) {
        let Parts { address, len, there, operands, verb, conditional, redirect, fence } = *parts;
        let into = [self.arm.sge(id as usize * LONGEST as usize, LONGEST as usize)];
        let into: &[Sge] = if redirect.is_some() { &[] } else { &into };
        let local = self.arm.load_here(LOCAL, LONGEST as usize);
        let list = [self.arm.sge(LOCAL, len as usize)];
        let inline = &local[..len as usize];
        let data = match there {
            Some(addr) => Data::There { addr, len },
            None if len <= 512 && id.is_multiple_of(2) => Data::Local(Payload::Inline(inline)),
            None => Data::Local(Payload::Sges(&list)),
        };
        let number = self.list;
        let rkey = self.arm.there().rkey;
        let operation = match verb {
            0 => Operation::Read { from: address, len, into },
            1 => Operation::Write { to: address, data },
            2 => Operation::Allocate { list: number, rkey, data },
            3 => Operation::CompareSwap { at: address, operands },
            _ => Operation::FetchAdd { at: address, operands },
        };
        let expected = self.model.apply(&Request { operation, conditional, redirect }, &local);
        let flags = Flags { signaled: true, fence, solicited: false };
        let result = (verb != 0 || redirect.is_some()).then(|| self.arm.sge(RESULTS + 32 * id as usize, 32));
        self.arm.post(&WorkRequest { id, operation, conditional, redirect, result, flags });
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

    /// Posts some of the buffers that are neither free nor posted, as the server's program does.
    fn give_back(&mut self) {
        for index in 0..COUNT {
            let addr = self.at(BUFFERS + index * BUFFER);
            let out = !self.model.free.contains(&addr) && !self.model.posted.contains(&addr);
            if out && self.random.below(3) > 0 {
                self.arm.post_buffer(index);
                self.model.posted.push_back(addr);
            }
        }
    }

    /// Checks that no buffer is lost.
    fn end(self) -> BTreeMap<String, u64> {
        let facts = self.arm.facts();
        let known = (self.model.free.len() + self.model.posted.len()) as u32;
        assert_eq!((facts.free + facts.resting, facts.bad_posts), (known, 0));
        self.seen
    }
}

/// Runs rounds of operations on a fresh arm for each seed, and checks that each verb, flag and outcome
/// occurred.
pub(crate) fn body<A: Arm>(
    seeds: std::ops::Range<u64>,
    mut fresh: impl FnMut(u64) -> A,
    mut ended: impl FnMut(A),
) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        let mut arm = fresh(seed);
        let mut run = Run::new(seed, &mut arm);
        for _ in 0..3 {
            run.round();
        }
        for (event, count) in run.end() {
            *seen.entry(event).or_default() += count;
        }
        ended(arm);
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
    assert!(RESULTS > ROUND as usize * LONGEST as usize);
}
