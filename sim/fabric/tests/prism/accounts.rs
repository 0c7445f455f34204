//! The owner of every buffer, while half of all comparisons fail and clients die in the middle of operations.
//!
//! Clients put values into a table by chains; two clients share a slot. The server recycles the buffers that
//! it knows of, and the NIC those that only the NIC knows of.

use remora_fabric::{ALL, CompletionQueue, Config, FreeList, QueuePair, Region, Settings, World};
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, WorkRequest};
use remora_nic::{Flags, Payload, Status};
use remora_transport::state::State;

use crate::bench::arms;

const CLIENTS: usize = 8;
const ROUNDS: usize = 6;
/// Number of slots of the table, each with a pointer and a bound.
const SLOTS: usize = CLIENTS / 2;
/// Words per client: the buffer that its chain took, and the value that its comparison found.
const BOXES: usize = 1024;
/// Marks a word to which nothing was written.
const BLANK: u64 = u64::MAX;
const BUFFERS: usize = 4096;
/// Size of a buffer: 16 packets.
const BUFFER: usize = 16 * 256;
/// Number of buffers: one per client and one per slot, so the list is empty while some buffers are resting.
const COUNT: usize = CLIENTS + SLOTS;

struct Client {
    ends: [QueuePair; 2],
    cq: CompletionQueue,
    /// Value that the client expects in its slot.
    believes: u64,
    /// True while a chain of the client is in progress.
    busy: bool,
}

struct Shop {
    world: World,
    settings: Settings,
    random: Random,
    clients: Vec<Client>,
    here: Region,
    there: Region,
    list: FreeList,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    won: u64,
    lost: u64,
    none_free: u64,
    killed: u64,
    /// Number of deaths after which the NIC recycled the buffer of an incomplete ALLOCATE.
    halves: u64,
    rested: u64,
}

impl Shop {
    fn new(seed: u64, settings: &Settings) -> Shop {
        let settings = Settings { timeout: 8, ..*settings };
        let mut world = World::new(&Config { seed, ..Config::default() });
        let mut random = Random::new(seed);
        let bad = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 3 }];
        let rules = bad.map(|action| Rule::chance(action, 0.03 * random.below(100) as f64 / 100.0));
        world.set_rules(&Rules::of(rules.to_vec()), seed);
        let clients = (0..CLIENTS)
            .map(|_| {
                let [(left, cq), (right, _)] = world.pair(0, 1, &settings);
                Client { ends: [left, right], cq, believes: 0, busy: false }
            })
            .collect();
        let here = world.register(0, CLIENTS * BUFFER, ALL);
        let there = world.register(1, BUFFERS + COUNT * BUFFER, ALL);
        let mut list = world.create_free_list(&there, BUFFERS, BUFFER as u32, COUNT as u32).unwrap();
        for index in 0..COUNT {
            world.post_buffer(&mut list, there.remote(BUFFERS + index * BUFFER).addr).unwrap();
        }
        Shop { world, settings, random, clients, here, there, list, seen: Seen::default() }
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.there.load(offset, 8).try_into().unwrap())
    }

    fn slot(client: usize) -> usize {
        16 * (client / 2)
    }

    /// Posts a READ of the slot, then an ALLOCATE; if it took a buffer, a CAS with the value that the client
    /// expects.
    fn put(&mut self, client: usize) {
        let slot = Shop::slot(client);
        let boxes = BOXES + 16 * client;
        let believes = self.word(slot);
        (self.clients[client].believes, self.clients[client].busy) = (believes, true);
        self.there.store(boxes, &[0xff; 16]);
        let len = self.random.below(BUFFER as u64 + 1) as usize;
        let list = [self.here.sge(client * BUFFER, len)];
        let into = [self.here.sge(client * BUFFER, BUFFER)];
        let mine = self.there.remote(boxes);
        let displaced_box = self.there.remote(boxes + 8);
        let whole = [u64::MAX, 0, 0, 0];
        let operands = Operands {
            mode: Mode::Equal,
            size: 8,
            compare_mask: whole,
            swap_mask: whole,
            compare: Operand::Immediate([believes, 0, 0, 0]),
            swap_add: Operand::At(mine.addr),
        };
        let request = |id, operation| WorkRequest {
            id,
            operation,
            conditional: false,
            redirect: None,
            result: None,
            flags: Flags { signaled: true, ..Flags::default() },
        };
        let from = Address::indirect(self.there.remote(slot));
        let get = request(0, Operation::Read { from, len: BUFFER as u32, into: &into });
        let data = Data::Local(Payload::Sges(&list));
        let new = request(1, Operation::Allocate { list: self.list.number, rkey: self.there.key, data });
        let new = WorkRequest { redirect: Some(mine.addr), ..new };
        let address = Address::direct(self.there.remote(slot));
        let swap = request(2, Operation::CompareSwap { at: address, operands });
        let swap = WorkRequest { conditional: true, redirect: Some(displaced_box.addr), ..swap };
        let qp = self.clients[client].ends[0];
        for request in [get, new, swap].iter().skip(usize::from(believes == 0)) {
            self.world.post_prism(qp, request).unwrap();
        }
        self.world.ring(qp);
    }

    /// Ends the client's program. The server notices a little later.
    fn kill(&mut self, client: usize) {
        let [left, right] = self.clients[client].ends;
        self.world.bring(left, State::Err);
        self.world.run_for(self.random.below(3000));
        let before = self.world.free_list_facts(&self.list).free;
        self.world.bring(right, State::Err);
        self.seen.killed += 1;
        let unheard = self.word(BOXES + 16 * client) == BLANK;
        self.seen.halves += u64::from(unheard && self.world.free_list_facts(&self.list).free > before);
    }

    /// Recycles the buffer that a finished chain leaves: the one it took but did not link, or the one it
    /// unlinked.
    fn give_back(&mut self, client: usize) {
        self.clients[client].busy = false;
        let boxes = BOXES + 16 * client;
        let mine = self.word(boxes);
        let displaced = self.word(boxes + 8);
        if mine == BLANK {
            self.seen.none_free += 1;
            return;
        }
        let won = displaced == self.clients[client].believes;
        self.seen.won += u64::from(won);
        self.seen.lost += u64::from(displaced != BLANK && !won);
        let back = if won { displaced } else { mine };
        if back != 0 {
            self.world.post_buffer(&mut self.list, back).unwrap();
        }
        self.seen.rested += u64::from(self.world.free_list_facts(&self.list).resting);
    }

    /// Recycles the buffer of a chain that has just ended at once, even if others still read the buffer.
    fn attend(&mut self) {
        for client in 0..CLIENTS {
            let ended = self.world.drain(self.clients[client].cq);
            if self.clients[client].busy && ended.iter().any(|wc| wc.id == 2 && wc.status == Status::Success)
            {
                self.give_back(client);
            }
        }
    }

    fn round(&mut self) {
        for client in 0..CLIENTS {
            self.put(client);
            self.world.run_for(self.random.below(500));
        }
        for _ in 0..self.random.below(3) {
            self.world.run_for(self.random.below(4000));
            let victim = self.random.below(CLIENTS as u64) as usize;
            if self.clients[victim].busy && self.world.state(self.clients[victim].ends[1]) == Some(State::Rts)
            {
                self.kill(victim);
            }
            self.attend();
        }
        while self.world.step() {
            self.attend();
        }
        for client in 0..CLIENTS {
            if self.clients[client].busy {
                self.give_back(client);
            }
            let Client { ends, cq, .. } = self.clients[client];
            self.world.drain(cq);
            if self.world.state(ends[0]) == Some(State::Err) {
                ends.iter().for_each(|end| self.world.bring(*end, State::Reset));
                self.world.connect(ends[0], ends[1], &self.settings);
            }
        }
        // Buffers that were still pinned become free when their bytes can no longer be requested.
        assert!(self.world.settle(10_000_000), "the world never comes to rest");
        let facts = self.world.free_list_facts(&self.list);
        let live = (0..SLOTS).filter(|slot| self.word(16 * slot) != 0).count();
        assert_eq!((facts.free as usize, facts.resting, facts.bad_posts), (COUNT - live, 0, 0));
    }
}

#[test]
fn free_buffers_are_all_but_the_live_ones_though_half_of_all_comparisons_lose_and_clients_die() {
    for settings in arms() {
        let mut all = Seen::default();
        for seed in 0..100 {
            let mut shop = Shop::new(seed, &settings);
            (0..ROUNDS).for_each(|_| shop.round());
            let Seen { won, lost, none_free, killed, halves, rested } = shop.seen;
            all.won += won;
            all.lost += lost;
            all.none_free += none_free;
            all.killed += killed;
            all.halves += halves;
            all.rested += rested;
        }
        let Seen { won, lost, none_free, killed, halves, rested } = all;
        assert!(won > 1000 && lost * 10 > 9 * won, "{lost} lost, {won} won");
        assert!(
            none_free > 10 && killed > 300 && halves > 30 && rested > 30,
            "{killed} killed, {halves} in the middle"
        );
    }
}
