//! A hostile peer on a connection that agreed on PRISM, and a server whose free lists, pointers and scratch
//! memory must stay intact.

use arbitrary::Arbitrary;
use remora_fabric::{CompletionQueue, FreeList, QueuePair};
use remora_nic::prism::{
    Address, Data, FreeListFacts, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest,
};
use remora_nic::{Fetching, Flags, Payload, Remote, Status};

use crate::crafted::Length;
use crate::flagged::{Flagged, POINTERS, PacketAddress, Progress};
use crate::node_memory::{Name, SECRET, SLOT, SOURCE};
use crate::peer::{Action as Plain, Attack, GUARDED};
use crate::testbed::{Kind, Setup, Testbed};
use crate::to_the_end;

/// The number of buffers of each free list, in the second half of its region.
const COUNT: u32 = 4;
const SIZE: u32 = 128;
const BUFFERS: usize = 512;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    setup: Setup,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// An action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Action {
    /// A PRISM packet to the right side.
    Packet(Flagged),
    /// Three packets in sequence.
    Burst([Flagged; 3]),
    /// The server's program writes a pointer and its bound.
    Point { which: u8, to: PacketAddress, bound: Length },
    /// The server's program posts a buffer.
    Post(u8),
    /// An honest operation with a number.
    Honest(Honest, u16),
    /// An action of any connection.
    Plain(Plain),
    /// Three operations as a chain in one packet, whose header has the given count.
    Chain([Flagged; 3], Option<u8>),
}

/// The kind of an honest operation.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Honest {
    Get,
    Put,
    Swap,
}

/// Another connection to the same server, with its own scratch memory.
struct OtherClient {
    qp: QueuePair,
    cq: CompletionQueue,
}

/// The nodes, with the free lists of a PRISM server.
struct PrismServer {
    attack: Attack,
    /// The free list in the open region, and the one in a region without access for peers.
    lists: [FreeList; 2],
    progress: Progress,
    bad_posts: u64,
}

impl PrismServer {
    fn new(testbed: Testbed) -> PrismServer {
        let mut attack = Attack::new(testbed);
        let lists = [Name::Open, Name::Private].map(|name| {
            let region = attack.testbed.memories[1].region(name);
            let world = &mut attack.testbed.world;
            let mut list = world.create_free_list(&region, BUFFERS, SIZE, COUNT).expect("space for a list");
            for index in 0..COUNT {
                world.post_buffer(&mut list, address(&region.remote(BUFFERS), index)).expect("space to post");
            }
            list
        });
        let all = Name::Open;
        attack.testbed.memories[1].allow(all, 0..16 * POINTERS);
        PrismServer { attack, lists, progress: Progress::default(), bad_posts: 0 }
    }

    fn facts(&mut self, list: usize) -> FreeListFacts {
        self.attack.testbed.world.free_list_facts(&self.lists[list])
    }

    fn packet(&mut self, packet: &Flagged) {
        let lists = self.lists.each_ref().map(|list| list.number);
        let progress = &mut self.progress;
        let frame = self.attack.context(1, |context| packet.frame(context, lists, progress));
        self.attack.arrive(1, &frame);
    }

    fn chain(&mut self, packets: &[Flagged], odd: Option<u8>) {
        let lists = self.lists.each_ref().map(|list| list.number);
        let progress = &mut self.progress;
        let frame = self.attack.context(1, |context| Flagged::chain(packets, odd, context, lists, progress));
        self.attack.arrive(1, &frame);
    }

    fn post(&mut self, index: u32) {
        let first = self.attack.testbed.memories[1].open(BUFFERS);
        let before = self.facts(0);
        // An address that is not a buffer is ignored and counted.
        let posted = self.attack.testbed.world.post_buffer(&mut self.lists[0], address(&first, index));
        let after = self.facts(0);
        let taken = after.free + after.resting - before.free - before.resting;
        self.bad_posts += u64::from(posted.is_ok() && taken == 0);
        assert_eq!(after.bad_posts, self.bad_posts, "{before:?}, then {after:?}");
    }

    fn honest(&mut self, what: Honest, number: u16) {
        let testbed = &mut self.attack.testbed;
        let open = testbed.memories[1].open(0);
        let at = Remote { addr: open.addr + 16 * (u64::from(number) % POINTERS as u64), ..open };
        let len = usize::from(number) % SLOT;
        let source = [testbed.memories[0].own(SOURCE, len)];
        let packets = (len as u32).div_ceil(testbed.settings.mtu).max(1);
        let (posted, packets) = match what {
            Honest::Get => {
                let Some(sink) = testbed.memories[0].sink(SLOT) else { return };
                let from = Address::bounded(at);
                let into = [sink];
                let reserved = (SLOT as u32).div_ceil(testbed.settings.mtu);
                let packets = if testbed.kind == Kind::Irn { 1 } else { reserved };
                (testbed.post_prism(Operation::Read { from, len: SLOT as u32, into: &into }, None), packets)
            }
            Honest::Put => {
                let data = Data::Local(Payload::Sges(&source));
                let new = Operation::Allocate { list: self.lists[0].number, rkey: open.rkey, data };
                (testbed.post_prism(new, Some(SCRATCH)), packets)
            }
            Honest::Swap => {
                let operands = Operands {
                    mode: Mode::NotEqual,
                    size: 16,
                    compare_mask: [u64::MAX, 0, 0, 0],
                    swap_mask: [u64::MAX, 0, 0, 0],
                    compare: Operand::Immediate([u64::from(number), 0, 0, 0]),
                    swap_add: Operand::At(SCRATCH),
                };
                (testbed.post_prism(Operation::CompareSwap { at: Address::direct(at), operands }, None), 1)
            }
        };
        if posted {
            let cursor = &mut self.attack.cursors[1][0];
            *cursor = (*cursor + packets) & 0x00ff_ffff;
        }
    }

    fn make(&mut self, one: &Action) {
        match one {
            Action::Packet(packet) => self.packet(packet),
            Action::Chain(packets, odd) => self.chain(packets, *odd),
            Action::Burst(packets) => packets.iter().for_each(|packet| self.packet(packet)),
            Action::Point { which, to, bound } => {
                let mtu = self.attack.testbed.settings.mtu;
                let to = self.attack.context(1, |context| to.of(context, u64::from(bound.bytes(mtu))).1);
                let mut pair = [to.to_le_bytes(), u64::from(bound.bytes(mtu)).to_le_bytes()].concat();
                crate::node_memory::harmless(&mut pair);
                let at = 16 * (usize::from(*which) % POINTERS);
                self.attack.testbed.memories[1].store(Name::Open, at, &pair);
            }
            Action::Post(index) => self.post(u32::from(*index) % (COUNT + 1)),
            Action::Honest(what, number) => self.honest(*what, *number),
            Action::Plain(one) => self.attack.make(one),
        }
    }

    /// Checks a free list without users: every posted buffer is free, and all of them can be posted.
    fn account(&mut self) {
        assert_eq!(self.facts(0).resting, 0, "no operation can still use a buffer");
        (0..COUNT).for_each(|index| self.post(index));
        let FreeListFacts { free, resting, .. } = self.facts(0);
        assert_eq!((free, resting), (COUNT, 0));
    }
}

fn address(first: &Remote, index: u32) -> u64 {
    first.addr + u64::from(index * SIZE)
}

impl OtherClient {
    /// Connects the other client. Its scratch memory is full of secret bytes, and follows that of the hostile
    /// peer's connection.
    fn new(testbed: &mut Testbed) -> OtherClient {
        let settings = remora_fabric::Settings {
            access: remora_fabric::REMOTE,
            fetching: Fetching::Posted,
            max_inline: 64,
            ..testbed.settings
        };
        let [(qp, cq), _] = testbed.world.pair(0, 1, &settings);
        OtherClient { qp, cq }
    }

    fn run(&self, testbed: &mut Testbed, operation: Operation<'_>) {
        let flags = Flags { signaled: true, ..Flags::default() };
        let request =
            WorkRequest { id: 0, operation, conditional: true, redirect: None, result: None, flags };
        testbed.world.post_prism(self.qp, &request).expect("an empty queue");
        testbed.world.ring(self.qp);
        assert!(testbed.world.settle(200_000), "the simulated network does not settle");
        let done = testbed.world.drain(self.cq);
        assert!(done.len() == 1 && done[0].status == Status::Success, "{done:?} of the other client");
    }

    fn scratch(testbed: &Testbed) -> Address {
        Address::direct(Remote { addr: SCRATCH, ..testbed.memories[1].open(0) })
    }

    fn fill(&self, testbed: &mut Testbed) {
        let data = Data::Local(Payload::Inline(&[SECRET; 32]));
        self.run(testbed, Operation::Write { to: OtherClient::scratch(testbed), data });
    }

    fn check(&self, testbed: &mut Testbed) {
        let list = [testbed.memories[0].spare()];
        self.run(testbed, Operation::Read { from: OtherClient::scratch(testbed), len: 32, into: &list });
        let at = (list[0].addr - testbed.memories[0].guarded(Name::Own).address) as usize;
        assert_eq!(
            testbed.memories[0].load(Name::Own, at, 32),
            [SECRET; 32],
            "scratch memory of another connection"
        );
    }
}

impl Input {
    /// Runs the input.
    ///
    /// # Panics
    /// Panics if the NIC violates a requirement.
    pub fn run(&self, kind: Kind) {
        let mut testbed = Testbed::new(kind, true, &self.setup, false, [GUARDED; 2]);
        let other_client = OtherClient::new(&mut testbed);
        let mut server = PrismServer::new(testbed);
        // The hostile peer's connection gets its scratch memory first, if its rights suffice for asking.
        if server.attack.testbed.settings.access == remora_fabric::REMOTE {
            server.honest(Honest::Swap, 1);
        }
        assert!(server.attack.testbed.world.settle(200_000), "the simulated network does not settle");
        other_client.fill(&mut server.attack.testbed);
        // The other connection has all rights, so its earlier frames are not a leak.
        server.attack.testbed.world.sent();
        server.attack.testbed.begin_attack();
        self.actions.iter().for_each(|one| server.make(one));
        server.attack.testbed.rest();
        server.attack.testbed.memories[1].check_readable();
        assert_eq!(server.facts(1).free, COUNT, "the peer has taken buffers without a key");
        if server.attack.testbed.works_after_reset() {
            server.account();
        }
        server.attack.testbed.check();
        other_client.check(&mut server.attack.testbed);
    }
}
