//! A hostile peer: packets of any kind against live queue pairs, between and amid honest work.

use arbitrary::Arbitrary;
use remora_fabric::forge::Forge;
use remora_nic::Operation;
use remora_wire::Qpn;

use crate::cast::{Cast, Kind, Stage};
use crate::crafted::{Crafted, Purpose, behind};
use crate::estate::{Name, SOURCE};
use crate::{bytes, to_the_end};

/// Regions whose bytes are secrets.
pub(crate) const GUARDED: &[Name] = &[Name::Private, Name::Writable, Name::Foreign, Name::Framed];

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Play {
    stage: Stage,
    #[arbitrary(with = to_the_end)]
    moves: Vec<Move>,
}

/// One action of an input.
#[derive(Arbitrary, Clone, Debug)]
pub(crate) enum Move {
    /// A packet to the right.
    Packet(Crafted),
    /// Some, one behind the other.
    Burst([Crafted; 3]),
    /// A packet to the left: an answer, or a request against the connection's direction.
    Back(Crafted),
    /// The same one twice, or cut off, or with a bit turned after its ICRC was made.
    Spoiled(Crafted, u16, Spoil),
    /// Any bytes behind a right base header.
    Behind {
        opcode: u8,
        psn: i8,
        left: bool,
        #[arbitrary(with = bytes)]
        bytes: Vec<u8>,
    },
    /// Any bytes, as a whole frame.
    Bytes {
        left: bool,
        #[arbitrary(with = bytes)]
        bytes: Vec<u8>,
    },
    /// An honest work request.
    Honest { left: bool, verb: Verb, len: u16 },
    /// An honest receive.
    Receive { left: bool, len: u16 },
    /// Time passes, nanoseconds.
    Wait(u16),
}

/// What happens to a frame.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub(crate) enum Spoil {
    Twice,
    Cut,
    Bit,
}

/// An honest work request.
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

/// The nodes, and the next PSNs that a hostile peer would use against either side: of requests, of answers.
pub(crate) struct Show {
    pub cast: Cast,
    pub cursors: [[u32; 2]; 2],
    /// What is still to come of its message against either side.
    left: [u32; 2],
}

impl Show {
    pub fn new(cast: Cast) -> Show {
        let [left, right] = cast.settings.psn;
        // Against the left come the right's requests, and answers to its own.
        Show { cast, cursors: [[right, left], [left, right]], left: [0; 2] }
    }

    pub fn purpose<R>(&mut self, victim: usize, work: impl FnOnce(&mut Purpose<'_>) -> R) -> R {
        let cast = &self.cast;
        let forge = Forge::new(&cast.world, 1 - victim, cast.sides[victim].qp);
        work(&mut Purpose {
            forge: &forge,
            estate: &cast.estates[victim],
            window: cast.windows[victim],
            mtu: cast.settings.mtu,
            service: cast.kind.opcodes(),
            irn: cast.kind == Kind::Irn,
            cursor: &mut self.cursors[victim],
            left: &mut self.left[victim],
            qkey: cast.settings.qkey,
            srq: cast.sides[victim].srq.map_or(Qpn::new(0), |srq| srq.number),
        })
    }

    pub fn arrive(&mut self, victim: usize, frame: &[u8]) {
        self.cast.world.inject(1 - victim, victim, frame);
    }

    fn honest(&mut self, node: usize, verb: Verb, len: usize) {
        let cast = &mut self.cast;
        let remote = cast.estates[1 - node].open(0);
        let len = len % 1024;
        let packets = len.div_ceil(cast.settings.mtu as usize).max(1) as u32;
        let source = cast.estates[node].own(SOURCE, len);
        let posted = match verb {
            Verb::Send => cast.post(node, Operation::Send, source),
            Verb::SendImm => cast.post(node, Operation::SendImm(7), source),
            Verb::Write => cast.post(node, Operation::Write(remote), source),
            Verb::WriteImm => cast.post(node, Operation::WriteImm(remote, 7), source),
            Verb::Read => cast.read(node, remote, len),
            Verb::FetchAdd => cast.estates[node]
                .sink(8)
                .is_some_and(|sink| cast.post(node, Operation::FetchAdd { remote, add: 3 }, sink)),
            Verb::CompareSwap => cast.estates[node].sink(8).is_some_and(|sink| {
                cast.post(node, Operation::CompareSwap { remote, compare: 0, swap: 1 }, sink)
            }),
        };
        if posted {
            let cursor = &mut self.cursors[1 - node][0];
            *cursor = (*cursor + packets) & 0x00ff_ffff;
        }
    }

    pub fn make(&mut self, one: &Move) {
        match one {
            Move::Packet(packet) => {
                let frame = self.purpose(1, |purpose| packet.frame(purpose));
                self.arrive(1, &frame);
            }
            Move::Burst(packets) => {
                for packet in packets {
                    let frame = self.purpose(1, |purpose| packet.frame(purpose));
                    self.arrive(1, &frame);
                }
            }
            Move::Back(packet) => {
                let frame = self.purpose(0, |purpose| packet.frame(purpose));
                self.arrive(0, &frame);
            }
            Move::Spoiled(packet, at, spoil) => {
                let mut frame = self.purpose(1, |purpose| packet.frame(purpose));
                match spoil {
                    Spoil::Twice => self.arrive(1, &frame),
                    Spoil::Cut => frame.truncate(usize::from(*at) % (frame.len() + 1)),
                    Spoil::Bit => {
                        let bit = u32::from(*at) % (frame.len() as u32 * 8);
                        remora_fault::flip(&mut frame, bit);
                    }
                }
                self.arrive(1, &frame);
            }
            Move::Behind { opcode, psn, left, bytes } => {
                let victim = usize::from(!left);
                let frame = self.purpose(victim, |purpose| behind(purpose, *opcode, *psn, bytes));
                self.arrive(victim, &frame);
            }
            Move::Bytes { left, bytes } => self.arrive(usize::from(!left), bytes),
            Move::Honest { left, verb, len } => self.honest(usize::from(!left), *verb, usize::from(*len)),
            Move::Receive { left, len } => self.cast.receive(usize::from(!left), usize::from(*len)),
            Move::Wait(ns) => self.cast.world.run_for(u64::from(*ns)),
        }
    }
}

impl Play {
    /// Runs the input.
    ///
    /// # Panics
    /// If the NIC breaks a rule.
    pub fn run(&self, kind: Kind) {
        let mut show = Show::new(Cast::new(kind, false, &self.stage, false, [GUARDED; 2]));
        for one in &self.moves {
            show.make(one);
        }
        let Show { mut cast, .. } = show;
        cast.rest();
        cast.again();
        cast.fresh_pair();
    }
}
