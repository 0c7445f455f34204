//! A hostile peer that sends packets of any kind to live queue pairs, between honest work requests.

use arbitrary::Arbitrary;
use remora_fabric::forge::Forge;
use remora_nic::Operation;
use remora_wire::Qpn;

use crate::crafted::{Context, Crafted, behind};
use crate::node_memory::{Name, SOURCE};
use crate::testbed::{Kind, Setup, Testbed};
use crate::{bytes, to_the_end};

/// The regions that are filled with secret bytes.
pub(crate) const GUARDED: &[Name] = &[Name::Private, Name::Writable, Name::Foreign, Name::Framed];

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    setup: Setup,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// An action of an input.
#[derive(Arbitrary, Clone, Debug)]
pub(crate) enum Action {
    /// A packet to the right side.
    Packet(Crafted),
    /// Three packets in sequence.
    Burst([Crafted; 3]),
    /// A packet to the left side: an answer, or a request against the connection's direction.
    Back(Crafted),
    /// A packet that is sent twice, cut short, or changed by a bit after its ICRC was computed.
    Damaged(Crafted, u16, Damage),
    /// Arbitrary bytes after a valid base header.
    Behind {
        opcode: u8,
        psn: i8,
        left: bool,
        #[arbitrary(with = bytes)]
        bytes: Vec<u8>,
    },
    /// Arbitrary bytes as a whole frame.
    Bytes {
        left: bool,
        #[arbitrary(with = bytes)]
        bytes: Vec<u8>,
    },
    /// An honest work request.
    Honest { left: bool, verb: Verb, len: u16 },
    /// An honest receive.
    Receive { left: bool, len: u16 },
    /// The passing of time, in nanoseconds.
    Wait(u16),
}

/// The damage to a frame.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(crate) enum Damage {
    Twice,
    Cut,
    Bit,
}

/// The verb of an honest work request.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(crate) enum Verb {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

/// The testbed, with the next PSNs (of requests and of answers) that a hostile peer would use against either
/// side.
pub(crate) struct Attack {
    pub testbed: Testbed,
    pub cursors: [[u32; 2]; 2],
    /// The remaining bytes of the hostile message to either side.
    left: [u32; 2],
    /// The number of READs and atomics sent as probes to either side.
    fetches: [u32; 2],
}

impl Attack {
    pub fn new(testbed: Testbed) -> Attack {
        let [left, right] = testbed.settings.psn;
        // The left side receives the right side's requests, and answers to its own.
        Attack { testbed, cursors: [[right, left], [left, right]], left: [0; 2], fetches: [0; 2] }
    }

    pub fn context<R>(&mut self, victim: usize, work: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let testbed = &self.testbed;
        let forge = Forge::new(&testbed.world, 1 - victim, testbed.sides[victim].qp);
        work(&mut Context {
            forge: &forge,
            memory: &testbed.memories[victim],
            window: testbed.windows[victim],
            mtu: testbed.settings.mtu,
            service: testbed.kind.opcodes(),
            irn: testbed.kind == Kind::Irn,
            cursor: &mut self.cursors[victim],
            left: &mut self.left[victim],
            fetches: &mut self.fetches[victim],
            qkey: testbed.settings.qkey,
            srq: testbed.sides[victim].srq.map_or(Qpn::new(0), |srq| srq.number),
        })
    }

    pub fn arrive(&mut self, victim: usize, frame: &[u8]) {
        self.testbed.world.inject(1 - victim, victim, frame);
    }

    fn honest(&mut self, node: usize, verb: Verb, len: usize) {
        let testbed = &mut self.testbed;
        let remote = testbed.memories[1 - node].open(0);
        let len = len % 1024;
        let packets = len.div_ceil(testbed.settings.mtu as usize).max(1) as u32;
        let source = testbed.memories[node].own(SOURCE, len);
        let posted = match verb {
            Verb::Send => testbed.post(node, Operation::Send, source),
            Verb::SendImm => testbed.post(node, Operation::SendImm(7), source),
            Verb::Write => testbed.post(node, Operation::Write(remote), source),
            Verb::WriteImm => testbed.post(node, Operation::WriteImm(remote, 7), source),
            Verb::Read => testbed.read(node, remote, len),
            Verb::FetchAdd => testbed.memories[node]
                .sink(8)
                .is_some_and(|sink| testbed.post(node, Operation::FetchAdd { remote, add: 3 }, sink)),
            Verb::CompareSwap => testbed.memories[node].sink(8).is_some_and(|sink| {
                testbed.post(node, Operation::CompareSwap { remote, compare: 0, swap: 1 }, sink)
            }),
        };
        if posted {
            let cursor = &mut self.cursors[1 - node][0];
            *cursor = (*cursor + packets) & 0x00ff_ffff;
        }
    }

    pub fn make(&mut self, one: &Action) {
        match one {
            Action::Packet(packet) => {
                let frame = self.context(1, |context| packet.frame(context));
                self.arrive(1, &frame);
            }
            Action::Burst(packets) => {
                for packet in packets {
                    let frame = self.context(1, |context| packet.frame(context));
                    self.arrive(1, &frame);
                }
            }
            Action::Back(packet) => {
                let frame = self.context(0, |context| packet.frame(context));
                self.arrive(0, &frame);
            }
            Action::Damaged(packet, at, damage) => {
                let mut frame = self.context(1, |context| packet.frame(context));
                match damage {
                    Damage::Twice => self.arrive(1, &frame),
                    Damage::Cut => frame.truncate(usize::from(*at) % (frame.len() + 1)),
                    Damage::Bit => {
                        let bit = u32::from(*at) % (frame.len() as u32 * 8);
                        remora_fault::flip(&mut frame, bit);
                    }
                }
                self.arrive(1, &frame);
            }
            Action::Behind { opcode, psn, left, bytes } => {
                let victim = usize::from(!left);
                let frame = self.context(victim, |context| behind(context, *opcode, *psn, bytes));
                self.arrive(victim, &frame);
            }
            Action::Bytes { left, bytes } => self.arrive(usize::from(!left), bytes),
            Action::Honest { left, verb, len } => self.honest(usize::from(!left), *verb, usize::from(*len)),
            Action::Receive { left, len } => self.testbed.receive(usize::from(!left), usize::from(*len)),
            Action::Wait(ns) => self.testbed.world.run_for(u64::from(*ns)),
        }
    }
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the NIC violates a requirement.
    pub fn run(&self, kind: Kind) {
        let mut attack = Attack::new(Testbed::new(kind, false, &self.setup, false, [GUARDED; 2]));
        for one in &self.actions {
            attack.make(one);
        }
        let Attack { mut testbed, .. } = attack;
        testbed.rest();
        testbed.works_after_reset();
        testbed.fresh_pair();
    }
}
