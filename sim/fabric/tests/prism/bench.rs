//! A client and a server that negotiated PRISM, and the requests of the tests.

use remora_fabric::{ALL, CompletionQueue, Config, FreeList, QueuePair, Region, Settings, World};
use remora_memory::Key;
use remora_nic::prism::{Address, Data, Mode, Number, Operand, Operands, Operation, Verdict, WorkRequest};
use remora_nic::{Flags, Payload, Remote, Sge, Status, WorkCompletion};

pub(crate) struct Bench {
    pub world: World,
    pub settings: Settings,
    pub left: QueuePair,
    pub left_cq: CompletionQueue,
    pub right: QueuePair,
    /// The client's memory. Operations take their bytes from its start, and their results arrive from 1 MiB
    /// on.
    pub here: Region,
    pub there: Region,
}

/// Offset of the results in the client's memory.
pub(crate) const RESULTS: usize = 1 << 20;

/// The two transports: PRISM over go-back-N, and PRISM over IRN.
pub(crate) fn arms() -> [Settings; 2] {
    let go_back_n = Settings { mtu: 256, prism: true, max_inline: 512, ..Settings::default() };
    [go_back_n, Settings { irn: Some(128), ..go_back_n }]
}

impl Bench {
    /// Returns a bench for each of the two transports.
    pub(crate) fn arms() -> [Bench; 2] {
        arms().map(|settings| Bench::over(&Config::default(), &settings))
    }

    pub(crate) fn over(config: &Config, settings: &Settings) -> Bench {
        let mut world = World::new(config);
        let [(left, left_cq), (right, _)] = world.pair(0, 1, settings);
        let here = world.register(0, 2 << 20, ALL);
        let there = world.register(1, 2 << 20, ALL);
        Bench { world, settings: *settings, left, left_cq, right, here, there }
    }

    pub(crate) fn at(&self, offset: usize) -> Remote {
        self.there.remote(offset)
    }

    /// Returns a word of the server's memory.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.there.load(offset, 8).try_into().unwrap())
    }

    pub(crate) fn set(&self, offset: usize, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.there.store(offset + 8 * index, &word.to_le_bytes());
        }
    }

    /// Returns the result of the operation with this id, of `size` bytes.
    pub(crate) fn result(&self, id: u64, size: usize) -> Number {
        let bytes = self.here.load(RESULTS + 32 * id as usize, size);
        let mut number = [0; 4];
        for (index, byte) in bytes.iter().enumerate() {
            number[index / 8] |= u64::from(*byte) << (8 * (index % 8));
        }
        number
    }

    pub(crate) fn sge(&self, id: u64) -> Sge {
        self.here.sge(RESULTS + 32 * id as usize, 32)
    }

    /// Returns a request with this id whose result is requested.
    pub(crate) fn ask<'a>(&self, id: u64, operation: Operation<'a>) -> WorkRequest<'a> {
        let result = (!matches!(operation, Operation::Read { .. })).then(|| self.sge(id));
        let flags = Flags { signaled: true, ..Flags::default() };
        WorkRequest { id, operation, conditional: false, redirect: None, result, flags }
    }

    pub(crate) fn put(&mut self, request: &WorkRequest<'_>) {
        self.world.post_prism(self.left, request).expect("space in the queue");
    }

    /// Posts these requests together and runs the world until no event is left. Returns the outcomes by id.
    pub(crate) fn run(&mut self, requests: &[WorkRequest<'_>]) -> Vec<(u64, Verdict)> {
        let ended = self.run_all(requests);
        ended.iter().map(|wc| (wc.id, outcome(wc))).collect()
    }

    /// Like [`run`](Bench::run), with whole completions.
    pub(crate) fn run_all(&mut self, requests: &[WorkRequest<'_>]) -> Vec<WorkCompletion> {
        for request in requests {
            self.put(request);
        }
        self.world.ring(self.left);
        assert!(self.world.settle(1_000_000), "the world never comes to rest");
        self.world.drain(self.left_cq)
    }

    /// Creates a free list of `count` buffers of `size` bytes from `offset` on, and posts all of them.
    pub(crate) fn list(&mut self, offset: usize, size: u32, count: u32) -> FreeList {
        let mut list = self.world.create_free_list(&self.there, offset, size, count).unwrap();
        for index in 0..count {
            let addr = self.there.remote(offset + (index * size) as usize).addr;
            self.world.post_buffer(&mut list, addr).unwrap();
        }
        list
    }
}

/// Returns the outcome of a successful completion.
pub(crate) fn outcome(wc: &WorkCompletion) -> Verdict {
    assert_eq!(wc.status, Status::Success, "{wc:?}");
    wc.outcome
}

/// Returns the outcomes if all of these operations were executed.
pub(crate) fn all_done(ids: std::ops::Range<u64>) -> Vec<(u64, Verdict)> {
    ids.map(|id| (id, Verdict::Done)).collect()
}

pub(crate) fn read(from: Address, len: u32, into: &[Sge]) -> Operation<'_> {
    Operation::Read { from, len, into }
}

pub(crate) fn inline(bytes: &[u8]) -> Data<'_> {
    Data::Local(Payload::Inline(bytes))
}

pub(crate) fn write(address: Address, bytes: &[u8]) -> Operation<'_> {
    Operation::Write { to: address, data: inline(bytes) }
}

pub(crate) fn allocate<'a>(list: &FreeList, rkey: Key, data: Data<'a>) -> Operation<'a> {
    Operation::Allocate { list: list.number, rkey, data }
}

/// Returns a compare-and-swap of 8 bytes without masks.
pub(crate) fn swap(mode: Mode, address: Address, compare: u64, swap: u64) -> Operation<'static> {
    let whole = [u64::MAX, 0, 0, 0];
    let operands = Operands {
        mode,
        size: 8,
        compare_mask: whole,
        swap_mask: whole,
        compare: Operand::Immediate([compare, 0, 0, 0]),
        swap_add: Operand::Immediate([swap, 0, 0, 0]),
    };
    Operation::CompareSwap { at: address, operands }
}
