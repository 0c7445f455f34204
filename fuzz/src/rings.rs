//! A hostile program: its queues hold any bytes, and its doorbell may ring at any time.

use arbitrary::Arbitrary;
use remora_nic::wqe::{Wqe, WqeOpcode};
use remora_nic::{Operation, Service, Word, stride};

use crate::cast::{Cast, Kind, Stage};
use crate::estate::{Name, SOURCE, harmless};
use crate::place::Place;
use crate::to_the_end;

/// Secret regions of the hostile program's node, and of its peer's.
const GUARDED: [&[Name]; 2] =
    [&[Name::Foreign], &[Name::Private, Name::Writable, Name::Foreign, Name::Framed]];

/// Op-codes that are known, and one more.
const OPCODES: u8 = WqeOpcode::LOGICAL_XOR.0 + 2;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Play {
    kind: Kind,
    stage: Stage,
    managed: bool,
    #[arbitrary(with = to_the_end)]
    moves: Vec<Move>,
}

/// One action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Move {
    /// The first slot of a work request.
    Work(Work),
    /// Two elements of a list, or what is taken for them.
    Elements([Place; 2], [u16; 2]),
    /// Any 64 bytes, repeated.
    Slot([u8; 16]),
    /// A slot of the receive queue.
    Receive(Work),
    /// Rings the doorbell.
    Ring,
    /// The producer index is so far from what was posted.
    Produced(i8),
    /// Any index in the header of the send queue, or of the receive queue.
    Word { receive: bool, which: u8, value: u64 },
    /// A managed queue may be fetched up to here.
    Enable(u8),
    /// The peer posts a receive.
    PeerReceive(u16),
    /// The peer sends.
    PeerSend(u16),
    /// The peer writes.
    PeerWrite(u16),
    /// Time passes, nanoseconds.
    Wait(u16),
}

/// The first slot of a work request, most of it sound.
#[derive(Arbitrary, Clone, Debug)]
struct Work {
    opcode: u8,
    flags: u8,
    local: Place,
    remote: Place,
    len: u16,
    list: u8,
    operand: u32,
    /// Which fields are not sound.
    odd: u8,
}

impl Work {
    fn slot(&self, cast: &Cast, number: u64) -> [u8; 64] {
        let (own, peer) = (&cast.sides[0], &cast.sides[1]);
        let len = u64::from(self.len % 1200);
        let (lkey, local) = self.local.of(&cast.estates[0], cast.windows[0], len);
        let (rkey, remote) = self.remote.of(&cast.estates[1], cast.windows[1], len);
        let opcode = if self.opcode < 0xf0 { self.opcode % OPCODES } else { self.operand as u8 };
        let mut wqe = Wqe {
            header: u64::from(opcode) | u64::from(self.flags & 0x0f) << 8 | number << 16,
            local,
            len,
            keys: u64::from(lkey.get()) | u64::from(rkey.get()) << 32,
            remote,
            compare: u64::from(self.list % 6),
            swap_add: u64::from(self.operand),
            imm: u64::from(self.operand),
        };
        match own.qp.service {
            Service::Ud => {
                wqe.remote = u64::from(own.handle());
                wqe.swap_add = u64::from(peer.qp.number.get()) | u64::from(cast.settings.qkey) << 32;
            }
            Service::XrcInitiator => {
                wqe.imm |= peer.srq.map_or(0, |srq| u64::from(srq.number.get())) << 32;
            }
            _ => {}
        }
        if wqe.opcode() == WqeOpcode::BIND_MW {
            let window = cast.windows[0].get();
            wqe.keys = u64::from(lkey.get()) | u64::from(window) << 32;
            wqe.imm = u64::from(window & !0xff | self.operand & 0xff);
        }
        match wqe.opcode() {
            // The first completion queues are those of the node; a count that is near, and the queue itself.
            WqeOpcode::WAIT => (wqe.remote, wqe.swap_add) = (local % 8, u64::from(self.operand % 32)),
            WqeOpcode::ENABLE => {
                (wqe.remote, wqe.swap_add) = (u64::from(own.qp.number.get()), u64::from(self.operand % 64));
            }
            _ => {}
        }
        match self.odd {
            0x80..0x88 => wqe.len |= u64::from(self.operand) << (self.odd & 7),
            0x88..0x90 => wqe.compare = u64::from(self.operand) << (4 * (self.odd & 7)),
            0x90..0x98 => wqe.remote = u64::from(self.operand) << (4 * (self.odd & 7)),
            0x98..0xa0 => wqe.swap_add ^= u64::from(self.operand) << 32,
            0xa0..0xa8 => wqe.imm ^= u64::from(self.operand) << 32,
            0xa8..0xb0 => wqe.keys ^= u64::from(self.operand),
            0xb0..0xb8 => wqe.header ^= u64::from(self.operand),
            _ => {}
        }
        harmless_slot(wqe.emit())
    }
}

fn harmless_slot(mut slot: [u8; 64]) -> [u8; 64] {
    harmless(&mut slot);
    slot
}

fn elements(cast: &Cast, places: &[Place; 2], lens: &[u16; 2]) -> [u8; 64] {
    let lens = lens.map(|len| u64::from(len % 1200));
    let [first, second] = [0, 1].map(|at| places[at].of(&cast.estates[0], cast.windows[0], lens[at]));
    // Elements have the shape of bytes 8 to 39 of a first slot, here from byte 0 on.
    let wqe = Wqe {
        header: first.1,
        local: lens[0],
        len: u64::from(first.0.get()),
        remote: second.1,
        compare: lens[1],
        swap_add: u64::from(second.0.get()),
        ..Wqe::default()
    };
    harmless_slot(wqe.emit())
}

fn make(cast: &mut Cast, number: u64, one: &Move) {
    let qp = cast.sides[0].qp;
    match one {
        Move::Work(work) => {
            let slot = work.slot(cast, number);
            cast.world.post_slot(qp, &slot);
        }
        Move::Elements(places, lens) => {
            let slot = elements(cast, places, lens);
            cast.world.post_slot(qp, &slot);
        }
        Move::Slot(part) => {
            let slot = std::array::from_fn(|at| part[at % part.len()]);
            cast.world.post_slot(qp, &harmless_slot(slot));
        }
        Move::Receive(work) => {
            let slot = work.slot(cast, number);
            let Some(ring) = cast.world.receive_ring(qp) else { return };
            let produced = ring.word(Word::Produced);
            ring.store(produced, &slot);
            ring.set_word(Word::Produced, produced.wrapping_add(stride(cast.settings.receive_max_sge)));
        }
        Move::Ring => cast.world.ring(qp),
        Move::Produced(delta) => {
            let posted = cast.world.posted(qp).wrapping_add_signed(i64::from(*delta));
            cast.world.send_ring(qp).set_word(Word::Produced, posted);
        }
        Move::Word { receive, which, value } => {
            let send = cast.world.send_ring(qp);
            let ring = if *receive { cast.world.receive_ring(qp) } else { Some(send) };
            let word = [Word::Produced, Word::Consumed, Word::Error][usize::from(*which) % 3];
            ring.into_iter().for_each(|ring| ring.set_word(word, *value));
        }
        Move::Enable(count) => {
            cast.world.with_nic(0, |nic, _| nic.enable(qp.number, u64::from(*count)).ok());
        }
        Move::PeerReceive(len) => cast.receive(1, usize::from(*len)),
        Move::PeerSend(len) => _ = cast.send(1, usize::from(*len) % 1024),
        Move::PeerWrite(len) => {
            let (remote, len) = (cast.estates[0].open(0), usize::from(*len) % 1024);
            let source = cast.estates[1].own(SOURCE, len);
            cast.post(1, Operation::Write(remote), source);
        }
        Move::Wait(ns) => cast.world.run_for(u64::from(*ns)),
    }
}

impl Play {
    /// Runs the input.
    ///
    /// # Panics
    /// If the NIC breaks a rule.
    pub fn run(&self) {
        let mut cast = Cast::new(self.kind, false, &self.stage, self.managed, GUARDED);
        cast.rude(0);
        for (number, one) in self.moves.iter().enumerate() {
            make(&mut cast, number as u64, one);
            cast.drain(0);
        }
        let qp = cast.sides[0].qp;
        cast.world.ring(qp);
        cast.rest();
        cast.again();
        cast.fresh_pair();
    }
}
