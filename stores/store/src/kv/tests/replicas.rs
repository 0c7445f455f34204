//! Tests of one client of two servers, whose reads complete in any order and may fail.

use crate::kv::farm::{self, Farm, FarmTable};
use crate::kv::{
    Client, ClientConfig, CommandSlots, Connection, Finished, Grant, Outcome, Post, PostError, Refused,
    Replicas, Server, ServerConfig, Slot,
};
use crate::region::Registered;
use crate::{Broken, PostPrism, Random};
use remora_memory::{Bytes, Key};
use remora_nic::{CompletionKind, Payload, ReceiveRequest, Sge, WorkCompletion, WorkRequest, prism};
use remora_transport::Status;
use std::collections::{BTreeMap, VecDeque};

const SHIFT: u32 = 56;
const WINDOW: u32 = 8;
const SEED: u64 = 99;

fn block(len: usize, key: u32) -> Registered {
    Registered { bytes: Bytes::heap(len).unwrap(), addr: 0, key: Key::new(key) }
}

fn completion(id: u64, status: Status, kind: CompletionKind, byte_len: u32) -> WorkCompletion {
    WorkCompletion {
        id,
        status,
        kind,
        byte_len,
        imm: None,
        invalidated: None,
        qp_num: 0,
        outcome: prism::Verdict::Done,
        src_qp: 0,
        grh: None,
    }
}

/// A posted read.
struct Read {
    id: u64,
    source: (u32, u64),
    landing: Sge,
}

/// A server, its memory, and its client's connection.
struct Place {
    server: Server<FarmTable>,
    connection: Connection,
    grant: Grant,
    /// Index, values, the server's messages, its staging, the client's memory: keys 1 to 5.
    blocks: [Registered; 5],
    /// Receive requests of the client and of the server.
    receives: [VecDeque<(u64, Sge)>; 2],
    /// True if this server answers nothing.
    silent: bool,
}

/// The requests that the client machines post.
#[derive(Default)]
struct Net {
    places: Vec<Place>,
    reads: Vec<Read>,
    calls: VecDeque<(usize, Vec<u8>)>,
    done: Vec<WorkCompletion>,
    posted: [u32; 2],
}

/// The requests that a server machine posts.
#[derive(Default)]
struct Answers {
    receives: Vec<(u64, Sge)>,
    sends: Vec<(u64, Vec<Sge>, bool)>,
}

impl Post for Answers {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Payload::Sges(sges) = request.payload else { panic!("elements") };
        self.sends.push((request.id, sges.to_vec(), request.flags.signaled));
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.receives.push((request.id, request.sges[0]));
        Ok(())
    }
}

impl Post for Net {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Payload::Sges([sge]) = request.payload else { panic!("one element") };
        let server = (request.id >> SHIFT) as usize;
        self.posted[server] += 1;
        match request.operation {
            remora_nic::Operation::Read(remote) => {
                assert!(request.flags.signaled, "each read has its own end");
                let source = (remote.rkey.get(), remote.addr);
                self.reads.push(Read { id: request.id, source, landing: *sge });
            }
            remora_nic::Operation::Send => {
                let mut message = vec![0; sge.len as usize];
                self.places[server].blocks[4].read(sge.addr as usize, &mut message);
                self.calls.push_back((server, message));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.places[(request.id >> SHIFT) as usize].receives[0].push_back((request.id, request.sges[0]));
        Ok(())
    }
}

impl PostPrism for Net {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }
}

impl Net {
    /// Completes a random read.
    fn end_a_read(&mut self, random: &mut Random, status: Status) -> bool {
        let answered = |read: &Read, places: &[Place]| !places[(read.id >> SHIFT) as usize].silent;
        let ready: Vec<usize> =
            (0..self.reads.len()).filter(|index| answered(&self.reads[*index], &self.places)).collect();
        if ready.is_empty() {
            return false;
        }
        let Read { id, source, landing } =
            self.reads.swap_remove(ready[random.below(ready.len() as u64) as usize]);
        let place = &self.places[(id >> SHIFT) as usize];
        if status == Status::Success {
            let mut bytes = vec![0; landing.len as usize];
            place.blocks[source.0 as usize - 1].read(source.1 as usize, &mut bytes);
            place.blocks[4].write(landing.addr as usize, &bytes);
        }
        self.done.push(completion(id, status, CompletionKind::Read, 0));
        true
    }

    /// Lets a server answer its first call.
    fn answer(&mut self) -> bool {
        let Some(index) = self.calls.iter().position(|(server, _)| !self.places[*server].silent) else {
            return false;
        };
        let (server, message) = self.calls.remove(index).unwrap();
        let place = &mut self.places[server];
        let (id, sge) = place.receives[1].pop_front().expect("the client keeps to its window");
        place.blocks[2].write(sge.addr as usize, &message);
        let mut answers = Answers::default();
        let came = completion(id, Status::Success, CompletionKind::Receive, message.len() as u32);
        place.server.handle(place.connection, &came, &mut answers).unwrap();
        for (id, sges, signaled) in std::mem::take(&mut answers.sends) {
            let [sge] = sges[..] else { panic!("one element") };
            let mut reply = vec![0; sge.len as usize];
            place.blocks[sge.lkey.get() as usize - 1].read(sge.addr as usize, &mut reply);
            let (to_id, target) = place.receives[0].pop_front().expect("a receive request");
            place.blocks[4].write(target.addr as usize, &reply);
            self.done.push(completion(to_id, Status::Success, CompletionKind::Receive, sge.len));
            if signaled {
                let sent = completion(id, Status::Success, CompletionKind::Send, 0);
                place.server.handle(place.connection, &sent, &mut answers).unwrap();
            }
        }
        place.receives[1].extend(answers.receives);
        true
    }
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Value(Vec<u8>),
    Done,
    Absent,
    Failed,
}

fn end(finished: &Finished<'_>) -> End {
    match finished.outcome {
        Outcome::Value(value) => End::Value(value.to_vec()),
        Outcome::Done => End::Done,
        Outcome::Absent => End::Absent,
        Outcome::Failed(_) => End::Failed,
        other => panic!("{other:?}"),
    }
}

struct World {
    machine: Replicas<Farm>,
    net: Net,
    random: Random,
    ended: BTreeMap<usize, End>,
}

fn config() -> ClientConfig {
    ClientConfig { window: WINDOW, max_key: 16, max_value: 300, ..ClientConfig::default() }
}

fn place(seed: u64) -> Place {
    let shape = farm::Config::for_keys(200, seed);
    let server_config =
        ServerConfig { connections: 1, max_key: 16, max_value: 300, ..ServerConfig::default() };
    let blocks = [
        block(shape.index_len(), 1),
        block(1 << 18, 2),
        block(server_config.local_len(), 3),
        block(server_config.staging_len(), 4),
        block(config().arena_len::<Farm>(), 5),
    ];
    let table = FarmTable::new(shape, blocks[0].clone(), blocks[1].clone());
    let mut server = Server::new(table, server_config, blocks[2].clone(), blocks[3].clone()).unwrap();
    let mut answers = Answers::default();
    let hello = config().hello::<Farm>(&blocks[4]);
    let (connection, grant) = server.accept(&hello, &mut answers).unwrap();
    let receives = [VecDeque::new(), answers.receives.into()];
    Place { server, connection, grant, blocks, receives, silent: false }
}

impl World {
    fn new() -> World {
        let net = Net { places: vec![place(SEED), place(SEED + 1)], ..Net::default() };
        let mut world = World {
            machine: Replicas::new(config(), 2),
            net,
            random: Random::new(SEED),
            ended: BTreeMap::new(),
        };
        world.attach(0);
        world.attach(1);
        world
    }

    fn attach(&mut self, server: usize) {
        let grant = self.net.places[server].grant;
        let arena = self.net.places[server].blocks[4].clone();
        let client: Client<Farm, CommandSlots> = Client::with_account(config(), &grant, arena).unwrap();
        self.machine.attach(server, &grant, client, &mut self.net).unwrap();
    }

    /// Delivers the completions in random order.
    fn take(&mut self) {
        while !self.net.done.is_empty() {
            let index = self.random.below(self.net.done.len() as u64) as usize;
            let one = self.net.done.swap_remove(index);
            if let Some(finished) = self.machine.complete(&one, &mut self.net).unwrap() {
                self.ended.insert(finished.slot.index(), end(&finished));
            }
        }
        self.machine.advance(&mut self.net);
        while let Some(finished) = self.machine.next_ended() {
            self.ended.insert(finished.slot.index(), end(&finished));
        }
    }

    /// Runs until nothing changes any more.
    fn settle(&mut self) {
        loop {
            self.take();
            let moved = match self.random.below(2) {
                0 => self.net.answer() || self.net.end_a_read(&mut self.random, Status::Success),
                _ => self.net.end_a_read(&mut self.random, Status::Success) || self.net.answer(),
            };
            if !moved {
                return self.take();
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> End {
        let slot = self.machine.put(key, value, &mut self.net).unwrap();
        self.settle();
        self.ended.remove(&slot.index()).expect("it has ended")
    }

    fn get(&mut self, key: &[u8]) -> Option<End> {
        let slot = self.begin(key);
        self.settle();
        self.ended.remove(&slot.index())
    }

    fn begin(&mut self, key: &[u8]) -> Slot {
        self.machine.get(key, &mut self.net).unwrap()
    }

    fn value_at(&mut self, server: usize, key: &[u8]) -> Option<End> {
        let other = 1 - server;
        self.machine.detach(other);
        let value = self.get(key);
        self.attach_after_all(other);
        value
    }

    /// Attaches a server that sees the client for the first time.
    fn attach_after_all(&mut self, server: usize) {
        let place = &mut self.net.places[server];
        place.server.disconnect(place.connection);
        let mut answers = Answers::default();
        let hello = config().hello::<Farm>(&place.blocks[4]);
        (place.connection, place.grant) = place.server.accept(&hello, &mut answers).unwrap();
        place.receives = [VecDeque::new(), answers.receives.into()];
        place.silent = false;
        self.attach(server);
    }
}

fn value(seed: u64) -> Vec<u8> {
    (0..seed % 300).map(|index| (index ^ seed) as u8).collect()
}

#[test]
fn a_window_of_operations_ends_right_in_whichever_order_its_reads_do() {
    let mut world = World::new();
    let mut stored: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut random = Random::new(7);
    for round in 0..400 {
        // The keys of one round differ, because concurrent operations on a key have no order.
        let mut asked: Vec<(Slot, u64, Option<u64>)> = Vec::new();
        for place in 0..u64::from(WINDOW) {
            let key = random.below(6) * u64::from(WINDOW) + place;
            let changed = (random.below(3) == 0).then_some(round * 31 + place);
            let name = key.to_le_bytes();
            let slot = match changed {
                Some(new) => world.machine.put(&name, &value(new), &mut world.net).unwrap(),
                None => world.begin(&name),
            };
            asked.push((slot, key, changed));
        }
        assert_eq!(world.machine.get(b"one more", &mut world.net), Err(Refused::WindowFull));
        world.settle();
        for (slot, key, changed) in asked {
            let ended = world.ended.remove(&slot.index()).expect("it has ended");
            let expected = match changed {
                Some(new) => {
                    stored.insert(key, value(new));
                    End::Done
                }
                None => stored.get(&key).map_or(End::Absent, |value| End::Value(value.clone())),
            };
            assert_eq!(ended, expected, "round {round}, key {key}");
        }
    }
    assert_eq!(world.machine.in_flight(), 0);
}

#[test]
fn a_put_is_at_both_servers_and_a_get_asks_one() {
    let mut world = World::new();
    assert_eq!(world.put(b"key", b"value"), End::Done);
    world.net.posted = [0; 2];
    assert_eq!(world.get(b"key"), Some(End::Value(b"value".to_vec())));
    assert_eq!(world.net.posted, [2, 0], "two reads of the first one");
    for server in [0, 1] {
        assert_eq!(world.value_at(server, b"key"), Some(End::Value(b"value".to_vec())), "server {server}");
    }
    let slot = world.machine.delete(b"key", &mut world.net).unwrap();
    world.settle();
    assert_eq!(world.ended.remove(&slot.index()), Some(End::Done));
    assert_eq!(world.value_at(1, b"key"), Some(End::Absent));
}

#[test]
fn a_failed_read_moves_its_get_and_no_other_and_the_server_is_resumed() {
    let mut world = World::new();
    world.put(b"key", b"value");
    let slots = [world.begin(b"key"), world.begin(b"key")];
    assert!(world.net.end_a_read(&mut world.random, Status::RemoteAccess));
    world.take();
    assert_eq!(world.machine.failed(0), Some(Status::RemoteAccess));
    assert_eq!(world.machine.readable().collect::<Vec<_>>(), [1]);
    assert!(world.ended.is_empty() && world.machine.in_flight() == 2);
    world.net.posted = [0; 2];
    world.settle();
    for slot in slots {
        assert_eq!(world.ended.remove(&slot.index()), Some(End::Value(b"value".to_vec())));
    }
    assert_eq!(
        world.net.posted,
        [1, 1],
        "the one goes on where it was, the other one's object comes from there"
    );
    world.machine.resume(0);
    world.net.posted = [0; 2];
    assert_eq!(world.get(b"key"), Some(End::Value(b"value".to_vec())));
    assert_eq!(world.net.posted, [2, 0], "it is the first one again");
}

#[test]
fn a_get_waits_while_no_server_is_readable_and_goes_on_when_one_is() {
    let mut world = World::new();
    world.put(b"key", b"value");
    world.machine.detach(1);
    let slot = world.begin(b"key");
    assert!(world.net.end_a_read(&mut world.random, Status::RemoteAccess));
    world.settle();
    assert!(world.ended.is_empty(), "{:?}", world.ended);
    world.machine.resume(0);
    world.settle();
    assert_eq!(world.ended.remove(&slot.index()), Some(End::Value(b"value".to_vec())));
}

#[test]
fn what_is_under_way_when_a_connection_ends_goes_on_elsewhere_or_is_told() {
    let mut world = World::new();
    world.put(b"key", b"value");
    let get = world.begin(b"key");
    world.net.places[0].silent = true;
    let put = world.machine.put(b"key", b"newer", &mut world.net).unwrap();
    world.settle();
    assert!(world.ended.is_empty(), "both wait for the first server");
    world.machine.detach(0);
    world.settle();
    assert_eq!(world.ended.remove(&get.index()), Some(End::Value(b"newer".to_vec())));
    assert_eq!(world.ended.remove(&put.index()), Some(End::Done), "the second one has it");
    // Late completions of the first connection are ignored.
    world.net.places[0].silent = false;
    world.net.reads.clear();
    world.net.calls.clear();
    world.net.places[1].silent = true;
    let put = world.machine.put(b"key", b"newest", &mut world.net).unwrap();
    world.machine.detach(1);
    world.take();
    assert_eq!(world.ended.remove(&put.index()), Some(End::Failed), "it may be done or not");
    let gone = Refused::Broken(Broken::Completion(Status::RetryExceeded));
    assert_eq!(world.machine.get(b"key", &mut world.net), Err(gone));
}

#[test]
fn a_server_that_missed_a_put_or_has_another_table_gets_no_gets() {
    let mut world = World::new();
    world.put(b"key", b"value");
    world.machine.detach(0);
    world.attach_after_all(0);
    assert_eq!(world.machine.readable().collect::<Vec<_>>(), [0, 1], "it missed nothing");
    world.machine.detach(0);
    assert_eq!(world.put(b"key", b"newer"), End::Done);
    world.attach_after_all(0);
    assert_eq!(world.machine.readable().collect::<Vec<_>>(), [1], "it missed one");
    assert_eq!(world.get(b"key"), Some(End::Value(b"newer".to_vec())));
    world.net.posted = [0; 2];
    world.put(b"other", b"value");
    assert_eq!(world.net.posted, [1, 1], "and gets the next one");
    let mut world = World::new();
    world.machine.detach(1);
    world.net.places[1] = place(SEED + 2);
    world.attach(1);
    assert_eq!(world.machine.readable().collect::<Vec<_>>(), [0], "it began anew, and is empty");
}
