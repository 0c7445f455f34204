//! A hostile client of an offload (RedN, section 3.5). The client may SEND, and the NIC scatters its
//! messages into work requests.
//!
//! [`word`] builds the messages, [`layout`] the memory. Most inputs use an offload of this repository, whose
//! client chooses addresses and operands. The others use one that the verifier refuses, because its client
//! chooses every field.

mod layout;
mod word;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use remora_chain::offload::{BUCKET, OFFLOADS, ask};
use remora_chain::{Program, assemble};
use remora_fabric::{CompletionQueue, Config, QueuePair, Settings, World};
use remora_memory::Key;
use remora_nic::{CompletionKind, Flags, Operation, Payload, ReceiveRequest, Remote, WorkRequest};

use self::layout::{GuardedRegion, LEN, Layout, RECORDS, limit};
use self::word::{Ask, Record, Word, Work, bytes};
use crate::install::{Installed, serve};
use crate::node_memory::{SECRET, harmless, leaks};
use crate::testbed::small;
use crate::to_the_end;

/// The offload whose client chooses every field.
const WIDE: (&str, &str) = ("wide", include_str!("injections/wide.chain"));
/// All offloads, without the contents of the regions that the server provides.
static PROGRAMS: LazyLock<Vec<(&str, Program)>> = LazyLock::new(|| {
    let light = |(name, text)| {
        let mut program = assemble(text).expect("the shipped program assembles");
        for region in program.sections.iter_mut().filter(|section| section.given) {
            region.bytes.clear();
            region.values.clear();
        }
        (name, program)
    };
    OFFLOADS.into_iter().chain([WIDE]).map(light).collect()
});
/// The maximum size of a message in bytes. Each message has its own memory until it is received.
const MESSAGE: usize = 512;
/// The number of receives that the client posts for answers.
const RECEIVES: usize = 24;
/// The maximum number of work requests for a message; `list.chain` needs the most.
const WORKS: u64 = 128;
/// The number of additional rounds: a refused message has arrived all the same, and its end flushes the one
/// posted receive. The initial round of each offload is the third.
const BESIDE: u64 = 3;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    program: u8,
    /// Records of another client in the server's memory, which a message can address.
    planted: [Record; RECORDS as usize],
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// An action of the client.
#[derive(Arbitrary, Clone, Debug)]
enum Action {
    /// A message in the form that the offload expects.
    Ask(Ask),
    /// A message that is a whole work request.
    Work(Work),
    /// A message of words, cut to the given number of bytes.
    Words([Word; 9], u8),
    /// A message of arbitrary bytes.
    Bytes(#[arbitrary(with = crate::bytes)] Vec<u8>),
    /// A message that repeats one byte.
    Long(u8, u16),
    /// A verb that the client may not use: WRITE, READ, fetch-and-add or compare-and-swap.
    Verb(u8, Word, u8),
    /// The passing of time, in tenths of a microsecond.
    Wait(u8),
}

/// A client's end of an offload.
struct Endpoint {
    qp: QueuePair,
    cq: CompletionQueue,
    offload: Installed,
}

struct Run {
    world: World,
    layout: Layout,
    name: &'static str,
    client: Endpoint,
    /// An honest second client. `None` with the offload whose client may do everything in its protection
    /// domain.
    honest: Option<Endpoint>,
    /// The initial contents of the memory that must not change.
    first: [Vec<u8>; 3],
    sent: usize,
}

fn config() -> Config {
    let small = small();
    Config { nic: remora_nic::Config { max_cqs: 16, window: 32, ..small.nic }, ..small }
}

fn install(world: &mut World, layout: &Layout, program: &Program) -> Endpoint {
    let given = program.sections.iter().filter(|section| section.given);
    let table = layout.table.region(0);
    let reply = layout.reply.region(1);
    let regions: Vec<_> = given
        .map(|section| (&*section.name, if section.name == "reply" { &reply } else { &table }))
        .collect();
    let settings = Settings { rnr_retry: 3, receives: 32, ..Settings::default() };
    let (qp, cq, offload) = serve(world, program, &regions, &settings);
    Endpoint { qp, cq, offload }
}

impl Run {
    fn new(input: &Input) -> Run {
        let (name, program) = &PROGRAMS[usize::from(input.program % 9).min(PROGRAMS.len() - 1)];
        let wide = *name == WIDE.0;
        let mut world = World::new(&config());
        let mut layout = Layout::new(&mut world, wide);
        let client = install(&mut world, &layout, program);
        let honest = (!wide).then(|| install(&mut world, &layout, &PROGRAMS[0].1));
        layout.numbers = Some(client.offload.numbers.clone());
        // `list-break.chain` does not end on a circular list, so the server must keep its list free of
        // cycles.
        let planted: &[Record] = if *name == "list-break" { &[] } else { &input.planted };
        let planted: Vec<u8> = planted.iter().flat_map(|record| record.bytes(&layout)).collect();
        layout.fill(&planted);
        for _ in 0..RECEIVES {
            let list = [layout.answers.sge(0, MESSAGE)];
            world.post_receive(client.qp, &ReceiveRequest { id: 0, sges: &list }).expect("space to post");
        }
        world.tap();
        let first = untouchable(&layout).map(GuardedRegion::whole);
        Run { world, layout, name, client, honest, first, sent: 0 }
    }

    fn send(&mut self, mut message: Vec<u8>) {
        message.truncate(MESSAGE);
        harmless(&mut message);
        let at = self.sent % (LEN / MESSAGE) * MESSAGE;
        self.layout.messages.store(at, &message);
        self.sent += 1;
        let list = [self.layout.messages.sge(at, message.len())];
        self.post(Operation::Send, Payload::Sges(&list));
    }

    fn post(&mut self, operation: Operation, payload: Payload<'_>) {
        let flags = Flags { signaled: true, ..Flags::default() };
        // Posting fails if the queue is full or the connection has ended.
        let _ = self.world.post(self.client.qp, &WorkRequest { id: 1, operation, payload, flags });
    }

    fn make(&mut self, one: &Action) {
        match one {
            Action::Ask(ask) => self.send(ask.message(self.name, &self.layout)),
            Action::Work(work) => self.send(work.message(&self.layout)),
            Action::Words(words, cut) => {
                let mut message = bytes(words, &self.layout);
                message.truncate(usize::from(*cut));
                self.send(message);
            }
            Action::Bytes(bytes) => self.send(bytes.clone()),
            Action::Long(byte, len) => self.send(vec![*byte; usize::from(*len) % MESSAGE]),
            Action::Verb(verb, at, key) => {
                let rkey = Key::new(self.layout.key(*key) as u32);
                let remote = Remote { addr: at.value(&self.layout), rkey };
                let operation = match verb % 4 {
                    0 => Operation::Write(remote),
                    1 => Operation::Read(remote),
                    2 => Operation::FetchAdd { remote, add: 1 },
                    _ => Operation::CompareSwap { remote, compare: 0, swap: 1 },
                };
                let list = [self.layout.answers.sge(0, 8)];
                self.post(operation, Payload::Sges(&list));
            }
            Action::Wait(tenths) => self.world.run_for(100 * u64::from(*tenths)),
        }
        let _ = self.world.drain(self.client.cq);
    }

    /// Runs until the world is idle, and checks the number of executed work requests.
    fn rest(&mut self) {
        let most = WORKS * (BESIDE + self.sent as u64);
        // The check after each part detects an endless run early.
        let at_rest = (0..1000).any(|_| {
            let at_rest = self.world.settle(100);
            let works = self.world.counters(0).wqes_executed;
            assert!(works <= most, "{works} work requests for {} messages", self.sent);
            assert_eq!(
                limit(&mut self.world, self.layout.stranger.qp),
                Some(0),
                "a stranger's queue was enabled"
            );
            at_rest
        });
        assert!(at_rest, "the offload does not end");
    }

    /// Runs until the world is idle, and checks that other memory is unchanged and unread.
    fn check(&mut self) {
        self.rest();
        for (now, first) in untouchable(&self.layout).map(GuardedRegion::whole).iter().zip(&self.first) {
            let changed = now.iter().zip(first).position(|(now, first)| now != first);
            assert_eq!(changed, None, "memory that was not granted has changed");
        }
        let reply = self.layout.reply.load(0, LEN);
        assert!(!reply.contains(&SECRET), "an answer contains a secret byte");
        for sent in self.world.sent() {
            assert!(sent.from != 0 || !leaks(&sent.bytes), "the server sent secret bytes");
        }
        self.check_code();
    }

    /// Checks that the code of both offloads is unchanged except for its declared targets.
    fn check_code(&self) {
        for (_, now, _) in self.client.offload.memory() {
            assert!(!leaks(&now), "the offload contains secret bytes");
        }
        if let Some(honest) = &self.honest {
            assert_eq!(self.client.offload.stray(), None, "the code of the offload has changed");
            assert_eq!(honest.offload.stray(), None, "the code of another client's offload has changed");
        }
    }

    /// Checks that the honest client is served as before.
    fn is_served(&mut self) {
        let Some(Endpoint { qp, cq, .. }) = self.honest else { return };
        let key = 5;
        let message = ask(self.layout.table.address + (key - 1) * BUCKET, key);
        self.world.post_receive(qp, &ReceiveRequest { id: 0, sges: &[] }).expect("space to post");
        let payload = Payload::Inline(&message);
        let request = WorkRequest { id: 1, operation: Operation::Send, payload, flags: Flags::default() };
        self.world.post(qp, &request).expect("space to post");
        self.sent += 1;
        self.rest();
        let came = self.world.drain(cq);
        let told = came.iter().find(|end| end.kind == CompletionKind::ReceiveWriteImm);
        let len = told.map(|end| end.byte_len);
        assert_eq!(len, Some(1 + (key as u32 - 1) * 31), "{came:?}");
        let reply = self.layout.reply.load(0, len.unwrap_or(0) as usize);
        assert!(reply.iter().all(|byte| *byte == key as u8));
    }
}

/// Returns the memory that no message may change.
fn untouchable(layout: &Layout) -> [&GuardedRegion; 3] {
    [&layout.table, &layout.secret, &layout.own]
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the client reaches memory that was not granted to it.
    pub fn run(&self) {
        let mut run = Run::new(self);
        self.actions.iter().for_each(|one| run.make(one));
        run.check();
        run.is_served();
        run.check();
    }
}
