//! Clients allocate, link, unlink, return and die at random, while an account of each buffer's owner is
//! kept. No buffer may be posted that a client holds, and at the end none may be missing.

use std::collections::VecDeque;

use remora_nic::{CompletionKind, prism};
use remora_transport::Status;

use super::super::message::LONGEST;
use super::*;
use crate::random::Random;

/// Maximum number of operations in flight per client.
const WINDOW: usize = 4;

/// An operation in flight: the buffer that it allocated, and the one that it unlinked.
struct Open {
    phase: Phase,
    taken: Option<u64>,
    unlinked: Option<u64>,
}

struct Client {
    peer: Peer,
    returns: Returns,
    arena: Registered,
    open: Vec<Open>,
    /// Messages on their way to the keeper and to the client.
    to_keeper: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    nic: Posted,
    keepers: Posted,
}

struct Account {
    random: Random,
    keeper: Keeper,
    local: Registered,
    lists: Free,
    table: Slots,
    clients: Vec<Client>,
    died: usize,
}

fn completion(id: u64, len: usize, kind: CompletionKind) -> WorkCompletion {
    WorkCompletion {
        id,
        status: Status::Success,
        kind,
        byte_len: len as u32,
        imm: None,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::Done,
    }
}

impl Account {
    fn new(seed: u64) -> Account {
        let config = KeeperConfig { peers: 6 };
        let local = block(config.local_len());
        let keeper = Keeper::new(config, classes(), local.clone()).unwrap();
        let mut lists = Free { free: BTreeSet::new() };
        keeper.post_all(&mut lists, |_| false).unwrap();
        let table = Slots(vec![0; 3]);
        let random = Random::new(seed);
        Account { random, keeper, local, lists, table, clients: Vec::new(), died: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn join(&mut self) {
        let mut keepers = Posted::default();
        let Some(peer) = self.keeper.accept(&mut keepers) else { return };
        let arena = block(Returns::ARENA);
        let returns = Returns::new(arena.clone(), 0, WINDOW * 2 + 40);
        let mut nic = Posted::default();
        returns.listen(5, &mut nic).unwrap();
        self.clients.push(Client {
            peer,
            returns,
            arena,
            open: Vec::new(),
            to_keeper: VecDeque::new(),
            to_client: VecDeque::new(),
            nic,
            keepers,
        });
    }

    /// Kills a client, whose messages may have arrived or not.
    fn die(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        self.died += 1;
        self.keeper.disconnect(client.peer);
    }

    /// Performs one step of one operation.
    fn operate(&mut self, index: usize) {
        let choice = self.below(4);
        let slot = self.below(self.table.0.len());
        let open = self.clients[index].open.len();
        let operation = self.below(open.max(1));
        let client = &mut self.clients[index];
        match choice {
            0 if open < WINDOW && client.returns.space() > open * 2 + 2 => {
                let taken = self.lists.free.iter().copied().nth(slot % self.lists.free.len().max(1));
                taken.iter().for_each(|address| assert!(self.lists.free.remove(address)));
                client.open.push(Open { phase: client.returns.begin(), taken, unlinked: None });
            }
            1 if open > 0 => {
                // Links the new buffer in place of the old one, or performs a DELETE.
                let op = &mut client.open[operation];
                if op.unlinked.is_none() {
                    let old = std::mem::replace(&mut self.table.0[slot], op.taken.take().unwrap_or(0));
                    op.unlinked = (old != 0).then_some(old);
                }
            }
            2 if open > 0 => {
                let op = client.open.swap_remove(operation);
                [op.taken, op.unlinked]
                    .into_iter()
                    .flatten()
                    .for_each(|address| client.returns.give(address));
                client.returns.end(op.phase);
            }
            _ => {}
        }
    }

    /// Delivers a message in either direction.
    fn carry(&mut self, index: usize) {
        let idle = self.below(2) == 0;
        let client = &mut self.clients[index];
        if client.returns.send(3, idle, &mut client.nic).unwrap() {
            let (_, sges) = client.nic.sends.pop().unwrap();
            let mut bytes = vec![0; sges[0].len as usize];
            client.arena.read(sges[0].addr as usize, &mut bytes);
            client.to_keeper.push_back(bytes);
        } else if let Some(bytes) = client.to_keeper.pop_front() {
            let (id, sge) = client.keepers.receives.remove(0);
            self.local.write(sge.addr as usize, &bytes);
            let came = completion(id, bytes.len(), CompletionKind::Receive);
            self.keeper.handle(client.peer, &came, &mut client.keepers, &mut self.lists).unwrap();
            client.returns.sent();
        } else if let Some(bytes) = client.to_client.pop_front() {
            let (id, sge) = client.nic.receives.remove(0);
            client.arena.write(sge.addr as usize, &bytes);
            client.returns.received(bytes.len() as u32, id, &mut client.nic).unwrap();
        }
    }

    /// Performs a step of the keeper.
    fn keep(&mut self) {
        self.keeper.work(&self.table, &mut self.lists);
        for client in &mut self.clients {
            self.keeper.notify(client.peer, &mut client.keepers).unwrap();
            for (_, sges) in client.keepers.sends.drain(..) {
                let mut bytes = vec![0; sges[0].len as usize];
                self.local.read(sges[0].addr as usize, &mut bytes);
                client.to_client.push_back(bytes);
            }
        }
    }

    /// Asserts that no client holds a free buffer.
    fn check(&self) {
        let open = self.clients.iter().flat_map(|client| &client.open);
        let held = open.flat_map(|op| [op.taken, op.unlinked]).flatten();
        let linked = self.table.0.iter().copied().filter(|address| *address != 0);
        let mut seen = BTreeSet::new();
        for address in held.chain(linked) {
            assert!(!self.lists.free.contains(&address), "{address} is free and in use");
            assert!(seen.insert(address), "{address} is in use twice");
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.clients.len() < 2 || self.below(40) == 0 {
                self.join();
            }
            let index = self.below(self.clients.len());
            match self.below(300) {
                0..5 if self.clients.len() > 1 => self.die(index),
                5..150 => self.operate(index),
                150..260 => self.carry(index),
                _ => self.keep(),
            }
            self.check();
        }
    }

    /// Completes the operations of all clients.
    fn rest(&mut self) {
        for index in 0..self.clients.len() {
            while let Some(op) = self.clients[index].open.pop() {
                let client = &mut self.clients[index];
                [op.taken, op.unlinked]
                    .into_iter()
                    .flatten()
                    .for_each(|address| client.returns.give(address));
                client.returns.end(op.phase);
            }
        }
        for _ in 0..1000 {
            (0..self.clients.len()).for_each(|index| self.carry(index));
            self.keep();
        }
        assert_eq!(self.keeper.stage(), Stage::Idle);
        assert_eq!(self.keeper.late().count(), 0);
    }
}

#[test]
fn no_buffer_is_posted_that_somebody_has_and_none_is_lost() {
    let mut swept = 0;
    let mut died = 0;
    for seed in 0..200 {
        let mut account = Account::new(seed);
        account.run(3000);
        account.rest();
        account.check();
        let linked = account.table.0.iter().filter(|address| **address != 0).count();
        assert_eq!(account.lists.free.len() + linked, 200, "seed {seed}");
        swept += account.keeper.counters().swept;
        died += account.died;
    }
    assert!(died > 500 && swept > 500, "{died} died, {swept} buffers were found");
}

#[test]
fn a_client_that_does_not_answer_is_known_and_when_it_is_gone_the_sweep_begins_anew() {
    let mut account = Account::new(1);
    account.join();
    account.join();
    account.join();
    let stopped = account.clients[1].peer;
    account.die(0);
    for _ in 0..50 {
        account.keep();
        let index = account.clients.iter().position(|client| client.peer != stopped).unwrap();
        (0..3).for_each(|_| account.carry(index));
    }
    assert_eq!(account.keeper.stage(), Stage::Grace { second: false });
    assert_eq!(account.keeper.late().collect::<Vec<_>>(), [stopped]);
    let index = account.clients.iter().position(|client| client.peer == stopped).unwrap();
    account.die(index);
    account.rest();
    assert_eq!(account.keeper.counters().sweeps, 1, "of what both had");
}

#[test]
fn a_message_is_never_longer_than_its_buffer() {
    let mut account = Account::new(2);
    account.join();
    let client = &mut account.clients[0];
    for address in 0..40u64 {
        client.returns.give(address);
    }
    account.carry(0);
    assert_eq!(account.clients[0].to_keeper[0].len(), LONGEST);
    account.carry(0);
    // The remaining buffers are few, so they wait until there is nothing else to do.
    while account.clients[0].to_keeper.is_empty() {
        account.carry(0);
    }
    assert_eq!(account.clients[0].to_keeper[0].len(), 16 + 10 * 8);
}
