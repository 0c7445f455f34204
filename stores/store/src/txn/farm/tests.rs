//! Tests of the FaRM machines over an executor of their operations: round trips, limits, and a death at
//! every operation.

use std::collections::VecDeque;

use remora_memory::{Bytes, Key};
use remora_nic::{
    CompletionKind, Operation, Payload, PostError, ReceiveRequest, Sge, WorkCompletion, WorkRequest, prism,
};
use remora_transport::{Instant, Status};

use super::{Caller, Client, ClientConfig, Shard, ShardConfig, recover};
use crate::txn::client::{hash_of, reduce};
use crate::txn::{Event, Machine as _, Outcome, Refused, Timestamp, Tx};
use crate::{Connections, Post, PostPrism, Registered};

const SHARD: ShardConfig =
    ShardConfig { keys: 8, homes: 16, reach: 16, max_pair: 40, clients: 2, window: 2, max_keys: 3 };

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

/// A posted operation.
struct Posted {
    id: u64,
    operation: Operation,
    sge: Option<Sge>,
}

/// The extent to which an operation is executed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum How {
    Whole,
    /// Half of its bytes, and nothing after it.
    Half,
    /// All of its bytes arrive, but the shard's program never processes it.
    Unserved,
}

/// The operations that a client has posted, in one queue per shard.
struct Queues {
    posted: Vec<VecDeque<Posted>>,
}

struct Endpoint<'a>(&'a mut VecDeque<Posted>);

impl Post for Endpoint<'_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Payload::Sges(sges) = request.payload else { panic!("elements") };
        let WorkRequest { id, operation, flags, .. } = *request;
        assert_eq!(flags.signaled, matches!(operation, Operation::Read(_)), "an answer tells the rest");
        self.0.push_back(Posted { id, operation, sge: sges.first().copied() });
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        assert!(request.sges.is_empty(), "answers have no bytes");
        Ok(())
    }
}

/// The requests that a shard's program posts for a call.
#[derive(Default)]
struct Answer {
    imm: Option<u32>,
    receives: u32,
}

impl Post for Answer {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Operation::SendImm(imm) = request.operation else { panic!("an answer") };
        assert_eq!(self.imm.replace(imm), None);
        Ok(())
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.receives += 1;
        Ok(())
    }
}

impl PostPrism for Endpoint<'_> {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        panic!("plain verbs");
    }
}

impl Connections for Queues {
    type Endpoint<'a> = Endpoint<'a>;

    fn endpoint(&mut self, server: usize) -> Endpoint<'_> {
        Endpoint(&mut self.posted[server])
    }
}

/// A client with its queues.
struct Peer {
    client: Client,
    /// The client's state at each shard.
    callers: Vec<Caller>,
    arena: Registered,
    queues: Queues,
    /// The client's ended transactions, with their outcomes and round trips.
    ended: Vec<(Tx, Outcome, u32)>,
    /// Number of allocations while completions were processed.
    allocated: u64,
}

/// The shards and their clients.
struct Net {
    memories: Vec<Registered>,
    shards: Vec<Shard>,
}

impl Net {
    fn new(shards: u64) -> Net {
        Net::of(SHARD, shards)
    }

    fn of(config: ShardConfig, shards: u64) -> Net {
        let memory = |index| block((index + 1) << 32, 7, config.table_len());
        let memories: Vec<Registered> = (0..shards).map(memory).collect();
        let shards = memories.iter().map(|memory| Shard::open(config, memory).unwrap()).collect();
        Net { memories, shards }
    }

    fn join(&mut self, name: u64) -> Peer {
        let grants = self.shards.iter_mut().map(|shard| shard.accept(name).unwrap()).collect();
        let mut answer = Answer::default();
        let listen = |shard: &Shard| shard.listen(name, &mut answer).unwrap().unwrap();
        let callers = self.shards.iter().map(listen).collect();
        assert_eq!(answer.receives as usize, self.shards.len() * 6);
        let arena = block(1 << 40, 9, CONFIG.arena_len(SHARD.max_pair));
        let client = Client::new(CONFIG, grants, arena.clone()).unwrap();
        let posted = self.shards.iter().map(|_| VecDeque::with_capacity(64)).collect();
        Peer { client, callers, arena, queues: Queues { posted }, ended: Vec::new(), allocated: 0 }
    }

    /// Executes a client's next operation at a shard, to the extent of `how`. Returns false if there is
    /// none.
    fn step(&mut self, peer: &mut Peer, shard: usize, how: How) -> bool {
        let Some(posted) = peer.queues.posted[shard].pop_front() else { return false };
        let memory = &self.memories[shard];
        let mut bytes = vec![0; posted.sge.map_or(0, |sge| sge.len as usize)];
        let local = posted.sge.map_or(0, |sge| (sge.addr - peer.arena.addr) as usize);
        let call = match posted.operation {
            Operation::Read(from) => {
                memory.read((from.addr - memory.addr) as usize, &mut bytes);
                peer.arena.write(local, &bytes);
                None
            }
            Operation::WriteImm(destination, imm) => {
                peer.arena.read(local, &mut bytes);
                let len = if how == How::Half { bytes.len() / 2 } else { bytes.len() };
                memory.write((destination.addr - memory.addr) as usize, &bytes[..len]);
                Some((CompletionKind::ReceiveWriteImm, imm))
            }
            Operation::SendImm(imm) => Some((CompletionKind::Receive, imm)),
            other => panic!("{other:?}"),
        };
        if how == How::Whole {
            let completion = match call {
                None => completion(posted.id, CompletionKind::Read, None),
                Some((kind, imm)) => self.serve(peer, shard, kind, imm),
            };
            Net::complete(peer, shard, &completion);
        }
        true
    }

    /// Delivers a call to the shard's program, and returns the completion of its answer.
    fn serve(&mut self, peer: &mut Peer, shard: usize, kind: CompletionKind, imm: u32) -> WorkCompletion {
        let mut answer = Answer::default();
        let counted = allocation_counter::measure(|| {
            let asked = completion(0, kind, Some(imm));
            self.shards[shard].handle(&mut peer.callers[shard], &asked, &mut answer).unwrap();
        });
        peer.allocated += counted.count_total;
        assert_eq!(answer.receives, 1);
        completion(0, CompletionKind::Receive, Some(answer.imm.expect("an answer")))
    }

    fn complete(peer: &mut Peer, shard: usize, completion: &WorkCompletion) {
        let mut event = None;
        let Peer { client, queues, .. } = peer;
        let counted = allocation_counter::measure(|| {
            event = client.complete(shard, completion, queues).unwrap();
        });
        if let Some(Event::Ended { tx, outcome, round_trips, .. }) = event {
            peer.ended.push((tx, outcome, round_trips));
        }
        peer.allocated += counted.count_total;
    }

    /// Executes everything, and returns the outcome and round trips of the last transaction.
    fn run(&mut self, peer: &mut Peer) -> Option<(Outcome, u32)> {
        while (0..self.shards.len()).any(|shard| self.step(peer, shard, How::Whole)) {}
        peer.ended.pop().map(|(_, outcome, trips)| (outcome, trips))
    }

    fn read(&mut self, peer: &mut Peer, tx: Tx, key: &[u8]) -> Option<Vec<u8>> {
        let entry = peer.client.read(tx, key, &mut peer.queues).unwrap();
        self.run(peer);
        peer.client.value(tx, entry).expect("it is there").value().map(<[u8]>::to_vec)
    }

    fn commit(&mut self, peer: &mut Peer, tx: Tx) -> (Outcome, u32) {
        match peer.client.commit(tx, 0, &mut peer.queues).unwrap() {
            Some(Event::Ended { outcome, round_trips, .. }) => (outcome, round_trips),
            _ => self.run(peer).expect("it ends"),
        }
    }

    /// Writes these keys in one transaction.
    fn put(&mut self, peer: &mut Peer, keys: &[&[u8]], value: &[u8]) -> (Outcome, u32) {
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

fn completion(id: u64, kind: CompletionKind, imm: Option<u32>) -> WorkCompletion {
    WorkCompletion {
        id,
        status: Status::Success,
        kind,
        byte_len: 0,
        imm,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::Done,
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
    assert_eq!(net.commit(&mut peer, tx), (committed(), 3), "index, lock, update");
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), Some(b"one".to_vec()));
    assert_eq!(net.commit(&mut peer, tx), (committed(), 2), "index, object");
    let tx = peer.client.begin().unwrap();
    peer.client.read(tx, b"a", &mut peer.queues).unwrap();
    peer.client.write(tx, b"b", b"two", &mut peer.queues).unwrap();
    net.run(&mut peer);
    assert_eq!(net.commit(&mut peer, tx), (committed(), 5), "index, object, lock, validate, update");
    let tx = peer.client.begin().unwrap();
    peer.client.delete(tx, b"a", &mut peer.queues).unwrap();
    assert_eq!(net.commit(&mut peer, tx).0, committed());
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, b"a"), None);
    assert_eq!(net.read(&mut peer, tx, b"b"), Some(b"two".to_vec()));
    assert_eq!(
        net.commit(&mut peer, tx),
        (committed(), 5),
        "two reads one after the other, validated together"
    );
}

#[test]
fn at_its_bounds_it_says_so() {
    let mut net = Net::new(1);
    let mut peer = net.join(1);
    let tx = peer.client.begin().unwrap();
    let other = peer.client.begin().unwrap();
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
        assert_eq!(
            outcome,
            if full { Outcome::TableFull } else { committed() },
            "eight objects for nine keys"
        );
    }
    assert_eq!(net.shards[0].locked(), 0);
    assert!(net.shards[0].accept(1).is_none(), "the name is taken");
    assert!(net.shards[0].accept(2).is_some());
    assert!(net.shards[0].accept(3).is_none(), "two places");
}

#[test]
fn who_finds_a_lock_looks_again_and_gives_up_and_one_who_lost_its_version_aborts() {
    let mut net = Net::new(1);
    let mut one = net.join(1);
    let mut two = net.join(2);
    let tx = one.client.begin().unwrap();
    one.client.write(tx, b"a", b"1", &mut one.queues).unwrap();
    net.run(&mut one);
    let rival = two.client.begin().unwrap();
    assert_eq!(net.read(&mut two, rival, b"a"), None);
    assert_eq!(one.client.commit(tx, 0, &mut one.queues).unwrap(), None);
    assert!(net.step(&mut one, 0, How::Whole));
    assert_eq!(net.shards[0].locked(), 1);
    let blocked = two.client.begin().unwrap();
    two.client.read(blocked, b"a", &mut two.queues).unwrap();
    assert_eq!(net.run(&mut two), Some((Outcome::Aborted, 4)), "as often as it has patience");
    assert_eq!(net.run(&mut one).map(|ended| ended.0), Some(committed()));
    two.client.write(rival, b"a", b"2", &mut two.queues).unwrap();
    assert_eq!(net.commit(&mut two, rival), (Outcome::Aborted, 2), "another version is there");
    let pauses: Vec<u64> =
        (0..9).map(|attempts| two.client.retry_at(Instant(5), attempts).since(Instant(5))).collect();
    assert!(pauses[0] < 8_000 && pauses[8] > 100_000, "{pauses:?}");
}

/// Returns keys whose hash selects the first word of an index of `homes` words.
fn at_home(homes: u64) -> impl Iterator<Item = [u8; 4]> {
    (0_u32..).map(u32::to_le_bytes).filter(move |key| reduce(hash_of(key), homes) == 0)
}

#[test]
fn an_absent_key_that_comes_before_the_commit_is_not_what_was_read() {
    let alike: Vec<[u8; 4]> = at_home(SHARD.homes).take(3).collect();
    let [a, b, c] = [&alike[0][..], &alike[1][..], &alike[2][..]];
    // Cases: whether the absent key is written, and which key is inserted meanwhile. The other key may have
    // taken its index word.
    for (writes, comes) in [(false, b), (true, b), (false, c)] {
        let mut net = Net::new(1);
        let mut one = net.join(1);
        let mut two = net.join(2);
        let tx = one.client.begin().unwrap();
        assert_eq!(net.read(&mut one, tx, b), None);
        let written = if writes { b } else { a };
        one.client.write(tx, written, b"2", &mut one.queues).unwrap();
        net.run(&mut one);
        assert_eq!(net.put(&mut two, &[comes], b"1").0, committed());
        assert_eq!(net.commit(&mut one, tx).0, Outcome::Aborted, "it has read that b is absent");
        assert_eq!(net.shards[0].locked(), 0, "its lock of a is given back");
    }
}

#[test]
fn keys_that_meet_in_the_index_lie_behind_each_other_as_far_as_they_may() {
    let config = ShardConfig { homes: 20, reach: 10, keys: 12, ..SHARD };
    let mut net = Net::of(config, 1);
    let mut peer = net.join(1);
    let alike: Vec<[u8; 4]> = at_home(20).take(11).collect();
    for key in &alike[..10] {
        assert_eq!(net.put(&mut peer, &[key], key).0, committed());
    }
    assert_eq!(net.put(&mut peer, &[&alike[10]], b"").0, Outcome::TableFull, "ten words for eleven keys");
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.read(&mut peer, tx, &alike[9]), Some(alike[9].to_vec()), "two READs of the index");
    assert_eq!(net.read(&mut peer, tx, &alike[10]), None);
    assert_eq!(net.commit(&mut peer, tx).0, committed());
}

#[test]
fn keys_of_which_the_index_says_the_same_are_told_apart() {
    let mut seen = std::collections::HashMap::new();
    let same = |key: [u8; 4]| {
        let hash = hash_of(&key);
        seen.insert((hash as u32, reduce(hash, 2)), key).map(|other| [other, key])
    };
    let [a, b] = (0_u32..).map(u32::to_le_bytes).find_map(same).expect("two of some hundred thousand");
    let mut net = Net::of(ShardConfig { homes: 2, reach: 2, ..SHARD }, 1);
    let mut peer = net.join(1);
    let tx = peer.client.begin().unwrap();
    assert_eq!(net.put(&mut peer, &[&a], b"a").0, committed());
    assert_eq!(net.read(&mut peer, tx, &b), None);
    assert_eq!(net.put(&mut peer, &[&b], b"b").0, committed());
    for (key, value) in [(a, b"a"), (b, b"b")] {
        let tx = peer.client.begin().unwrap();
        assert_eq!(net.read(&mut peer, tx, &key), Some(value.to_vec()));
        peer.client.abort(tx).unwrap();
    }
}

#[test]
fn a_client_that_dies_anywhere_leaves_all_or_nothing() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut happened = 0;
    let mut did_not = 0;
    // A number of operations at one shard, then at the other; then one that is interrupted.
    for (first, second, how) in
        (0..600).map(|n| (n / 30, n / 3 % 10, [None, Some(How::Half), Some(How::Unserved)][n % 3]))
    {
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
                _ = net.step(&mut dead, order[0], How::Whole) || net.step(&mut dead, order[1], How::Whole)
            });
            (0..second).for_each(|_| _ = net.step(&mut dead, order[1], How::Whole));
            if let Some(how) = how {
                net.step(&mut dead, order[0], how);
            }
            let outcome = dead.ended.pop();
            // The shards restart, and the recovery of the client is interrupted once.
            net.shards = net.memories.iter().map(|memory| Shard::open(SHARD, memory).unwrap()).collect();
            let decided: Vec<u64> = net.shards.iter().flat_map(|shard| shard.decided(1)).collect();
            net.shards[order[0]].settle(1, &decided);
            net.recover(1);
            assert!(net.shards.iter().all(|shard| shard.locked() == 0 && shard.names().count() == 0));
            let mut other = net.join(2);
            let tx = other.client.begin().unwrap();
            let values = keys.map(|key| net.read(&mut other, tx, key).expect("a value"));
            assert!(
                values.iter().all(|value| *value == values[0]),
                "half of it: {first} {second} {how:?} {order:?}"
            );
            let new = values[0] == b"new value";
            assert!(outcome.is_none() || new, "the client has reported a commit");
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
        // The client locks, as the first transaction of this place did, which went on to write.
        let tx = peer.client.begin().unwrap();
        peer.client.write(tx, b"a", b"2", &mut peer.queues).unwrap();
        net.run(&mut peer);
        peer.client.commit(tx, 0, &mut peer.queues).unwrap();
        assert!(!net.shards[0].is_untouched(name), "it had locks");
        assert!(net.step(&mut peer, 0, How::Whole));
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
    for round in 0..50 {
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
        assert_eq!(net.commit(&mut peer, tx), (committed(), if round == 0 { 4 } else { 5 }));
    }
    assert_eq!(peer.allocated, 0);
}

#[test]
fn a_shard_believes_no_client_more_than_it_must() {
    let mut net = Net::new(1);
    let mut peer = net.join(1);
    assert_eq!(net.put(&mut peer, &[b"a"], b"1").0, committed());
    let mut asks = |net: &mut Net, imm: Option<u32>, entry: &[u8]| {
        let log = net.shards[0].config.log_at(1, 0);
        net.memories[0].write(log, entry);
        let asked = completion(0, CompletionKind::ReceiveWriteImm, imm);
        net.shards[0].handle(&mut peer.callers[0], &asked, &mut Answer::default())
    };
    let entry = |object: u64, key_len: u32| {
        let words =
            [&7_u64.to_le_bytes()[..], &object.to_le_bytes(), &2_u64.to_le_bytes(), &key_len.to_le_bytes()];
        words.concat()
    };
    let lock = 1 << 28;
    assert!(asks(&mut net, None, &[]).is_err() && asks(&mut net, Some(9 << 28), &[]).is_err());
    assert!(asks(&mut net, Some(lock | 6), &[]).is_err(), "an entry of nobody's log");
    assert!(asks(&mut net, Some(lock), &entry(8, 1)).is_err(), "an object that cannot be");
    assert!(asks(&mut net, Some(lock), &entry(0, 41)).is_err(), "a key without end");
    assert!(asks(&mut net, Some(lock), &[0; 32]).is_err(), "a transaction without number");
    assert!(asks(&mut net, Some(lock), &entry(0, 1)).is_ok());
    assert_eq!(net.shards[0].locked(), 1);
    // The client has overwritten its log by then.
    for object in [8, 1, u64::MAX] {
        assert!(asks(&mut net, Some(2 << 28), &entry(object, u32::MAX - 1)).is_ok());
    }
    assert_eq!(net.shards[0].locked(), 1, "locked it stays, until the client is gone");
    net.recover(1);
    assert_eq!(net.shards[0].locked(), 1);
}
