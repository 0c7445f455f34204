//! Tests that the shipped offloads answer like a plain table and a plain list over links that lose,
//! duplicate and reorder packets.

use std::collections::BTreeMap;

use remora_chain::assemble;
use remora_chain::offload::{BUCKET, LIST, OFFLOADS, ask, ask_list, ask_two, bucket, node, places};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_fault::Random;
use remora_nic::{CompletionKind, Flags, Operation, Payload, ReceiveRequest, Status, WorkRequest};

use super::install::{Installed, serve};
use super::{SIGNALED, unruly};

const BUCKETS: u64 = 32;
const VALUES: u64 = 2048;
const VALUE: u64 = 4096;

/// A client and the server's memory.
struct Asked {
    world: World,
    client: QueuePair,
    cq: CompletionQueue,
    reply: Region,
    small: Region,
    table: Region,
    offload: Installed,
    late: bool,
}

impl Asked {
    /// Returns a world in which node 0 serves node 1 by a program whose region contains `memory`.
    fn new(seed: u64, name: &str, memory: &dyn Fn(u64) -> Vec<u8>) -> Asked {
        Asked::in_world(unruly(seed), seed % 2 == 1, name, memory)
    }

    /// Selects delayed or immediate acknowledgements of answers.
    fn in_world(mut world: World, late: bool, name: &str, memory: &dyn Fn(u64) -> Vec<u8>) -> Asked {
        let text = OFFLOADS.iter().find(|(known, _)| *known == name).expect("it ships").1;
        let program = assemble(text).unwrap();
        let table = world.register(0, 1 << 16, ALL);
        table.store(0, &memory(table.address));
        let reply = world.register(1, 1 << 16, ALL);
        let small = world.register(1, 4096, ALL);
        let given = if name.starts_with("list") { "list" } else { "table" };
        let regions = [(given, &table), ("reply", &reply)];
        let plain = Settings::default();
        let settings = if late { Settings { strom: true, timeout: 14, ..plain } } else { plain };
        let (client, cq, offload) = serve(&mut world, &program, &regions, &settings);
        Asked { world, client, cq, reply, small, table, offload, late }
    }

    fn ask(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.small.store(0, message);
        self.world.post_receive(self.client, &ReceiveRequest { id: 1, sges: &[] }).unwrap();
        let list = [self.small.sge(0, message.len())];
        let payload = Payload::Sges(&list);
        let flags = if self.late { Flags::default() } else { SIGNALED };
        let request = WorkRequest { id: 2, operation: Operation::Send, payload, flags };
        self.world.post(self.client, &request).unwrap();
        let mut ends = Vec::new();
        while ends.len() < 2 - usize::from(self.late) {
            assert!(self.world.step(), "an end of it");
            ends.extend(self.world.drain(self.cq));
        }
        assert!(ends.iter().all(|end| end.status == Status::Success), "{ends:?}");
        assert_eq!(self.offload.stray(), None, "a byte that the chain does not name has changed");
        let answer = ends.iter().find(|end| end.id == 1).unwrap();
        assert_eq!(answer.kind, CompletionKind::ReceiveWriteImm);
        Some(self.reply.load(0, answer.byte_len as usize)).filter(|value| !value.is_empty())
    }
}

fn put(bytes: &mut [u8], place: u64, bucket: &[u8]) {
    bytes[(place * BUCKET) as usize..][..BUCKET as usize].copy_from_slice(bucket);
}

/// Returns a table by key, the offset of its buckets, and its bytes.
fn table(random: &mut Random, ways: usize, address: u64) -> (BTreeMap<u64, Vec<u8>>, Vec<u8>) {
    let mut keys = BTreeMap::new();
    let mut bytes = vec![0; 1 << 16];
    let mut taken = [false; BUCKETS as usize];
    (0..BUCKETS).for_each(|place| put(&mut bytes, place, &bucket(0, 0, 0)));
    let mut next = VALUES;
    for _ in 0..12 {
        let key = 1 + random.below(1 << 47);
        let places = places(key, BUCKETS);
        let Some(place) = places[..ways].iter().find(|place| !taken[**place as usize]) else { continue };
        taken[*place as usize] = true;
        let value: Vec<u8> = (0..1 + random.below(VALUE)).map(|_| random.below(256) as u8).collect();
        put(&mut bytes, *place, &bucket(key, address + next, value.len() as u64));
        bytes[next as usize..next as usize + value.len()].copy_from_slice(&value);
        next += VALUE;
        keys.insert(key, value);
    }
    (keys, bytes)
}

fn gets(seed: u64, name: &str, ways: usize) {
    let mut random = Random::new(seed);
    let first = random.below(1 << 30);
    let keys = table(&mut Random::new(first), ways, 0).0;
    let mut asked = Asked::new(seed, name, &|address| table(&mut Random::new(first), ways, address).1);
    let base = asked.table.address;
    for _ in 0..6 {
        let held = keys.keys().nth(random.below(keys.len() as u64) as usize).copied();
        let key = if random.below(3) == 0 { 1 + random.below(1 << 47) } else { held.unwrap_or(1) };
        let addresses = places(key, BUCKETS).map(|place| base + place * BUCKET);
        let message = if ways == 1 { ask(addresses[0], key) } else { ask_two(addresses, key) };
        assert!(asked.ask(&message) == keys.get(&key).cloned(), "{name}, key {key}, seed {seed}");
    }
}

#[test]
fn hash_gets_are_those_of_a_plain_table_whatever_the_network_does() {
    for seed in 0..120 {
        let (name, ways) =
            [("get", 1), ("get-two-sequential", 2), ("get-two-parallel", 2)][seed as usize % 3];
        gets(seed, name, ways);
    }
}

#[test]
fn a_list_is_searched_as_a_plain_one_is_whatever_the_network_does() {
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let keys: Vec<u64> =
            (0..LIST).map(|index| 1 + (index as u64) + 100 * random.below(1 << 40)).collect();
        let nodes = |address: u64| {
            let mut bytes = vec![0; 1 << 16];
            for place in 0..=LIST {
                let next = address + (place as u64 + 1).min(LIST as u64) * BUCKET;
                let key = keys.get(place).copied().unwrap_or(0);
                let value = address + VALUES + place as u64 * VALUE;
                let node = if key == 0 { node(0, 0, 0, next) } else { node(key, value, 64, next) };
                bytes[place * BUCKET as usize..][..BUCKET as usize].copy_from_slice(&node);
                bytes[(VALUES + place as u64 * VALUE) as usize..][..64].fill(place as u8 + 1);
            }
            bytes
        };
        let name = ["list", "list-break"][seed as usize % 2];
        let mut asked = Asked::new(seed, name, &nodes);
        let first = asked.table.address;
        for _ in 0..4 {
            let place = random.below(LIST as u64 + 2) as usize;
            let key = keys.get(place).copied().unwrap_or(1 << 47);
            let expected = keys.contains(&key).then(|| vec![place as u8 + 1; 64]);
            let message = if name == "list" { ask_list(first, key) } else { ask(first, key) };
            assert_eq!(asked.ask(&message), expected, "{name}, node {place}, seed {seed}");
        }
    }
}

#[test]
fn a_get_is_a_frame_each_way_where_what_is_answered_is_acknowledged_late() {
    let frames = |late: bool| {
        let keys = table(&mut Random::new(1), 1, 0).0;
        let memory = |address: u64| table(&mut Random::new(1), 1, address).1;
        let mut asked = Asked::in_world(World::new(&Config::default()), late, "get", &memory);
        let base = asked.table.address;
        asked.world.tap();
        for number in 0..256 {
            let (key, value) = keys.iter().nth(number % keys.len()).unwrap();
            assert_eq!(asked.ask(&ask(base + places(*key, BUCKETS)[0] * BUCKET, *key)).as_ref(), Some(value));
        }
        assert!(asked.world.settle(1_000_000), "and all is acknowledged in the end");
        asked.world.sent().len()
    };
    let at_once = frames(false);
    let late = frames(true);
    // One in 16 answers and one in 32 messages requests an ACK, and one more may be requested in each
    // direction at the end.
    let acknowledged = late - (at_once - 2 * 256);
    assert!(acknowledged <= 16 + 8 + 2, "{acknowledged} of {late} are acknowledgements");
}
