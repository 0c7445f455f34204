//! The GET kernel, compared with a plain map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use remora_fabric::Settings;
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};
use remora_nic::kernel::{Get, Kernel, KernelInit, Lookup, Progress, Slot, Status, Streams};
use remora_wire::{Address, Endpoint, Ingress};

use crate::bench::{Answer, Bench, OPCODE, arms, bad_links};
use crate::seeds;

const SLOTS: u64 = 32;
const VALUES: usize = 1 << 14;

fn kernels(count: usize) -> Vec<Box<dyn Kernel>> {
    (0..count).map(|_| Box::new(Get::default()) as Box<dyn Kernel>).collect()
}

/// Fills a table with random buckets, some of them empty. Returns its contents.
fn fill(bench: &Bench, random: &mut Random) -> BTreeMap<u64, Vec<u8>> {
    let mut model = BTreeMap::new();
    let mut next = VALUES;
    for number in 0..SLOTS {
        let mut slot = Slot::default();
        for bucket in 0..3 {
            if random.below(4) == 0 {
                continue;
            }
            let key = number + SLOTS * random.below(8);
            let len = random.below(1500);
            let value: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            bench.there.store(next, &value);
            (slot.keys[bucket], slot.lens[bucket]) = (key, len as u32);
            slot.values[bucket] = bench.there.remote(next).addr;
            next += value.len().next_multiple_of(8);
            model.entry(key).or_insert(value);
        }
        bench.there.store(number as usize * Slot::LEN, &slot.emit());
    }
    model
}

fn seed(seed: u64, settings: &Settings) -> [u64; 3] {
    let mut bench = Bench::new(seed, settings);
    bench.deploy(kernels(2));
    let mut random = Random::new(seed);
    let model = fill(&bench, &mut random);
    bench.world.set_rules(&bad_links(seed), seed);
    let mut counts = [0; 3];
    for _ in 0..3 {
        let keys: Vec<u64> = (0..16).map(|_| random.below(SLOTS * 8)).collect();
        for (tag, key) in keys.iter().enumerate() {
            let slot = bench.there.remote((key % SLOTS) as usize * Slot::LEN).addr;
            bench.rpc(OPCODE, tag as u32, &Lookup { slot, key: *key }.emit());
        }
        let answers = bench.run();
        for (tag, key) in keys.iter().enumerate() {
            let wanted = match model.get(key) {
                Some(value) => Answer { status: Status::DONE, bytes: value.clone() },
                None => Answer { status: Status::MISS, bytes: Vec::new() },
            };
            assert_eq!(answers.get(&(tag as u32)), Some(&wanted), "seed {seed}, key {key}");
            counts[usize::from(wanted.status == Status::MISS)] += 1;
        }
        assert_eq!(answers.len(), keys.len());
    }
    assert!(bench.is_at_rest(0), "seed {seed}");
    counts[2] = bench.world.faults().dropped;
    counts
}

fn all_seeds(settings: &Settings) {
    let mut all = [0; 3];
    seeds::each(
        0..100,
        |number| seed(number, settings),
        |_, counts| {
            all.iter_mut().zip(counts).for_each(|(all, more)| *all += more);
        },
    );
    assert!(all.iter().all(|count| *count > 0), "found, missed, frames lost: {all:?}");
}

#[test]
fn gets_over_bad_links_find_what_the_map_has_and_miss_what_it_has_not() {
    all_seeds(&arms()[0]);
}

#[test]
fn gets_over_bad_links_find_what_the_map_has_and_miss_what_it_has_not_over_irn() {
    all_seeds(&arms()[1]);
}

#[test]
fn a_miss_answers_a_miss_and_not_the_first_bucket() {
    for mut bench in Bench::arms() {
        bench.deploy(kernels(1));
        let value = bench.there.remote(4096).addr;
        let slot = Slot { keys: [7, 8, 9], values: [value, 0, value], lens: [4, 4, 4] };
        bench.there.store(0, &slot.emit());
        bench.there.store(4096, b"seal");
        let address = bench.there.remote(0).addr;
        for key in [7, 8, 9, 10] {
            bench.rpc(OPCODE, key, &Lookup { slot: address, key: u64::from(key) }.emit());
        }
        let answers = bench.run();
        let seal = Answer { status: Status::DONE, bytes: b"seal".to_vec() };
        let missed = Answer { status: Status::MISS, bytes: Vec::new() };
        // Key 8 hashes to an empty bucket.
        let wanted = [(7, seal.clone()), (8, missed.clone()), (9, seal), (10, missed)];
        assert_eq!(answers.into_iter().collect::<Vec<_>>(), wanted);
    }
}

/// A GET that counts the calls of `foresee` with a slot. A variant names memory that it must not access.
struct Foreseen {
    get: Get,
    seen: Arc<AtomicU32>,
    lies: bool,
}

impl Kernel for Foreseen {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        self.get.step(streams)
    }

    fn reset(&mut self) {
        self.get.reset();
    }

    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        self.seen.fetch_add(u32::from(seen.is_some()), Ordering::Relaxed);
        if self.lies { Some((64, u32::MAX)) } else { self.get.prefetch_hint(params, seen) }
    }
}

#[test]
fn many_requests_wait_in_their_lane_and_what_they_will_read_is_asked_for_ahead() {
    for (settings, lies) in arms().iter().flat_map(|settings| [(settings, false), (settings, true)]) {
        let mut bench = Bench::new(1, settings);
        let seen = Arc::<AtomicU32>::default();
        let kernel = Foreseen { get: Get::default(), seen: seen.clone(), lies };
        // Memory for a single answer: the other requests wait until it has arrived.
        let init = bench.init(Some(OPCODE), vec![Box::new(kernel)]);
        let init = KernelInit { answers: 1, ..init };
        bench.try_deploy(init).unwrap();
        let model = fill(&bench, &mut Random::new(1));
        let mut keys: Vec<u64> = model.keys().copied().take(20).collect();
        keys.extend([SLOTS * 9, SLOTS * 9 + 1]);
        for (tag, key) in keys.iter().enumerate() {
            let slot = bench.there.remote((key % SLOTS) as usize * Slot::LEN).addr;
            bench.rpc(OPCODE, tag as u32, &Lookup { slot, key: *key }.emit());
        }
        let answers = bench.run();
        for (tag, key) in keys.iter().enumerate() {
            let bytes = model.get(key).cloned();
            let status = if bytes.is_some() { Status::DONE } else { Status::MISS };
            let wanted = Answer { status, bytes: bytes.unwrap_or_default() };
            assert_eq!(answers.get(&(tag as u32)), Some(&wanted), "key {key}");
        }
        assert_eq!(bench.world.counters(1).kernels_busy, 0, "nobody was turned away");
        let asked = seen.load(Ordering::Relaxed);
        assert!(if lies { asked == 0 } else { (5..=22).contains(&asked) }, "{asked}, once a request");
        assert!(bench.is_at_rest(0));
    }
}

#[test]
fn a_crowd_of_requests_that_comes_at_once_is_not_turned_away() {
    for settings in arms() {
        let mut bench = Bench::new(1, &Settings { send_slots: 512, ..settings });
        // Memory for all answers: none of them is sent before the last request has arrived.
        let init = bench.init(Some(OPCODE), kernels(1));
        let init = KernelInit { answers: 64, longest: 2048, ..init };
        bench.try_deploy(init).unwrap();
        let model = fill(&bench, &mut Random::new(1));
        let keys: Vec<u64> = model.keys().copied().cycle().take(60).collect();
        // No request arrives on its own.
        bench.world.set_rules(&Rules::of(vec![Rule::chance(Action::Drop, 1.0)]), 1);
        bench.world.tap();
        for (tag, key) in keys.iter().enumerate() {
            let slot = bench.there.remote((key % SLOTS) as usize * Slot::LEN).addr;
            bench.rpc(OPCODE, tag as u32, &Lookup { slot, key: *key }.emit());
        }
        bench.world.run_for(50_000);
        let sent = bench.world.sent();
        let start = bench.world.start();
        let now = bench.world.now();
        assert_eq!(sent.len(), keys.len());
        let source = Endpoint { address: Address([0; 16]), udp_port: 0 };
        bench.world.with_nic(1, |nic, mem| {
            for sent in &sent {
                nic.receive(
                    now,
                    mem,
                    &Ingress {
                        bytes: &sent.bytes,
                        start,
                        sealed: true,
                        source,
                        destination: None,
                        origin: None,
                    },
                );
            }
        });
        assert_eq!(bench.world.counters(1).kernels_busy, 0);
        bench.world.set_rules(&Rules::of(vec![]), 1);
        let answers = bench.run();
        for (tag, key) in keys.iter().enumerate() {
            assert_eq!(answers[&(tag as u32)].bytes, model[key], "key {key}");
        }
    }
}
