//! The machines over an executor of their operations: round trips, bounds, and a death at every operation.

use std::collections::VecDeque;

use memory::{Bytes, Key};
use nic::{
    CompletionKind, Operation, Payload, PostError, ReceiveRequest, Sge, WorkCompletion, WorkRequest, prism,
};
use transport::{Instant, Status};

use super::{Client, ClientConfig, Shard, ShardConfig, recover};
use crate::txn::client::slot_of;
use crate::txn::{Event, Outcome, Refused, Timestamp, Tx};
use crate::{Fleet, Post, PostPrism, Registered};

const SHARD: ShardConfig = ShardConfig { slots: 8, reach: 8, room: 40, clients: 2, window: 2, max_keys: 3 };

const CONFIG: ClientConfig = ClientConfig {
    window: 2,
    max_keys: 3,
    max_key: 8,
    max_value: 32,
    patience: 2,
    seed: 1,
    rules: super::Rules::Proved,
};

fn block(addr: u64, key: u32, len: usize) -> Registered {
    Registered { bytes: Bytes::heap(len).unwrap(), addr, key: Key::new(key) }
}

/// An operation as it was posted.
struct Posted {
    id: u64,
    operation: Operation,
    sge: Sge,
    signaled: bool,
}

/// What a client has posted, a queue for each shard.
struct Queues {
    posted: Vec<VecDeque<Posted>>,
}

struct End<'a>(&'a mut VecDeque<Posted>);

impl Post for End<'_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Payload::Sges(&[sge]) = request.payload else { panic!("one element") };
        let WorkRequest { id, operation, flags, .. } = *request;
        self.0.push_back(Posted { id, operation, sge, signaled: flags.signaled });
        Ok(())
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), PostError> {
        panic!("nobody sends messages");
    }
}

impl PostPrism for End<'_> {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        panic!("plain verbs");
    }
}

impl Fleet for Queues {
    type End<'a> = End<'a>;

    fn end(&mut self, server: usize) -> End<'_> {
        End(&mut self.posted[server])
    }
}

/// A client with its queues.
struct Peer {
    client: Client,
    arena: Registered,
    queues: Queues,
    /// What its transactions came to, and in how many round trips.
    ended: Vec<(Tx, Outcome, u32)>,
    /// Allocations while it took completions.
    allocated: u64,
}

/// The shards.
struct Net {
    memories: Vec<Registered>,
    shards: Vec<Shard>,
}

impl Net {
    fn new(shards: u64) -> Net {
        let memory = |at| block((at + 1) << 32, 7, SHARD.table_len());
        let memories: Vec<Registered> = (0..shards).map(memory).collect();
        let shards = memories.iter().map(|memory| Shard::open(SHARD, memory).unwrap()).collect();
        Net { memories, shards }
    }

    fn join(&mut self, name: u64) -> Peer {
        let grants = self.shards.iter_mut().map(|shard| shard.accept(name).unwrap()).collect();
        let arena = block(1 << 40, 9, CONFIG.arena_len(SHARD.room));
        let client = Client::new(CONFIG, grants, arena.clone()).unwrap();
        let posted = self.shards.iter().map(|_| VecDeque::with_capacity(64)).collect();
        Peer { client, arena, queues: Queues { posted }, ended: Vec::new(), allocated: 0 }
    }

    /// Executes a client's next operation at a shard, or the first half of it, after which nothing more comes. False: there is none.
    fn step(&self, peer: &mut Peer, shard: usize, half: bool) -> bool {
        let Some(posted) = peer.queues.posted[shard].pop_front() else { return false };
        let (memory, arena) = (&self.memories[shard], &peer.arena);
        let local = (posted.sge.addr - arena.addr) as usize;
        let mut bytes = vec![0; posted.sge.len as usize];
        match posted.operation {
            Operation::Read(from) => {
                memory.read((from.addr - memory.addr) as usize, &mut bytes);
                arena.write(local, &bytes);
            }
            Operation::Write(to) => {
                arena.read(local, &mut bytes);
                let len = if half { bytes.len() / 2 } else { bytes.len() };
                memory.write((to.addr - memory.addr) as usize, &bytes[..len]);
            }
            Operation::CompareSwap { remote, compare, swap } => {
                let word = memory.bytes.word((remote.addr - memory.addr) as usize).unwrap();
                let order = std::sync::atomic::Ordering::SeqCst;
                let old = word.compare_exchange(compare, swap, order, order).unwrap_or_else(|old| old);
                arena.write(local, &old.to_le_bytes());
            }
            other => panic!("{other:?}"),
        }
        if posted.signaled && !half {
            let mut event = None;
            let Peer { client, queues, .. } = peer;
            let counted = allocation_counter::measure(|| {
                event = client.complete(shard, &completion(posted.id), queues).unwrap();
            });
            if let Some(Event::Ended { tx, outcome, round_trips, .. }) = event {
                peer.ended.push((tx, outcome, round_trips));
            }
            peer.allocated += counted.count_total;
        }
        true
    }

    /// Executes everything; how the last transaction ended.
    fn run(&self, peer: &mut Peer) -> Option<(Outcome, u32)> {
        while (0..self.shards.len()).any(|shard| self.step(peer, shard, false)) {}
        peer.ended.pop().map(|(_, outcome, trips)| (outcome, trips))
    }

    fn read(&self, peer: &mut Peer, tx: Tx, key: &[u8]) -> Option<Vec<u8>> {
        let entry = peer.client.read(tx, key, &mut peer.queues).unwrap();
        self.run(peer);
        peer.client.value(tx, entry).expect("it is there").map(<[u8]>::to_vec)
    }

    fn commit(&self, peer: &mut Peer, tx: Tx) -> (Outcome, u32) {
        match peer.client.commit(tx, 0, &mut peer.queues).unwrap() {
            Some(Event::Ended { outcome, round_trips, .. }) => (outcome, round_trips),
            _ => self.run(peer).expect("it ends"),
        }
    }

    /// Writes these keys in one transaction.
    fn put(&self, peer: &mut Peer, keys: &[&[u8]], value: &[u8]) -> (Outcome, u32) {
        let tx = peer.client.begin().unwrap();
        for key in keys {
            peer.client.write(tx, key, value, &mut peer.queues).unwrap();
        }
        self.run(peer);
        self.commit(peer, tx)
    }

    fn recover(&mut self, name: u64) {
        let mut shards: Vec<&mut Shard> = self.shards.iter_mut().collect();
        recover(&mut shards, name);
    }
}

fn completion(id: u64) -> WorkCompletion {
    WorkCompletion {
        id,
        status: Status::Success,
        kind: CompletionKind::Read,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        grh: false,
        vendor_err: 0,
    }
}

fn committed() -> Outcome {
    Outcome::Committed(Timestamp::default())
}

#[test]
fn round_trips_are_counted_and_values_come_back() {
    let mut net = Net::new(1);
    let mut peer = net.join(1);
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), None);
    peer.client.write(tx, b"a", b"one", &mut peer.queues).unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), Some(b"one".to_vec()), "its own");
    assert_eq!(net.commit(&mut peer, tx), (committed(), 3), "read, lock, update");
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), Some(b"one".to_vec()));
    assert_eq!(net.commit(&mut peer, tx), (committed(), 1));
    let tx = peer.client.begin().unwrap();
    peer.client.read(tx, b"a", &mut peer.queues).unwrap();
    peer.client.write(tx, b"b", b"two", &mut peer.queues).unwrap();
    net.run(&mut peer);
    assert_eq!(net.commit(&mut peer, tx), (committed(), 4), "read, lock, validate, update");
    let tx = peer.client.begin().unwrap();
    peer.client.delete(tx, b"a", &mut peer.queues).unwrap();
    assert_eq!(net.commit(&mut peer, tx).0, committed());
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), None);
    assert_eq!(net.read(&mut peer, tx, b"b"), Some(b"two".to_vec()));
    assert_eq!(
        net.commit(&mut peer, tx),
        (committed(), 3),
        "two reads one after the other, validated together"
    );
}

#[test]
fn at_its_bounds_it_says_so() {
    let mut net = Net::new(1);
    let mut peer = net.join(1);
    let (tx, other) = (peer.client.begin().unwrap(), peer.client.begin().unwrap());
    assert_eq!(peer.client.begin(), Err(Refused::WindowFull));
    let Peer { client, queues, .. } = &mut peer;
    assert_eq!(client.write(tx, b"k", &[0; 33], queues), Err(Refused::ValueTooLong));
    assert_eq!(client.read(tx, &[0; 9], queues), Err(Refused::KeyTooLong));
    for key in [b"a", b"b", b"c"] {
        client.write(tx, key, b"1", queues).unwrap();
    }
    assert_eq!(client.read(tx, b"d", queues), Err(Refused::TooManyKeys));
    assert_eq!(net.commit(&mut peer, tx).0, committed());
    assert_eq!(peer.client.commit(tx, 0, &mut peer.queues), Err(Refused::NotOpen));
    assert_eq!(peer.client.abort(other).unwrap().map(|_| ()), Some(()));
    for keys in [[b"d", b"e", b"f"], [b"g", b"h", b"i"]] {
        let outcome = net.put(&mut peer, &keys.map(|key| &key[..]), b"1").0;
        let full = keys[0] == b"g";
        assert_eq!(outcome, if full { Outcome::TableFull } else { committed() }, "eight slots for nine keys");
    }
    assert_eq!(net.shards[0].locked(), 0);
    assert!(net.shards[0].accept(1).is_none(), "the name is taken");
    assert!(net.shards[0].accept(2).is_some());
    assert!(net.shards[0].accept(3).is_none(), "two places");
}

#[test]
fn who_finds_a_lock_looks_again_and_gives_up_and_one_who_lost_its_version_aborts() {
    let mut net = Net::new(1);
    let (mut one, mut two) = (net.join(1), net.join(2));
    let tx = one.client.begin().unwrap();
    one.client.write(tx, b"a", b"1", &mut one.queues).unwrap();
    net.run(&mut one);
    let rival = two.client.begin().unwrap();
    assert_eq!(net.read(&mut two, rival, b"a"), None);
    // The log entry and the lock.
    assert_eq!(one.client.commit(tx, 0, &mut one.queues).unwrap(), None);
    assert!(net.step(&mut one, 0, false) && net.step(&mut one, 0, false));
    assert_eq!(net.shards[0].locked(), 1);
    let blocked = two.client.begin().unwrap();
    two.client.read(blocked, b"a", &mut two.queues).unwrap();
    assert_eq!(net.run(&mut two), Some((Outcome::Aborted, 3)), "as often as it has patience");
    assert_eq!(net.run(&mut one).map(|ended| ended.0), Some(committed()));
    two.client.write(rival, b"a", b"2", &mut two.queues).unwrap();
    assert_eq!(net.commit(&mut two, rival), (Outcome::Aborted, 2), "another version is there");
    let pauses: Vec<u64> =
        (0..9).map(|attempts| two.client.retry_at(Instant(5), attempts).since(Instant(5))).collect();
    assert!(pauses[0] < 8_000 && pauses[8] > 100_000, "{pauses:?}");
}

/// Who was told that a key is absent, and looks further for it since another key has its slot, may find that it has come meanwhile.
#[test]
fn an_absent_key_that_turns_up_further_on_is_not_what_was_read() {
    let mut net = Net::new(1);
    let (mut one, mut two) = (net.join(1), net.join(2));
    let alike: Vec<[u8; 1]> =
        (b'a'..=b'z').map(|name| [name]).filter(|key| slot_of(key, SHARD.slots) == 0).take(2).collect();
    let (a, b) = (&alike[0][..], &alike[1][..]);
    let tx = one.client.begin().unwrap();
    one.client.write(tx, a, b"2", &mut one.queues).unwrap();
    assert_eq!(net.read(&mut one, tx, b), None);
    assert_eq!(net.put(&mut two, &[a, b], b"1").0, committed());
    one.client.read(tx, a, &mut one.queues).unwrap();
    net.run(&mut one);
    one.client.write(tx, b, b"2", &mut one.queues).unwrap();
    assert_eq!(net.commit(&mut one, tx).0, Outcome::Aborted, "it has read that b is absent");
}

#[test]
fn a_client_that_dies_anywhere_leaves_all_or_nothing() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let (mut happened, mut did_not) = (0, 0);
    // So many operations at one shard, then at the other; then one that half arrives, or none.
    for (first, second, half) in (0..400).map(|n| (n / 20, n / 2 % 10, n % 2 == 1)) {
        for order in [[0, 1], [1, 0]] {
            let mut net = Net::new(2);
            let mut dead = net.join(1);
            assert_eq!(net.put(&mut dead, &keys, b"old value").0, committed());
            let tx = dead.client.begin().unwrap();
            keys.iter().for_each(|key| {
                dead.client.write(tx, key, b"new value", &mut dead.queues).unwrap();
            });
            net.run(&mut dead);
            dead.client.commit(tx, 0, &mut dead.queues).unwrap();
            (0..first).for_each(|_| {
                _ = net.step(&mut dead, order[0], false) || net.step(&mut dead, order[1], false)
            });
            (0..second).for_each(|_| _ = net.step(&mut dead, order[1], false));
            if half {
                net.step(&mut dead, order[0], true);
            }
            let told = dead.ended.pop();
            // The shards restart, and whoever ends what it began is interrupted once.
            net.shards = net.memories.iter().map(|memory| Shard::open(SHARD, memory).unwrap()).collect();
            let decided: Vec<u64> = net.shards.iter().flat_map(|shard| shard.decided(1)).collect();
            net.shards[order[0]].settle(1, &decided);
            net.recover(1);
            assert!(net.shards.iter().all(|shard| shard.locked() == 0 && shard.names().count() == 0));
            let mut other = net.join(2);
            let tx = other.client.begin().unwrap();
            let found = keys.map(|key| net.read(&mut other, tx, key).expect("a value"));
            assert!(
                found.iter().all(|value| *value == found[0]),
                "half of it: {first} {second} {half} {order:?}"
            );
            let new = found[0] == b"new value";
            assert!(told.is_none() || new, "it was told that it had committed");
            assert_eq!(net.put(&mut other, &keys, b"next").0, committed(), "nothing is blocked");
            happened += u32::from(new);
            did_not += u32::from(!new);
        }
    }
    assert!(happened > 50 && did_not > 50, "{happened} of {}", happened + did_not);
}

#[test]
fn a_place_is_used_again_and_old_marks_say_nothing() {
    let mut net = Net::new(1);
    for name in 1..20 {
        let mut peer = net.join(name);
        assert_eq!(net.put(&mut peer, &[b"a", b"b"], b"1").0, committed());
        // It has locked, as the first transaction of this place did that went on to write.
        let tx = peer.client.begin().unwrap();
        peer.client.write(tx, b"a", b"2", &mut peer.queues).unwrap();
        net.run(&mut peer);
        peer.client.commit(tx, 0, &mut peer.queues).unwrap();
        assert!(!net.shards[0].is_untouched(name), "it had locks");
        (0..2).for_each(|_| assert!(net.step(&mut peer, 0, false)));
        net.recover(name);
        assert!(net.shards[0].is_untouched(name), "nobody knows it any more");
        let mut reader = net.join(100 + name);
        let tx = reader.client.begin().unwrap();
        assert_eq!(net.read(&mut reader, tx, b"a"), Some(b"1".to_vec()));
        assert!(net.shards[0].is_untouched(100 + name), "who only reads has nothing that others must know");
        net.recover(100 + name);
    }
}

#[test]
fn nothing_is_allocated() {
    let mut net = Net::new(2);
    let mut peer = net.join(1);
    for _ in 0..50 {
        let tx = peer.client.begin().unwrap();
        let Peer { client, queues, .. } = &mut peer;
        let counted = allocation_counter::measure(|| {
            client.read(tx, b"a", queues).unwrap();
            client.read(tx, b"b", queues).unwrap();
            client.write(tx, b"b", b"value", queues).unwrap();
            client.write(tx, b"c", b"value", queues).unwrap();
        });
        assert_eq!(counted.count_total, 0);
        net.run(&mut peer);
        assert_eq!(net.commit(&mut peer, tx), (committed(), 4));
    }
    assert_eq!(peer.allocated, 0);
}

/// Over IRN a WRITE may be placed while one before it is still missing.
#[test]
fn a_record_that_is_there_before_its_mark_is_found_by_itself() {
    for half in [true, false] {
        let mut net = Net::new(2);
        let mut dead = net.join(1);
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        assert_eq!(net.put(&mut dead, &keys, b"old value").0, committed());
        let tx = dead.client.begin().unwrap();
        keys.iter().for_each(|key| {
            dead.client.write(tx, key, b"new value", &mut dead.queues).unwrap();
        });
        net.run(&mut dead);
        dead.client.commit(tx, 0, &mut dead.queues).unwrap();
        // A log entry and a lock for each key; then the mark is on its way, and the first record comes.
        let locks = |shard: usize, dead: &mut Peer| {
            (0..dead.queues.posted[shard].len()).for_each(|_| _ = net.step(dead, shard, false))
        };
        (0..2).for_each(|shard| locks(shard, &mut dead));
        let shard = usize::from(dead.queues.posted[0].is_empty());
        let mark = dead.queues.posted[shard].pop_front().expect("the mark");
        assert_eq!(mark.sge.len, 8);
        net.step(&mut dead, shard, half);
        net.recover(1);
        let mut other = net.join(2);
        let tx = other.client.begin().unwrap();
        keys.iter().for_each(|key| assert_eq!(net.read(&mut other, tx, key), Some(b"new value".to_vec())));
    }
}
