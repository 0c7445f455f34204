//! PRISM-KV with one operation at a time: the cost of each operation, lengths, bounds, and corrupted memory.

use remora_fabric::{Config, Sent, Settings, World, forge};
use remora_fault::Random;
use remora_nic::Status;
use remora_store::Registered;
use remora_store::kv::prism::{
    Client, ClientConfig, Config as TableConfig, Grant, HEADER, Loader, PrismTable, SLOT,
};
use remora_store::kv::{Operation, Outcome, Refusal, Refused};

use remora_wire::Opcode;

use crate::harness::{Endpoint, Host, Link, Shape, arena};

const SERVER: usize = 2;
const LONGEST: u32 = 1 << 20;

pub(crate) struct Alone {
    pub world: World,
    pub host: Host<PrismTable>,
    pub table: TableConfig,
}

/// A client of the store.
pub(crate) struct Program {
    pub client: Client,
    link: Link,
}

/// Value or outcome of an operation, and its number of round trips.
pub(crate) type Ended = (Result<Vec<u8>, Outcome<'static>>, u32);

const CONFIG: ClientConfig =
    ClientConfig { window: 1, max_key: 300, max_value: LONGEST, first_read: 512, known: 64 };

impl Alone {
    fn new(slots: u64, classes: Vec<(u32, u32)>) -> Alone {
        Alone::growing(slots, 1, classes)
    }

    /// Creates a store with at most `tables` tables.
    pub(crate) fn growing(slots: u64, tables: u32, classes: Vec<(u32, u32)>) -> Alone {
        let table = TableConfig { slots, tables, hash_seed: 9, max_key: 300, max_value: LONGEST };
        let mut world = World::new(&Config { nodes: SERVER + 1, ..Config::default() });
        let shape = Shape { table_len: table.table_len(), classes, peers: 8 };
        let host = Host::open(&mut world, SERVER, shape, |memory| PrismTable::new(table, memory.clone()));
        Alone { world, host, table }
    }

    pub(crate) fn join(&mut self, node: usize) -> Program {
        let grant = self.host.table.grant(self.host.keeper.classes());
        self.join_by(node, &grant)
    }

    fn join_by(&mut self, node: usize, grant: &Grant) -> Program {
        let settings = Settings { prism: true, send_slots: CONFIG.needs().send, ..Settings::default() };
        let link = self.host.accept(&mut self.world, node, &settings).expect("space for it");
        let arena = arena(&mut self.world, node, CONFIG.arena_len());
        let mut client = Client::new(CONFIG, grant, arena).unwrap();
        client.start(&mut Endpoint { world: &mut self.world, qp: link.qp }).unwrap();
        Program { client, link }
    }

    fn begin(
        &mut self,
        program: &mut Program,
        operation: Operation,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Refused> {
        let nic = &mut Endpoint { world: &mut self.world, qp: program.link.qp };
        let started = match operation {
            Operation::Get => program.client.get(key, nic),
            Operation::Put => program.client.put(key, value, nic),
            Operation::Delete => program.client.delete(key, nic),
            Operation::List => unreachable!("these clients list nothing"),
        };
        started.map(|_| ())
    }

    /// Runs until the operation has ended and everything is quiet.
    fn end(&mut self, program: &mut Program) -> Ended {
        let mut ended = None;
        for _ in 0..2_000 {
            self.host.turn(&mut self.world);
            while let Some(completion) = program.link.poll(&mut self.world) {
                let nic = &mut Endpoint { world: &mut self.world, qp: program.link.qp };
                match program.client.complete(&completion, nic) {
                    Ok(Some(finished)) => {
                        let end = match finished.outcome {
                            Outcome::Value(value) => Ok(value.to_vec()),
                            outcome => Err(own(outcome)),
                        };
                        ended = Some((end, finished.round_trips));
                    }
                    Ok(None) => {}
                    Err(_) => {
                        let finished = program.client.abandon();
                        return finished.map_or((Err(Outcome::Absent), 0), |end| {
                            (Err(own(end.outcome)), end.round_trips)
                        });
                    }
                }
            }
            self.world.run_for(1_000);
            if ended.is_some() && self.world.settle(1_000) {
                break;
            }
        }
        self.host.turn(&mut self.world);
        ended.expect("an end")
    }

    pub(crate) fn get(&mut self, program: &mut Program, key: &[u8]) -> Ended {
        self.begin(program, Operation::Get, key, &[]).unwrap();
        self.end(program)
    }

    pub(crate) fn put(&mut self, program: &mut Program, key: &[u8], value: &[u8]) -> Ended {
        self.begin(program, Operation::Put, key, value).unwrap();
        self.end(program)
    }

    pub(crate) fn delete(&mut self, program: &mut Program, key: &[u8]) -> Ended {
        self.begin(program, Operation::Delete, key, &[]).unwrap();
        self.end(program)
    }
}

fn own(outcome: Outcome<'_>) -> Outcome<'static> {
    match outcome {
        Outcome::Value(_) => panic!("a value is taken before"),
        Outcome::Done => Outcome::Done,
        Outcome::Absent => Outcome::Absent,
        Outcome::Refused(refusal) => Outcome::Refused(refusal),
        Outcome::TooLong => Outcome::TooLong,
        Outcome::Contended => Outcome::Contended,
        Outcome::Failed(broken) => Outcome::Failed(broken),
    }
}

pub(crate) const DONE: Result<Vec<u8>, Outcome<'static>> = Err(Outcome::Done);
pub(crate) const ABSENT: Result<Vec<u8>, Outcome<'static>> = Err(Outcome::Absent);

pub(crate) fn found(value: &[u8]) -> Result<Vec<u8>, Outcome<'static>> {
    Ok(value.to_vec())
}

/// Runs an operation. Returns its result, and how often the client sent requests for it with answers of the
/// server in between.
fn watched<R>(alone: &mut Alone, client: usize, operation: impl FnOnce(&mut Alone) -> R) -> (R, usize) {
    alone.world.sent();
    let ended = operation(alone);
    let start = alone.world.start();
    let sent = alone.world.sent();
    // Messages with returned buffers are not requests of the operation, and neither are acknowledgements.
    let counts = |sent: &&Sent| {
        let opcode = forge::transport(start, &sent.bytes).expect("a packet").bth.opcode;
        ![Opcode::RC_SEND_ONLY, Opcode::RC_ACKNOWLEDGE].contains(&opcode)
    };
    let senders: Vec<usize> = sent.iter().filter(counts).map(|sent| sent.from).collect();
    let mine = senders.iter().enumerate();
    (
        ended,
        mine.filter(|(index, sender)| **sender == client && (*index == 0 || senders[index - 1] != client))
            .count(),
    )
}

#[test]
fn a_get_is_one_round_trip_and_a_put_two_or_one_if_the_slot_is_known() {
    let mut alone = Alone::new(64, vec![(128, 16)]);
    alone.world.tap();
    let mut one = alone.join(0);
    let mut other = alone.join(1);
    let mut each = |client: usize, operation, value: &[u8]| {
        let program = if client == 0 { &mut one } else { &mut other };
        let ((end, counted), seen) = watched(&mut alone, client, |alone| {
            alone.begin(program, operation, b"key", value).unwrap();
            alone.end(program)
        });
        assert_eq!(counted as usize, seen, "on the wire");
        (end, counted)
    };
    use Operation::{Delete, Get, Put};
    assert_eq!(each(0, Put, b"first"), (DONE, 2), "a new key");
    assert_eq!(each(0, Put, b"second"), (DONE, 1), "its slot is known");
    assert_eq!(each(0, Get, b""), (found(b"second"), 1));
    assert_eq!(each(1, Put, b"third"), (DONE, 2), "known to another only");
    // Another value in the slot than the expected one changes nothing, because the slot belongs to the key.
    assert_eq!(each(0, Put, b"fourth"), (DONE, 1));
    assert_eq!(each(1, Get, b""), (found(b"fourth"), 1));
    assert_eq!(each(1, Delete, b""), (DONE, 1));
    assert_eq!(each(1, Delete, b""), (ABSENT, 1));
    assert_eq!(each(0, Put, b"fifth"), (DONE, 3), "what was known is noticed to be so no more");
    assert_eq!(each(1, Delete, b""), (DONE, 2));
    assert_eq!(each(0, Get, b""), (ABSENT, 1));
    assert_eq!(each(0, Delete, b""), (ABSENT, 2));
}

#[test]
fn keys_and_values_of_all_lengths() {
    let mut alone = Alone::new(512, vec![(64, 40), (512, 40), (4096, 40), ((1 << 20) + 512, 3)]);
    let mut program = alone.join(0);
    let most = LONGEST as usize;
    let mut stored = Vec::new();
    for (number, len) in
        [0, 1, 37, 64 - HEADER - 3, 485, 486, 487, 4069, 4070, most, most - 1].into_iter().enumerate()
    {
        let value: Vec<u8> = (0..len).map(|byte| (byte * 7 + number) as u8).collect();
        // The first READ returns up to 512 bytes with header and key; longer ones need another READ.
        let key = format!("{number:03}");
        assert_eq!(alone.put(&mut program, key.as_bytes(), &value).0, DONE, "{len}");
        stored.push((key, value));
    }
    for (key, value) in &stored {
        let trips = if HEADER + 3 + value.len() > 512 { 2 } else { 1 };
        let (end, taken) = alone.get(&mut program, key.as_bytes());
        assert!(end == found(value) && taken == trips, "{} bytes, {taken} round trips", value.len());
    }
    for len in [0, 1, 299, 300] {
        let key = vec![b'k'; len];
        assert_eq!(alone.put(&mut program, &key, b"v").0, DONE);
        assert_eq!(alone.get(&mut program, &key), (found(b"v"), 1));
    }
    let too_long = alone.begin(&mut program, Operation::Put, &[b'k'; 301], b"");
    assert_eq!(too_long, Err(Refused::KeyTooLong));
    let too_long = alone.begin(&mut program, Operation::Put, b"k", &vec![0; most + 1]);
    assert_eq!(too_long, Err(Refused::ValueTooLong));
}

#[test]
fn without_a_buffer_a_put_is_refused_until_one_comes_back() {
    let mut alone = Alone::new(64, vec![(64, 3), (128, 1)]);
    let mut program = alone.join(0);
    let no_space = Err(Outcome::Refused(Refusal::NoSpace));
    for key in [b"a", b"b", b"c"] {
        assert_eq!(alone.put(&mut program, key, b"value").0, DONE);
    }
    assert_eq!(alone.put(&mut program, b"d", b"value").0, DONE, "a larger buffer holds it too");
    assert_eq!(alone.put(&mut program, b"a", b"other").0, no_space);
    assert_eq!(alone.get(&mut program, b"a").0, found(b"value"), "as it was");
    assert_eq!(alone.put(&mut program, b"e", &[1; 80]).0, no_space);
    assert_eq!(alone.get(&mut program, b"e").0, ABSENT);
    assert_eq!(alone.delete(&mut program, b"d").0, DONE);
    assert_eq!(alone.put(&mut program, b"e", &[1; 80]).0, DONE, "the larger one came back");
    assert_eq!(alone.delete(&mut program, b"b").0, DONE, "takes none");
    assert_eq!(alone.put(&mut program, b"a", b"other").0, DONE);
    assert_eq!(alone.get(&mut program, b"a").0, found(b"other"));
    let buffers = alone.host.buffers(&mut alone.world);
    assert_eq!((buffers.free, alone.host.live(), buffers.bad_posts), (1, 3, 0));
}

#[test]
fn slots_stay_with_their_keys_and_a_full_table_says_so() {
    let mut alone = Alone::new(4, vec![(64, 16)]);
    let mut program = alone.join(0);
    let keys = [b"a", b"b", b"c", b"d", b"e"];
    for key in &keys[..4] {
        assert_eq!(alone.put(&mut program, *key, *key).0, DONE);
    }
    let full = Err(Outcome::Refused(Refusal::TableFull));
    assert_eq!(alone.put(&mut program, keys[4], b"e").0, full);
    assert_eq!(alone.get(&mut program, keys[4]).0, ABSENT);
    assert_eq!(alone.delete(&mut program, keys[1]).0, DONE);
    assert_eq!(alone.put(&mut program, keys[4], b"e").0, full, "the slot is still another's");
    assert_eq!(alone.put(&mut program, keys[1], b"B").0, DONE);
    for (key, value) in keys.iter().zip([b"a", b"B", b"c", b"d"]) {
        assert_eq!(alone.get(&mut program, *key).0, found(value));
    }
}

#[test]
fn what_was_loaded_is_there_and_so_it_is_after_a_restart_with_memory() {
    let mut alone = Alone::new(400, vec![(64, 120)]);
    let table = alone.table;
    let memory = alone.host.memory.clone();
    alone.host.crash(&mut alone.world);
    let classes = alone.host.keeper.classes().clone();
    alone.host.restart(&mut alone.world, |memory| {
        let table = PrismTable::new(table, memory.clone());
        let mut loader = Loader::new(classes);
        for number in 0..100u32 {
            loader.put(&table, &number.to_le_bytes(), b"first").unwrap();
            loader.put(&table, &number.to_le_bytes(), &number.to_be_bytes()).unwrap();
        }
        assert_eq!(loader.put(&table, b"k", &[0; 64]), Err(Refusal::TooLong));
        for number in 0..20u64 {
            loader.put(&table, &number.to_le_bytes(), b"").unwrap();
        }
        assert_eq!((loader.put(&table, b"k", b""), loader.keys()), (Err(Refusal::NoSpace), 120));
        table
    });
    assert_eq!((alone.host.live(), alone.host.buffers(&mut alone.world).free), (120, 0));
    for _ in 0..2 {
        let mut program = alone.join(0);
        for number in 0..100u32 {
            let (end, _) = alone.get(&mut program, &number.to_le_bytes());
            assert_eq!(end, found(&number.to_be_bytes()), "{number}");
        }
        alone.host.crash(&mut alone.world);
        alone.host.restart(&mut alone.world, |memory| PrismTable::attach(table, memory.clone()));
    }
    assert_eq!(memory.bytes.len(), alone.host.memory.bytes.len());
}

/// Another key with the same hash. A test cannot find one, so an object is altered to look like one.
#[test]
fn of_two_keys_of_one_hash_the_second_is_refused() {
    let mut alone = Alone::new(8, vec![(64, 4)]);
    let mut program = alone.join(0);
    assert_eq!(alone.put(&mut program, b"key", b"value").0, DONE);
    let words = (0..8).map(|slot| alone.host.table.words(slot)).find(|words| words.generation == 1).unwrap();
    let offset = (words.pointer - alone.host.memory.addr) as usize + HEADER;
    alone.host.memory.bytes.write(offset, b"kez").unwrap();
    assert_eq!(alone.get(&mut program, b"key").0, ABSENT);
    assert_eq!(alone.delete(&mut program, b"key").0, DONE, "the slot is known to be the key's");
    alone.put(&mut program, b"key", b"value").0.unwrap_err();
    let mut other = alone.join(1);
    let words = (0..8).map(|slot| alone.host.table.words(slot)).find(|words| words.generation == 3).unwrap();
    let offset = (words.pointer - alone.host.memory.addr) as usize + HEADER;
    alone.host.memory.bytes.write(offset, b"kez").unwrap();
    assert_eq!(alone.put(&mut other, b"key", b"value").0, Err(Outcome::Refused(Refusal::TableFull)));
    assert_eq!(alone.delete(&mut other, b"key").0, ABSENT);
}

#[test]
fn no_bytes_in_the_servers_memory_make_a_client_panic() {
    let mut failed = 0;
    let mut ended = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut alone = Alone::new(4, vec![(64, 8), (512, 8)]);
        let mut program = alone.join(0);
        let memory: Registered = alone.host.memory.clone();
        for _ in 0..40 {
            lie(&mut random, &memory);
            let key = [random.below(3) as u8];
            let value = vec![7; random.below(400) as usize];
            let operation = [Operation::Get, Operation::Put, Operation::Delete][random.below(3) as usize];
            if alone.begin(&mut program, operation, &key, &value).is_ok() {
                ended += 1;
                let (end, _) = alone.end(&mut program);
                if !matches!(end, Err(Outcome::Failed(_))) {
                    continue;
                }
            }
            failed += 1;
            program.client.give_up(Status::RemoteAccess);
            program.link.end(&mut alone.world);
            alone.host.lose(&mut alone.world, &program.link);
            program = alone.join(0);
        }
    }
    println!("{ended} operations, {failed} connections");
    assert!(failed > 50 && ended > failed);
}

/// Changes some bytes of a slot or an object, or makes a slot point anywhere in memory.
fn lie(random: &mut Random, memory: &Registered) {
    let slots = 4 * SLOT as u64;
    match random.below(4) {
        0 => {
            let mut bytes = [0; 8];
            random.fill(&mut bytes);
            memory.bytes.write((random.below(slots / 8) * 8) as usize, &bytes).unwrap();
        }
        1 => {
            let bytes = [random.bits() as u8];
            memory.bytes.write(random.below(memory.bytes.len() as u64) as usize, &bytes).unwrap();
        }
        2 => {
            let target = memory.addr + random.below(memory.bytes.len() as u64);
            let words = [target.to_le_bytes(), random.below(600).to_le_bytes()].concat();
            memory.bytes.write(random.below(4) as usize * SLOT, &words).unwrap();
        }
        _ => {}
    }
}

#[test]
fn no_grant_makes_a_client_panic() {
    let mut alone = Alone::new(4, vec![(64, 8), (512, 8)]);
    let grant = alone.host.table.grant(alone.host.keeper.classes());
    let bytes = grant.encode();
    assert_eq!(Grant::decode(&bytes), Ok(grant));
    (0..bytes.len()).for_each(|len| assert!(Grant::decode(&bytes[..len]).is_err(), "{len} bytes"));
    let mut taken = 0;
    let mut random = Random::new(1);
    for round in 0..400 {
        if round % 10 == 0 {
            alone = Alone::new(4, vec![(64, 8), (512, 8)]);
        }
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(3) {
            let index = random.below(bytes.len() as u64) as usize;
            bytes[index] = random.bits() as u8;
        }
        let Ok(grant) = Grant::decode(&bytes) else { continue };
        taken += 1;
        let mut program = alone.join_by(0, &grant);
        for operation in [Operation::Put, Operation::Get, Operation::Delete] {
            if alone.begin(&mut program, operation, b"key", b"value").is_ok() {
                let _ = alone.end(&mut program);
            }
        }
        program.link.end(&mut alone.world);
        alone.host.lose(&mut alone.world, &program.link);
    }
    assert!(taken > 50, "{taken} of them looked like grants");
}
