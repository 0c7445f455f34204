//! Tests that the shipped offloads answer each request like a plain table or list, without the CPU.

use remora_chain::offload::{BUCKET, LIST, OFFLOADS, ask, ask_list, ask_two, bucket, node, places};
use remora_chain::{Location, Machine, assemble};

const BUCKETS: u64 = 64;
const VALUES: u64 = 8192;
const VALUE: u64 = 256;

fn machine(name: &str) -> Machine {
    let text = OFFLOADS.iter().find(|(known, _)| *known == name).expect("it ships").1;
    let mut machine = Machine::load(assemble(text).unwrap()).unwrap();
    machine.start();
    machine.run(1000);
    assert_eq!(machine.failures(), []);
    machine
}

/// Returns the location and the address of a region.
fn region(machine: &Machine, name: &str) -> (Location, u64) {
    let place = machine.program().find(name).expect("the program has the region").0;
    (place, machine.numbers().address(place))
}

fn byte(key: u64, index: u64) -> u8 {
    (key.wrapping_mul(31) ^ index.wrapping_mul(7)) as u8
}

fn value(key: u64, len: u64) -> Vec<u8> {
    (0..len).map(|index| byte(key, index)).collect()
}

/// Sends a request and runs the chain. Returns the answer and the number of executed work requests.
fn call(machine: &mut Machine, message: &[u8]) -> (Option<Vec<u8>>, u64) {
    let port = machine.program().queue("port").unwrap();
    let before = machine.executed();
    assert!(machine.send(port, message));
    machine.run(10_000);
    assert_eq!(machine.failures(), []);
    let answer = machine.answer(port).expect("the chain sent an answer");
    assert_eq!(machine.answer(port), None, "the chain sends one answer per request");
    assert_eq!(answer.message, None, "the answer is in the client's buffer");
    let value = machine.read(region(machine, "reply").0, answer.len as usize).unwrap();
    (Some(value).filter(|value| !value.is_empty()), machine.executed() - before)
}

/// Fills a table with keys 1 to `keys`, each in one of its two buckets if one is free.
fn fill(machine: &mut Machine, keys: u64, ways: usize) -> Vec<Option<u64>> {
    let (table, address) = region(machine, "table");
    let mut taken = [false; BUCKETS as usize];
    let mut lengths = vec![None; keys as usize + 1];
    for place in 0..BUCKETS {
        assert!(machine.write(table + place * BUCKET, &bucket(0, 0, 0)));
    }
    for key in 1..=keys {
        let free = places(key, BUCKETS)[..ways].iter().copied().find(|place| !taken[*place as usize]);
        let Some(place) = free else { continue };
        taken[place as usize] = true;
        let offset = VALUES + key * VALUE;
        let len = 1 + key * 5 % VALUE;
        let bytes = bucket(key, address + offset, len);
        assert!(
            machine.write(table + place * BUCKET, &bytes) && machine.write(table + offset, &value(key, len))
        );
        lengths[key as usize] = Some(len);
    }
    lengths
}

#[test]
fn get_finds_what_a_plain_table_holds() {
    let mut machine = machine("get");
    let lengths = fill(&mut machine, 100, 1);
    let address = region(&machine, "table").1;
    assert!(lengths.iter().flatten().count() > 30);
    for round in 0..3 {
        for key in 1..=100 {
            let place = address + places(key, BUCKETS)[0] * BUCKET;
            let (got, works) = call(&mut machine, &ask(place, key));
            assert_eq!(got, lengths[key as usize].map(|len| value(key, len)), "key {key}, round {round}");
            assert_eq!(works, 17, "its message, and what docs/reference/chains.md says");
        }
    }
}

#[test]
fn two_buckets_are_looked_at_side_by_side_and_one_behind_the_other() {
    for name in ["get-two-sequential", "get-two-parallel"] {
        let mut machine = machine(name);
        let lengths = fill(&mut machine, 100, 2);
        let address = region(&machine, "table").1;
        let second = |key: u64| places(key, BUCKETS)[1];
        assert!(lengths.iter().flatten().count() > 50);
        for key in (1..=100).chain((1..=100).rev()) {
            let addresses = places(key, BUCKETS).map(|place| address + place * BUCKET);
            let (got, works) = call(&mut machine, &ask_two(addresses, key));
            let most = if name == "get-two-parallel" { 25 } else { 17 };
            assert!(
                (most - 1..=most).contains(&works),
                "its message, and what docs/reference/chains.md says: {works}"
            );
            assert_eq!(
                got,
                lengths[key as usize].map(|len| value(key, len)),
                "{name}, key {key} {}",
                second(key)
            );
        }
    }
}

/// Fills a list of eight nodes and an empty node at the end. Returns its location and address.
fn list(machine: &mut Machine) -> (Location, u64) {
    let (list, address) = region(machine, "list");
    for index in 0..LIST as u64 {
        let key = 100 + index;
        let next = address + (index + 1) * BUCKET;
        let bytes = node(key, address + VALUES + index * VALUE, 64, next);
        assert!(machine.write(list + index * BUCKET, &bytes));
        assert!(machine.write(list + VALUES + index * VALUE, &value(key, 64)));
    }
    let end = LIST as u64 * BUCKET;
    assert!(machine.write(list + end, &node(0, 0, 0, address + end)));
    (list, address)
}

/// Existing and missing keys, each with the node at which the search starts and the expected result.
fn searches() -> impl Iterator<Item = (u64, u64, Option<Vec<u8>>)> {
    (95..115).chain(100..108).map(|key| {
        let start = key % 3;
        (key, start, (100 + start..108).contains(&key).then(|| value(key, 64)))
    })
}

#[test]
fn a_list_of_eight_is_searched_to_its_end() {
    let mut machine = machine("list");
    let address = list(&mut machine).1;
    for (key, start, expected) in searches() {
        let (got, works) = call(&mut machine, &ask_list(address + start * BUCKET, key));
        assert_eq!(got, expected, "key {key} from node {start}");
        assert_eq!(works, 74, "its message, and what docs/reference/chains.md says");
    }
}

#[test]
fn a_list_with_a_break_is_searched_no_further_than_the_key() {
    let mut machine = machine("list-break");
    let (_, address) = list(&mut machine);
    for (key, start, expected) in searches() {
        let (got, works) = call(&mut machine, &ask(address + start * BUCKET, key));
        let nodes = 1 + if expected.is_some() { key - 100 } else { LIST as u64 } - start;
        assert_eq!(got, expected, "key {key} from node {start}");
        // Six work requests per node and one to continue; the message, the answer, its completion, and the
        // reset.
        assert_eq!(works, 7 * nodes + 18, "key {key} from node {start}");
    }
    // Key 0 is the key of the empty node and is not valid.
    assert_eq!(call(&mut machine, &ask(address, 0)).0, None);
}

/// Tests the cache's program alone: it selects one of two buckets and answers with it. The server's tests
/// check the content of the buckets.
#[test]
fn the_caches_chain_answers_from_either_bucket_and_tells_what_is_to_be_checked() {
    let mut machine = machine("cache");
    let (buckets, address) = region(&machine, "buckets");
    let (values, lie) = region(&machine, "values");
    let port = machine.program().queue("port").unwrap();
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    assert!(machine.write(values, b"onetwo"));
    for (number, offset) in [(0, 0), (1, 3)] {
        let bucket = words(&[(41 + number) << 16, lie + offset, 3, 100 + number, 200 + number, 300, 400]);
        assert!(machine.write(buckets + 64 * number, &bucket));
    }
    for round in 0..3 {
        for (tag, expected) in [(41, Some("one")), (42, Some("two")), (43, None)] {
            assert!(machine.send(port, &words(&[address, tag << 16, address + 64, tag << 16])));
            machine.run(10_000);
            assert_eq!(machine.failures(), []);
            let len = machine.answer(port).expect("the chain sent an answer").len as usize;
            let answer = machine.read(region(&machine, "reply").0, len).unwrap();
            let (value, checked) = answer.split_at(len - 32);
            assert_eq!(value, expected.unwrap_or_default().as_bytes(), "round {round}");
            let index = tag - 41;
            if expected.is_some() {
                assert_eq!(checked, words(&[100 + index, 200 + index, 300, 400]), "round {round}");
            }
        }
    }
}
