//! A hostile peer on a connection that agreed on PRISM, and a server whose free lists, pointers and scratch
//! memory must survive it.

use arbitrary::Arbitrary;
use remora_fabric::{CompletionQueue, FreeList, QueuePair};
use remora_nic::prism::{
    Address, Data, FreeListFacts, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest,
};
use remora_nic::{Fetching, Flags, Payload, Remote, Status};

use crate::cast::{Cast, Kind, Stage};
use crate::crafted::Length;
use crate::estate::{Name, SECRET, SLOT, SOURCE};
use crate::flagged::{Flagged, POINTERS, Spot, Under};
use crate::play::{GUARDED, Move as Plain, Show};
use crate::to_the_end;

/// Buffers of each list, in the second half of its region.
const COUNT: u32 = 4;
const SIZE: u32 = 128;
const BUFFERS: usize = 512;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Play {
    stage: Stage,
    #[arbitrary(with = to_the_end)]
    moves: Vec<Move>,
}

/// One action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Move {
    /// A packet of PRISM to the right.
    Packet(Flagged),
    /// Some, one behind the other.
    Burst([Flagged; 3]),
    /// The server's program writes a pointer and its bound.
    Point { which: u8, to: Spot, bound: Length },
    /// The server's program posts a buffer.
    Post(u8),
    /// An honest operation.
    Honest(Honest, u16),
    /// An action of any connection.
    Plain(Plain),
    /// Some as a chain in one packet, whose header gives this count.
    Chain([Flagged; 3], Option<u8>),
}

/// An honest operation.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Honest {
    Get,
    Put,
    Swap,
}

/// Another connection to the same server, with its own scratch memory.
struct Bystander {
    qp: QueuePair,
    cq: CompletionQueue,
}

/// The nodes, with the lists of a PRISM server.
struct Shop {
    show: Show,
    /// In the open region, and in one where peers may do nothing.
    lists: [FreeList; 2],
    under: Under,
    bad_posts: u64,
}

impl Shop {
    fn new(cast: Cast) -> Shop {
        let mut show = Show::new(cast);
        let lists = [Name::Open, Name::Private].map(|name| {
            let region = show.cast.estates[1].region(name);
            let world = &mut show.cast.world;
            let mut list = world.create_free_list(&region, BUFFERS, SIZE, COUNT).expect("space for a list");
            for index in 0..COUNT {
                world.post_buffer(&mut list, address(&region.remote(BUFFERS), index)).expect("space to post");
            }
            list
        });
        let all = Name::Open;
        show.cast.estates[1].allow(all, 0..16 * POINTERS);
        Shop { show, lists, under: Under::default(), bad_posts: 0 }
    }

    fn facts(&mut self, list: usize) -> FreeListFacts {
        self.show.cast.world.free_list_facts(&self.lists[list])
    }

    fn packet(&mut self, packet: &Flagged) {
        let (lists, under) = (self.lists.each_ref().map(|list| list.number), &mut self.under);
        let frame = self.show.purpose(1, |purpose| packet.frame(purpose, lists, under));
        self.show.arrive(1, &frame);
    }

    fn chain(&mut self, packets: &[Flagged], odd: Option<u8>) {
        let (lists, under) = (self.lists.each_ref().map(|list| list.number), &mut self.under);
        let frame = self.show.purpose(1, |purpose| Flagged::chain(packets, odd, purpose, lists, under));
        self.show.arrive(1, &frame);
    }

    fn post(&mut self, index: u32) {
        let first = self.show.cast.estates[1].open(BUFFERS);
        let before = self.facts(0);
        // An address that is no buffer is ignored, and counted.
        let posted = self.show.cast.world.post_buffer(&mut self.lists[0], address(&first, index));
        let after = self.facts(0);
        let taken = after.free + after.resting - before.free - before.resting;
        self.bad_posts += u64::from(posted.is_ok() && taken == 0);
        assert_eq!(after.bad_posts, self.bad_posts, "{before:?}, then {after:?}");
    }

    fn honest(&mut self, what: Honest, number: u16) {
        let cast = &mut self.show.cast;
        let open = cast.estates[1].open(0);
        let at = Remote { addr: open.addr + 16 * (u64::from(number) % POINTERS as u64), ..open };
        let len = usize::from(number) % SLOT;
        let source = [cast.estates[0].own(SOURCE, len)];
        let packets = (len as u32).div_ceil(cast.settings.mtu).max(1);
        let (posted, packets) = match what {
            Honest::Get => {
                let Some(sink) = cast.estates[0].sink(SLOT) else { return };
                let (from, into) = (Address::bounded(at), [sink]);
                let reserved = (SLOT as u32).div_ceil(cast.settings.mtu);
                let packets = if cast.kind == Kind::Irn { 1 } else { reserved };
                (cast.post_prism(Operation::Read { from, len: SLOT as u32, into: &into }, None), packets)
            }
            Honest::Put => {
                let data = Data::Local(Payload::Sges(&source));
                let new = Operation::Allocate { list: self.lists[0].number, rkey: open.rkey, data };
                (cast.post_prism(new, Some(SCRATCH)), packets)
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
                (cast.post_prism(Operation::CompareSwap { at: Address::direct(at), operands }, None), 1)
            }
        };
        if posted {
            let cursor = &mut self.show.cursors[1][0];
            *cursor = (*cursor + packets) & 0x00ff_ffff;
        }
    }

    fn make(&mut self, one: &Move) {
        match one {
            Move::Packet(packet) => self.packet(packet),
            Move::Chain(packets, odd) => self.chain(packets, *odd),
            Move::Burst(packets) => packets.iter().for_each(|packet| self.packet(packet)),
            Move::Point { which, to, bound } => {
                let mtu = self.show.cast.settings.mtu;
                let to = self.show.purpose(1, |purpose| to.of(purpose, u64::from(bound.bytes(mtu))).1);
                let mut pair = [to.to_le_bytes(), u64::from(bound.bytes(mtu)).to_le_bytes()].concat();
                crate::estate::harmless(&mut pair);
                let at = 16 * (usize::from(*which) % POINTERS);
                self.show.cast.estates[1].store(Name::Open, at, &pair);
            }
            Move::Post(index) => self.post(u32::from(*index) % (COUNT + 1)),
            Move::Honest(what, number) => self.honest(*what, *number),
            Move::Plain(one) => self.show.make(one),
        }
    }

    /// A list without users: every posted buffer is free, and all of them can be posted.
    fn account(&mut self) {
        assert_eq!(self.facts(0).resting, 0, "nobody is left who could touch a buffer");
        (0..COUNT).for_each(|index| self.post(index));
        let FreeListFacts { free, resting, .. } = self.facts(0);
        assert_eq!((free, resting), (COUNT, 0));
    }
}

fn address(first: &Remote, index: u32) -> u64 {
    first.addr + u64::from(index * SIZE)
}

impl Bystander {
    /// Its scratch memory is full of secret bytes; it is lent next behind that of the hostile peer's
    /// connection.
    fn new(cast: &mut Cast) -> Bystander {
        let settings = remora_fabric::Settings {
            access: remora_fabric::REMOTE,
            fetching: Fetching::Posted,
            max_inline: 64,
            ..cast.settings
        };
        let [(qp, cq), _] = cast.world.pair(0, 1, &settings);
        Bystander { qp, cq }
    }

    fn run(&self, cast: &mut Cast, operation: Operation<'_>) {
        let flags = Flags { signaled: true, ..Flags::default() };
        let request =
            WorkRequest { id: 0, operation, conditional: true, redirect: None, result: None, flags };
        cast.world.post_prism(self.qp, &request).expect("an empty queue");
        cast.world.ring(self.qp);
        assert!(cast.world.settle(200_000), "it never comes to rest");
        let done = cast.world.drain(self.cq);
        assert!(done.len() == 1 && done[0].status == Status::Success, "{done:?} of the bystander");
    }

    fn scratch(cast: &Cast) -> Address {
        Address::direct(Remote { addr: SCRATCH, ..cast.estates[1].open(0) })
    }

    fn fill(&self, cast: &mut Cast) {
        let data = Data::Local(Payload::Inline(&[SECRET; 32]));
        self.run(cast, Operation::Write { to: Bystander::scratch(cast), data });
    }

    fn check(&self, cast: &mut Cast) {
        let list = [cast.estates[0].spare()];
        self.run(cast, Operation::Read { from: Bystander::scratch(cast), len: 32, into: &list });
        let at = (list[0].addr - cast.estates[0].plot(Name::Own).address) as usize;
        assert_eq!(
            cast.estates[0].load(Name::Own, at, 32),
            [SECRET; 32],
            "scratch memory of another connection"
        );
    }
}

impl Play {
    /// Runs the input.
    ///
    /// # Panics
    /// If the NIC breaks a rule.
    pub fn run(&self, kind: Kind) {
        let mut cast = Cast::new(kind, true, &self.stage, false, [GUARDED; 2]);
        let bystander = Bystander::new(&mut cast);
        let mut shop = Shop::new(cast);
        // The hostile peer's connection gets its scratch memory first, if it has rights enough to ask for it.
        if shop.show.cast.settings.access == remora_fabric::REMOTE {
            shop.honest(Honest::Swap, 1);
        }
        assert!(shop.show.cast.world.settle(200_000), "it never comes to rest");
        bystander.fill(&mut shop.show.cast);
        // Frames of the other connection are no leak.
        shop.show.cast.world.sent();
        self.moves.iter().for_each(|one| shop.make(one));
        shop.show.cast.rest();
        shop.show.cast.estates[1].check_readable();
        assert_eq!(shop.facts(1).free, COUNT, "buffers that lie under no key of the peer's");
        if shop.show.cast.again() {
            shop.account();
        }
        shop.show.cast.check();
        bystander.check(&mut shop.show.cast);
    }
}
