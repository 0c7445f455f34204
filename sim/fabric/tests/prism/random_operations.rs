//! Random operations over bad links: each kind of fault is counted, and none may be missing at the end.

use remora_fabric::{Config, FreeList, Settings};
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{FreeListFacts, WorkRequest};
use remora_nic::{Remote, Sge, WorkCompletion};

use crate::bench::{Bench, arms};
use crate::random_body::{Arm, body};

struct Simulated {
    bench: Bench,
    /// Free list, address of its first buffer, and size of its buffers.
    list: Option<(FreeList, u64, u32)>,
}

impl Simulated {
    fn new(seed: u64, settings: &Settings) -> Simulated {
        // A long timeout: among this many packets some are lost five times in a row.
        let settings = Settings { timeout: 8, ..*settings };
        let mut bench = Bench::over(&Config { seed, ..Config::default() }, &settings);
        bench.world.set_rules(&bad_links(&mut Random::new(seed)), seed);
        Simulated { bench, list: None }
    }
}

fn bad_links(random: &mut Random) -> Rules {
    let some = |random: &mut Random, most: f64| most * random.below(1000) as f64 / 1000.0;
    Rules::of(vec![
        Rule::chance(Action::Drop, some(random, 0.08)),
        Rule::chance(Action::Duplicate, some(random, 0.05)),
        Rule::chance(Action::Reorder { frames: 3 }, some(random, 0.08)),
        Rule::chance(Action::Corrupt, some(random, 0.03)),
        Rule::chance(Action::Delay { min_ns: 100, max_ns: 300_000 }, some(random, 0.05)),
    ])
}

impl Arm for Simulated {
    fn over_irn(&self) -> bool {
        self.bench.settings.irn.is_some()
    }

    fn there(&self) -> Remote {
        self.bench.at(0)
    }

    fn load_there(&self, offset: usize, len: usize) -> Vec<u8> {
        self.bench.there.load(offset, len)
    }

    fn store_there(&self, offset: usize, bytes: &[u8]) {
        self.bench.there.store(offset, bytes);
    }

    fn load_here(&self, offset: usize, len: usize) -> Vec<u8> {
        self.bench.here.load(offset, len)
    }

    fn store_here(&self, offset: usize, bytes: &[u8]) {
        self.bench.here.store(offset, bytes);
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        self.bench.here.sge(offset, len)
    }

    fn make_list(&mut self, offset: usize, size: u32, count: u32) -> u64 {
        let list = self.bench.list(offset, size, count);
        let base = self.bench.at(offset).addr;
        self.list.insert((list, base, size)).0.number
    }

    fn post_buffer(&mut self, index: usize) {
        let (list, base, size) = self.list.as_mut().expect("made at first");
        self.bench.world.post_buffer(list, *base + index as u64 * u64::from(*size)).unwrap();
    }

    fn facts(&mut self) -> FreeListFacts {
        let (list, _, _) = self.list.as_ref().expect("made at first");
        self.bench.world.free_list_facts(list)
    }

    fn post(&mut self, request: &WorkRequest<'_>) {
        self.bench.put(request);
    }

    fn finish(&mut self, _: usize) -> Vec<WorkCompletion> {
        self.bench.world.ring(self.bench.left);
        assert!(self.bench.world.settle(10_000_000), "the world never comes to rest");
        self.bench.world.drain(self.bench.left_cq)
    }
}

fn all_seeds(settings: &Settings) {
    let mut faults = [0; 5];
    let count = |mut arm: Simulated| {
        assert_eq!(arm.facts().resting, 0, "nobody asks for anything any more");
        let tally = arm.bench.world.faults();
        let counts = [tally.dropped, tally.duplicated, tally.reordered, tally.corrupted, tally.delayed];
        faults.iter_mut().zip(counts).for_each(|(all, more)| *all += more);
    };
    body(0..100, |seed| Simulated::new(seed, settings), count);
    assert!(faults.iter().all(|count| *count > 0), "{faults:?}");
}

#[test]
fn seven_thousand_random_operations_over_bad_links_do_what_the_model_does() {
    all_seeds(&arms()[0]);
}

#[test]
fn seven_thousand_random_operations_over_bad_links_do_what_the_model_does_over_irn() {
    all_seeds(&arms()[1]);
}
