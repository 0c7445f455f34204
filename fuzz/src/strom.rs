//! A hostile peer on a connection that agreed on StRoM, and a server whose kernels follow hostile parameters
//! and memory.

use arbitrary::Arbitrary;
use remora_fabric::forge::Forge;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_nic::kernel::{
    Aggregate, Consistency, Filter, Get, HyperLogLog, Kernel, KernelInit, Place, Shuffle, Traversal,
};
use remora_nic::{
    Command, Flags, HandedPart, Operation, Payload, ReceiveRequest, WorkRequest, kernel::KernelFacts,
};
use remora_transport::state::State;
use remora_wire::{Extensions, Opcode, reth};

use crate::to_the_end;

/// The length in bytes of the memory that kernels may access, and of the forbidden memory before and after
/// it.
const LEN: usize = 1 << 12;
/// The bytes of the forbidden memory, which no frame may contain.
const SECRET: [u8; 16] = *b"nobody sees this";
/// The length in bytes of the client's memory for answers.
const ANSWERS: usize = 1 << 10;
/// The number of kernel opcodes, including one without a kernel.
const KERNELS: u64 = 7;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    irn: bool,
    fallback: bool,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// A parameter, often an address.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Number {
    Open(u16),
    Guarded(u16),
    Small(u8),
    Any(u64),
}

/// An action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Action {
    /// A packet with an opcode, a PSN distance, a kernel, a tag, an announced length, and bytes.
    Packet {
        opcode: u8,
        ahead: u8,
        kernel: u8,
        tag: u32,
        len: u16,
        numbers: [Number; 5],
        cut: u8,
        last: bool,
    },
    /// An honest request with any parameters.
    Rpc { kernel: u8, place: AnswerBuffer, numbers: [Number; 5], cut: u8 },
    /// An honest RPC WRITE with the given number of bytes.
    RpcWrite { kernel: u8, len: u16 },
    /// A plain WRITE into memory that the kernels read.
    Write { at: u16, number: Number },
    /// The attachment of a kernel to the data of WRITEs, or its detachment.
    Attach(Option<u8>),
    /// The removal of a kernel.
    Remove(u8),
    /// The passing of time, in nanoseconds.
    Wait(u16),
}

/// The place for answers.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum AnswerBuffer {
    Right,
    Short(u8),
    Beyond(u16),
    WrongKey,
}

struct Run {
    world: World,
    left: QueuePair,
    left_cq: CompletionQueue,
    right: QueuePair,
    right_cq: CompletionQueue,
    client: Region,
    open: Region,
    guarded: Region,
    secrets: Vec<u8>,
    numbers: Vec<u32>,
    forge: Forge,
    /// The PSN of the next packet, by the hostile peer's own count.
    cursor: u32,
}

fn kernel(number: u64) -> Box<dyn Kernel> {
    match number {
        0 => Box::new(Get::default()),
        1 => Box::new(Traversal::default()),
        2 => Box::new(Consistency::default()),
        3 => Box::new(Filter::default()),
        4 => Box::new(Aggregate::default()),
        5 => Box::new(HyperLogLog::default()),
        _ => Box::new(Shuffle::default()),
    }
}

impl Run {
    fn new(input: &Input) -> Run {
        let settings = Settings {
            mtu: 256,
            strom: true,
            irn: input.irn.then_some(128),
            receives: 64,
            ..Settings::default()
        };
        let mut world = World::new(&Config::default());
        let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, &settings);
        let client = world.register(0, 2 * ANSWERS, ALL);
        let guarded = world.register(1, LEN, ALL);
        let open = world.register(1, LEN, ALL);
        let secrets = SECRET.repeat(LEN / SECRET.len());
        guarded.store(0, &secrets);
        let mut numbers = Vec::new();
        for number in 0..KERNELS + u64::from(input.fallback) {
            let init = KernelInit {
                pd: world.pd(1),
                opcode: (number < KERNELS).then_some(number),
                code: world.hand(1, HandedPart::Kernels(vec![kernel(number)])),
                grants: vec![open.key],
                answers: 8,
                longest: 1024,
                limit: 1 << 10,
            };
            numbers.push(world.ask(1, Command::DeployKernel(init)).expect("space for a kernel"));
        }
        for _ in 0..64 {
            world.post_receive(left, &ReceiveRequest { id: 0, sges: &[] }).expect("space to post");
        }
        let forge = Forge::new(&world, 0, right);
        world.tap();
        Run {
            world,
            left,
            left_cq,
            right,
            right_cq,
            client,
            open,
            guarded,
            secrets,
            numbers,
            forge,
            cursor: 0,
        }
    }

    fn number(&self, number: Number) -> u64 {
        match number {
            Number::Open(at) => self.open.address.wrapping_add(u64::from(at)).wrapping_sub(1 << 15),
            Number::Guarded(at) => self.guarded.address.wrapping_add(u64::from(at)).wrapping_sub(1 << 15),
            Number::Small(small) => u64::from(small),
            Number::Any(any) => any,
        }
    }

    fn bytes(&self, numbers: &[Number; 5], cut: u8) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            numbers.iter().flat_map(|number| self.number(*number).to_le_bytes()).collect();
        bytes.truncate(usize::from(cut));
        bytes
    }

    fn place(&self, spot: AnswerBuffer) -> Place {
        let right = self.client.remote(0);
        let place = Place { addr: right.addr, rkey: right.rkey.get(), len: ANSWERS as u32 };
        match spot {
            AnswerBuffer::Right => place,
            AnswerBuffer::Short(space) => Place { len: u32::from(space), ..place },
            AnswerBuffer::Beyond(by) => {
                Place { addr: place.addr + 2 * ANSWERS as u64 + u64::from(by), ..place }
            }
            AnswerBuffer::WrongKey => Place { rkey: place.rkey ^ 1, ..place },
        }
    }

    fn post(&mut self, operation: Operation, bytes: &[u8]) {
        let packets = (bytes.len() as u32).div_ceil(256).max(1);
        let flags = Flags { signaled: true, ..Flags::default() };
        let request = WorkRequest { id: 1, operation, payload: Payload::Inline(bytes), flags };
        if self.world.post(self.left, &request).is_ok() {
            self.cursor = (self.cursor + packets) & 0x00ff_ffff;
        }
    }

    fn make(&mut self, one: &Action) {
        match one {
            Action::Packet { opcode, ahead, kernel, tag, len, numbers, cut, last } => {
                let opcode = Opcode(0x18 + opcode % 5);
                let psn = (self.cursor + u32::from(ahead % 4)) & 0x00ff_ffff;
                let va = u64::from(*kernel) % (KERNELS + 1);
                let dma_len = u32::from(*len);
                let head = reth::Repr { va, rkey: *tag & 0x01ff_ffff, dma_len };
                let reth = opcode.has_reth().then_some(head);
                let mut bytes = self.bytes(numbers, *cut);
                if *last && reth.is_some() {
                    bytes = [&self.place(AnswerBuffer::Right).emit()[..], &bytes].concat();
                }
                let head = reth::Repr { dma_len: if *last { bytes.len() as u32 } else { dma_len }, ..head };
                let ext = Extensions { reth: reth.map(|_| head), ..Extensions::NONE };
                let frame = self.forge.frame(self.forge.bth(opcode, psn), ext, &bytes);
                self.forge.send(&mut self.world, &frame);
            }
            Action::Rpc { kernel, place, numbers, cut } => {
                let bytes = [&self.place(*place).emit()[..], &self.bytes(numbers, *cut)].concat();
                let opcode = u64::from(*kernel) % (KERNELS + 1);
                self.post(Operation::Rpc { opcode, tag: 7 }, &bytes);
            }
            Action::RpcWrite { kernel, len } => {
                let opcode = u64::from(*kernel) % (KERNELS + 1);
                let bytes: Vec<u8> = (0..usize::from(*len) % 256).map(|at| at as u8).collect();
                self.post(Operation::RpcWrite { opcode, tag: 9 }, &bytes);
            }
            Action::Write { at, number } => {
                let bytes = self.number(*number).to_le_bytes();
                self.open.store(usize::from(*at) % (LEN - 8), &bytes);
            }
            Action::Attach(kernel) => {
                let number = kernel.map(|kernel| self.numbers[usize::from(kernel) % self.numbers.len()]);
                let qp = self.right.number;
                let _ = self.world.ask::<()>(1, Command::AttachKernel { qp, kernel: number });
            }
            Action::Remove(kernel) => {
                let number = self.numbers[usize::from(*kernel) % self.numbers.len()];
                let _ = self.world.ask::<()>(1, Command::RemoveKernel { kernel: number });
            }
            Action::Wait(ns) => self.world.run_for(u64::from(*ns)),
        }
    }

    fn check(&mut self) {
        assert_eq!(self.guarded.load(0, LEN), self.secrets, "a kernel wrote where it may not");
        for sent in self.world.sent() {
            let seen = sent.bytes.windows(SECRET.len()).any(|bytes| bytes == SECRET);
            assert!(!seen, "a kernel read what it may not");
        }
        assert!(
            self.client.load(ANSWERS, ANSWERS).iter().all(|byte| *byte == 0),
            "more than there was space for"
        );
        let _ = (self.world.drain(self.left_cq), self.world.drain(self.right_cq));
        self.world.bring(self.right, State::Err);
        let facts: Vec<_> =
            self.world.ask::<Vec<KernelFacts>>(1, Command::QueryKernels).expect("a query is never refused");
        for facts in facts {
            assert_eq!(facts.answers, facts.free_answers, "answer buffers were lost: {facts:?}");
            assert_eq!(facts.busy_lanes, 0, "a lane is busy without a request: {facts:?}");
        }
    }
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the NIC or a kernel violates a requirement.
    pub fn run(&self) {
        let mut run = Run::new(self);
        self.actions.iter().for_each(|one| run.make(one));
        run.world.run_for(10_000_000);
        run.check();
    }
}
