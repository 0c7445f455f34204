//! A client and a server that negotiated StRoM, a kernel at the server, and the requests of the tests.

use std::collections::BTreeMap;

use crate::seeds;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};
use remora_memory::Key;
use remora_nic::kernel::{Ending, Kernel, KernelFacts, KernelInit, Place, Progress, Status, Streams, What};
use remora_nic::{Command, CompletionKind, Flags, NicError, Operation, Payload, ReceiveRequest, WorkRequest};

pub(crate) const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// RPC opcode of the kernel that most tests deploy.
pub(crate) const OPCODE: u64 = 0x5354_524f_4d01;
/// Size of the longest answer.
pub(crate) const LONGEST: u32 = 16_384;
/// Offset of the answers in the client's memory, one buffer after the other.
pub(crate) const ANSWERS: usize = 1 << 20;
/// Receives that the client keeps posted.
const RECEIVES: u32 = 64;

pub(crate) struct Bench {
    pub world: World,
    pub left: QueuePair,
    pub left_cq: CompletionQueue,
    pub right: QueuePair,
    pub right_cq: CompletionQueue,
    /// The client's memory.
    pub here: Region,
    /// The server's memory that kernels may access.
    pub there: Region,
    /// The server's memory that kernels must not access.
    pub guarded: Region,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: Status,
    pub bytes: Vec<u8>,
}

/// The two transports: StRoM over go-back-N, and StRoM over IRN.
pub(crate) fn arms() -> [Settings; 2] {
    let go_back_n =
        Settings { mtu: 256, strom: true, receives: RECEIVES, timeout: 11, ..Settings::default() };
    [go_back_n, Settings { irn: Some(128), ..go_back_n }]
}

/// Returns rules for links on which every kind of fault occurs.
pub(crate) fn bad_links(seed: u64) -> Rules {
    let mut random = Random::new(seed);
    let mut some = |most: f64| most * random.below(1000) as f64 / 1000.0;
    Rules::of(vec![
        Rule::chance(Action::Drop, some(0.08)),
        Rule::chance(Action::Duplicate, some(0.05)),
        Rule::chance(Action::Reorder { frames: 3 }, some(0.08)),
        Rule::chance(Action::Corrupt, some(0.03)),
        Rule::chance(Action::Delay { min_ns: 100, max_ns: 300_000 }, some(0.05)),
    ])
}

impl Bench {
    pub(crate) fn new(seed: u64, settings: &Settings) -> Bench {
        Bench::within(&Config { seed, ..Config::default() }, settings)
    }

    pub(crate) fn within(config: &Config, settings: &Settings) -> Bench {
        let mut world = World::new(config);
        let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, settings);
        let here = world.register(0, 2 << 20, ALL);
        let there = world.register(1, 1 << 20, ALL);
        let guarded = world.register(1, 1 << 16, ALL);
        let mut bench = Bench { world, left, left_cq, right, right_cq, here, there, guarded };
        (0..RECEIVES).for_each(|_| bench.receive());
        bench
    }

    /// Returns a bench for each of the two transports.
    pub(crate) fn arms() -> [Bench; 2] {
        arms().map(|settings| Bench::new(1, &settings))
    }

    fn receive(&mut self) {
        self.world.post_receive(self.left, &ReceiveRequest { id: 0, sges: &[] }).unwrap();
    }

    pub(crate) fn init(&mut self, opcode: Option<u64>, kernels: Vec<Box<dyn Kernel>>) -> KernelInit {
        KernelInit {
            pd: self.world.pd(1),
            opcode,
            code: self.world.hand(1, kernels),
            grants: vec![self.there.key],
            answers: (1 << 18) / LONGEST,
            longest: LONGEST,
            limit: 1 << 12,
        }
    }

    /// Deploys kernels at the server under [`OPCODE`].
    pub(crate) fn deploy(&mut self, kernels: Vec<Box<dyn Kernel>>) -> u32 {
        let init = self.init(Some(OPCODE), kernels);
        self.try_deploy(init).unwrap()
    }

    pub(crate) fn try_deploy(&mut self, init: KernelInit) -> Result<u32, NicError> {
        self.world.ask(1, Command::DeployKernel(init))
    }

    /// Returns the destination of the answer to a request.
    pub(crate) fn place(&self, tag: u32) -> Place {
        let remote = self.here.remote(ANSWERS + tag as usize % 64 * LONGEST as usize);
        Place { addr: remote.addr, rkey: remote.rkey.get(), len: LONGEST }
    }

    pub(crate) fn rpc(&mut self, opcode: u64, tag: u32, params: &[u8]) {
        let bytes = [&self.place(tag).emit(), params].concat();
        self.post(Operation::Rpc { opcode, tag }, tag, &bytes);
    }

    pub(crate) fn rpc_write(&mut self, opcode: u64, tag: u32, bytes: &[u8]) {
        // From its own memory, which must stay unchanged until the data has arrived.
        let offset = tag as usize % 64 * (ANSWERS / 64);
        self.here.store(offset, bytes);
        let sges = [self.here.sge(offset, bytes.len())];
        let operation = Operation::RpcWrite { opcode, tag };
        let request =
            WorkRequest { id: u64::from(tag), operation, payload: Payload::Sges(&sges), flags: SIGNALED };
        self.world.post(self.left, &request).unwrap();
    }

    pub(crate) fn post(&mut self, operation: Operation, id: u32, bytes: &[u8]) {
        let payload = Payload::Inline(bytes);
        let request = WorkRequest { id: u64::from(id), operation, payload, flags: SIGNALED };
        self.world.post(self.left, &request).unwrap();
    }

    /// Runs the world until no event is left. Returns the answers by tag.
    pub(crate) fn run(&mut self) -> BTreeMap<u32, Answer> {
        assert!(self.world.settle(20_000_000), "the world never comes to rest");
        self.answers()
    }

    pub(crate) fn answers(&mut self) -> BTreeMap<u32, Answer> {
        let mut answers = BTreeMap::new();
        for completion in self.world.drain(self.left_cq) {
            assert_eq!(completion.status, remora_nic::Status::Success, "{completion:?}");
            if completion.kind != CompletionKind::ReceiveWriteImm {
                continue;
            }
            self.receive();
            let Ending { status, tag } = Ending::parse(completion.imm.expect("an answer"));
            let offset = ANSWERS + tag as usize % 64 * LONGEST as usize;
            let bytes = self.here.load(offset, completion.byte_len as usize);
            assert_eq!(answers.insert(tag, Answer { status, bytes }), None, "one answer a request");
        }
        answers
    }

    /// Returns the first word at the destination of the answer to a request.
    pub(crate) fn answer_at(&self, tag: u32) -> u64 {
        let offset = ANSWERS + tag as usize % 64 * LONGEST as usize;
        u64::from_le_bytes(self.here.load(offset, 8).try_into().unwrap())
    }

    pub(crate) fn facts(&mut self) -> Vec<KernelFacts> {
        self.world.ask(1, Command::QueryKernels).unwrap()
    }

    /// Returns true if all memory for answers is free and `busy` lanes are in use.
    pub(crate) fn is_at_rest(&mut self, busy: u32) -> bool {
        self.facts().iter().all(|facts| facts.answers == facts.free_answers && facts.busy_lanes == busy)
    }
}

/// Runs a kernel for each of 100 seeds over both transports and bad links. `ask` sends requests, checks the
/// answers and counts the events that must happen.
pub(crate) fn every_seed<const N: usize, K: Kernel + Default + 'static>(
    ask: impl Fn(&mut Bench, &mut Random) -> [u64; N] + Sync,
) {
    for settings in arms() {
        let mut all = [0; N];
        let one = |seed| {
            let mut bench = Bench::new(seed, &settings);
            bench.deploy(vec![Box::new(K::default())]);
            bench.world.set_rules(&bad_links(seed), seed);
            let counts = ask(&mut bench, &mut Random::new(seed));
            let facts = bench.facts();
            assert_eq!(facts[0].answers, facts[0].free_answers, "seed {seed}: memory that did not come back");
            counts
        };
        seeds::each(0..100, one, |_, counts: [u64; N]| {
            all.iter_mut().zip(counts).for_each(|(all, more)| *all += more);
        });
        assert!(all.iter().all(|count| *count > 0), "something never happened: {all:?}");
    }
}

/// Writes all bytes that it receives to memory, one after the other. It answers an RPC WRITE with its
/// position.
#[derive(Default)]
pub(crate) struct Journal {
    pub position: u64,
}

impl Kernel for Journal {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        streams.write(self.position, input.bytes);
        self.position += input.bytes.len() as u64;
        if input.last {
            let len = if streams.answer_capacity() > 0 && input.what == What::Data { 8 } else { 0 };
            streams.answer(Status::DONE, len);
            if len > 0 {
                streams.put(&self.position.to_le_bytes());
            }
        }
        Progress::Waits
    }

    fn reset(&mut self) {}
}

/// A kernel that never ends.
pub(crate) struct Endless;

impl Kernel for Endless {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        streams.take();
        Progress::Again
    }

    fn reset(&mut self) {}
}

/// A key that names nothing.
pub(crate) const NO_KEY: Key = Key::new(0);
