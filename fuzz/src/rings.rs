//! A hostile program, whose queues hold arbitrary bytes and which rings the doorbell at any time.

use arbitrary::Arbitrary;
use remora_nic::wqe::{Wqe, WqeOpcode};
use remora_nic::{Command, Operation, Service, Word, stride};

use crate::hostile_address::HostileAddress;
use crate::node_memory::{Name, SOURCE, harmless};
use crate::testbed::{Kind, Setup, Testbed};
use crate::to_the_end;

/// The secret regions of the hostile program's node, and of its peer's.
const GUARDED: [&[Name]; 2] =
    [&[Name::Foreign], &[Name::Private, Name::Writable, Name::Foreign, Name::Framed]];

/// The number of known opcodes, plus one.
const OPCODES: u8 = WqeOpcode::LOGICAL_XOR.0 + 2;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    kind: Kind,
    setup: Setup,
    managed: bool,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// An action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Action {
    /// The first slot of a work request.
    Work(Work),
    /// Two list elements, or the bytes that the NIC reads as such.
    Elements([HostileAddress; 2], [u16; 2]),
    /// A slot of 64 arbitrary bytes, repeated from 16.
    Slot([u8; 16]),
    /// A slot of the receive queue.
    Receive(Work),
    /// A ring of the doorbell.
    Ring,
    /// A change of the producer index, as an offset from the posted count.
    Produced(i8),
    /// A change of any index in the header of the send queue or of the receive queue.
    Word { receive: bool, which: u8, value: u64 },
    /// A new limit to which a managed queue may be fetched.
    Enable(u8),
    /// A receive that the peer posts.
    PeerReceive(u16),
    /// A SEND of the peer.
    PeerSend(u16),
    /// A WRITE of the peer.
    PeerWrite(u16),
    /// The passing of time, in nanoseconds.
    Wait(u16),
}

/// The first slot of a work request, mostly valid.
#[derive(Arbitrary, Clone, Debug)]
struct Work {
    opcode: u8,
    flags: u8,
    local: HostileAddress,
    remote: HostileAddress,
    len: u16,
    list: u8,
    operand: u32,
    /// The choice of invalid fields.
    odd: u8,
}

impl Work {
    fn slot(&self, testbed: &Testbed, number: u64) -> [u8; 64] {
        let own = &testbed.sides[0];
        let peer = &testbed.sides[1];
        let len = u64::from(self.len % 1200);
        let (lkey, local) = self.local.of(&testbed.memories[0], testbed.windows[0], len);
        let (rkey, remote) = self.remote.of(&testbed.memories[1], testbed.windows[1], len);
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
                wqe.swap_add = u64::from(peer.qp.number.get()) | u64::from(testbed.settings.qkey) << 32;
            }
            Service::XrcInitiator => {
                wqe.imm |= peer.srq.map_or(0, |srq| u64::from(srq.number.get())) << 32;
            }
            _ => {}
        }
        if wqe.opcode() == WqeOpcode::BIND_MW {
            let window = testbed.windows[0].get();
            wqe.keys = u64::from(lkey.get()) | u64::from(window) << 32;
            wqe.imm = u64::from(window & !0xff | self.operand & 0xff);
        }
        match wqe.opcode() {
            // The operands are one of the node's first completion queues with a near count, or the queue
            // itself.
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

fn elements(testbed: &Testbed, places: &[HostileAddress; 2], lens: &[u16; 2]) -> [u8; 64] {
    let lens = lens.map(|len| u64::from(len % 1200));
    let [first, second] = [0, 1].map(|at| places[at].of(&testbed.memories[0], testbed.windows[0], lens[at]));
    // List elements have the layout of bytes 8 to 39 of a first slot, here beginning at byte 0.
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

fn make(testbed: &mut Testbed, number: u64, one: &Action) {
    let qp = testbed.sides[0].qp;
    match one {
        Action::Work(work) => {
            let slot = work.slot(testbed, number);
            testbed.world.post_slot(qp, &slot);
        }
        Action::Elements(places, lens) => {
            let slot = elements(testbed, places, lens);
            testbed.world.post_slot(qp, &slot);
        }
        Action::Slot(part) => {
            let slot = std::array::from_fn(|at| part[at % part.len()]);
            testbed.world.post_slot(qp, &harmless_slot(slot));
        }
        Action::Receive(work) => {
            let slot = work.slot(testbed, number);
            let Some(ring) = testbed.world.receive_ring(qp) else { return };
            let produced = ring.word(Word::Produced);
            ring.store(produced, &slot);
            ring.set_word(Word::Produced, produced.wrapping_add(stride(testbed.settings.receive_max_sge)));
        }
        Action::Ring => testbed.world.ring(qp),
        Action::Produced(delta) => {
            let posted = testbed.world.posted(qp).wrapping_add_signed(i64::from(*delta));
            testbed.world.send_ring(qp).set_word(Word::Produced, posted);
        }
        Action::Word { receive, which, value } => {
            let send = testbed.world.send_ring(qp);
            let ring = if *receive { testbed.world.receive_ring(qp) } else { Some(send) };
            let word = [Word::Produced, Word::Consumed, Word::Error][usize::from(*which) % 3];
            ring.into_iter().for_each(|ring| ring.set_word(word, *value));
        }
        Action::Enable(count) => {
            let _ = testbed.world.ask::<()>(0, Command::Enable { qp: qp.number, count: u64::from(*count) });
        }
        Action::PeerReceive(len) => testbed.receive(1, usize::from(*len)),
        Action::PeerSend(len) => _ = testbed.send(1, usize::from(*len) % 1024),
        Action::PeerWrite(len) => {
            let remote = testbed.memories[0].open(0);
            let len = usize::from(*len) % 1024;
            let source = testbed.memories[1].own(SOURCE, len);
            testbed.post(1, Operation::Write(remote), source);
        }
        Action::Wait(ns) => testbed.world.run_for(u64::from(*ns)),
    }
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the NIC violates a requirement.
    pub fn run(&self) {
        let mut testbed = Testbed::new(self.kind, false, &self.setup, self.managed, GUARDED);
        testbed.make_hostile(0);
        for (number, one) in self.actions.iter().enumerate() {
            make(&mut testbed, number as u64, one);
            testbed.drain(0);
        }
        let qp = testbed.sides[0].qp;
        testbed.world.ring(qp);
        testbed.rest();
        testbed.works_after_reset();
        testbed.fresh_pair();
    }
}
