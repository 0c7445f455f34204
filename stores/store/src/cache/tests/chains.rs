//! Tests of the buckets, read as a chain does by two READs: the result must be the answer of the protocol.

use super::{NOON, TestClient, config};
use crate::Registered;
use crate::cache::{Buckets, Cache, Config, Item, MIN_MEMORY};
use crate::random::Random;
use remora_memory::{Bytes, Key};
use remora_transport::Instant;

/// Addresses of values and buckets for a chain.
const VALUES: u64 = 1 << 40;
const BUCKETS: u64 = 1 << 41;

/// A cache, and the memory that chains read.
struct Shown {
    talk: TestClient,
    values: Bytes,
    buckets: Bytes,
}

impl Shown {
    fn new(items: u32) -> Shown {
        let (values, buckets) =
            (Bytes::heap(MIN_MEMORY).unwrap(), Bytes::heap(Buckets::memory(items)).unwrap());
        let registered = |bytes: &Bytes, addr| Registered { bytes: bytes.clone(), addr, key: Key::new(1) };
        let config = Config { hash_seed: 3, ..config(items) };
        let cache = Cache::new(config, registered(&values, VALUES), Instant(NOON * 1_000_000_000));
        let talk = TestClient::to(cache.shown_in(registered(&buckets, BUCKETS)));
        Shown { talk, values, buckets }
    }

    /// The steps of `cache.chain`: it reads and compares both buckets, and answers with the one that matches.
    fn chain(&self, ask: &[u8]) -> Vec<u8> {
        let mut item = Vec::new();
        let mut checked = vec![0; 32];
        let word =
            |bytes: &[u8], offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
        for offset in [0, 16] {
            let mut bucket = [0; 56];
            self.buckets.read((word(ask, offset) - BUCKETS) as usize, &mut bucket).expect("a bucket");
            if bucket[..8] == ask[offset + 8..offset + 16] {
                item = vec![0; word(&bucket, 16) as usize];
                self.values.read((word(&bucket, 8) - VALUES) as usize, &mut item).expect("a value");
                checked = bucket[24..].to_vec();
            }
        }
        [item, checked].concat()
    }

    /// Returns the result of the chain in the format of `get`.
    fn by_chain(&self, key: &str) -> Option<String> {
        let answer = self.chain(&self.talk.cache.directory().unwrap().ask(key.as_bytes()));
        let item = Item::of(&answer, key.as_bytes(), self.talk.now)?;
        let flags = item.flags;
        let value = String::from_utf8_lossy(item.value);
        Some(format!("VALUE {key} {flags} {}\r\n{value}\r\nEND\r\n", item.value.len()))
    }

    fn by_protocol(&mut self, key: &str) -> Option<String> {
        Some(self.talk.tell(format!("get {key}\r\n"))).filter(|answer| answer != "END\r\n")
    }
}

#[test]
fn what_a_chain_finds_is_what_the_protocol_answers() {
    let mut hits = 0;
    let mut missed = 0;
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let mut shown = Shown::new(400);
        for step in 0..3000 {
            let key = format!("key{}", random.below(600));
            let len = random.below(60) + if random.below(20) == 0 { 20_000 } else { 0 };
            let value = char::from(b'a' + (step % 26) as u8).to_string().repeat(len as usize);
            let expiry = [0, 0, 5, 100][random.below(4) as usize];
            let stores = format!("{key} {step} {expiry} {len}\r\n{value}\r\n");
            match random.below(40) {
                0..20 => _ = shown.talk.tell(format!("set {stores}")),
                20 => _ = shown.talk.tell(format!("append {stores}")),
                21..24 => _ = shown.talk.tell(format!("delete {key}\r\n")),
                24..27 => _ = shown.talk.tell(format!("touch {key} {expiry}\r\n")),
                27 => _ = shown.talk.tell(format!("set {key} 1 0 2\r\n41\r\nincr {key} 1\r\n")),
                28 if random.below(40) == 0 => _ = shown.talk.tell("flush_all\r\n"),
                29 if random.below(40) == 0 => _ = shown.talk.tell("flush_all 3\r\n"),
                30..33 => shown.talk.pass(1),
                _ => {
                    let chain = shown.by_chain(&key);
                    let protocol = shown.by_protocol(&key);
                    if chain.is_some() {
                        assert_eq!(chain, protocol, "{key}, seed {seed}, step {step}");
                        hits += 1;
                    } else {
                        missed += u64::from(protocol.is_some());
                    }
                }
            }
        }
    }
    // After a delayed flush was announced, a chain may find nothing although an item exists.
    assert!(hits > 3000 && missed * 50 < hits, "{hits} found, {missed} not");
}

#[test]
fn all_items_of_a_full_cache_have_their_bucket() {
    let mut shown = Shown::new(1000);
    let key = |number: u64| format!("key{number}");
    for number in 0..1000 {
        shown.talk.tell(format!("set {} 7 0 3\r\nabc\r\n", key(number)));
    }
    let there = (0..1000).filter(|number| shown.by_chain(&key(*number)).is_some()).count();
    assert!(there > 990, "{there} of 1000 after moving others");
}

#[test]
fn what_a_chain_read_while_it_changed_is_not_taken_for_the_value() {
    let mut shown = Shown::new(100);
    shown.talk.tell("set colour 7 10 7\r\ncrimson\r\n");
    let directory = shown.talk.cache.directory().unwrap();
    let answer = shown.chain(&directory.ask(b"colour"));
    let now = shown.talk.now;
    assert_eq!(Item::of(&answer, b"colour", now).map(|item| item.value), Some(&b"crimson"[..]));
    assert_eq!(Item::of(&answer, b"colous", now), None, "another key");
    assert_eq!(Item::of(&answer, b"colou", now), None, "a part of the key");
    assert_eq!(Item::of(&answer, b"colour", now.after(10_000_000_000)), None, "expired");
    // The expiry is not part of the digest, because the server may change it alone.
    let item = b"colourcrimson".len();
    let expiry = 8;
    for index in (0..answer.len()).filter(|index| !(item..item + expiry).contains(index)) {
        let mut torn = answer.clone();
        torn[index] ^= 1;
        assert_eq!(Item::of(&torn, b"colour", now), None, "byte {index}");
    }
    assert_eq!(Item::of(&answer[item..], b"colour", now), None, "no bucket had its tag");
    assert_eq!(Item::of(&answer[..20], b"colour", now), None, "less than what is always told");
}
