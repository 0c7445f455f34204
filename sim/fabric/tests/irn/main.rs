//! Queue pairs over IRN, end to end over the simulated world: the order in which packets are placed, held
//! back and acknowledged.

#[path = "../rc/bench.rs"]
#[allow(dead_code, reason = "the tests of plain RC use the rest")]
mod bench;
mod hostile;
mod messages;
mod reads;
mod recovery;
mod small_worlds;

use remora_fabric::{Config, Settings};
use remora_fault::{Rule, Rules};
use remora_transport::rc::irn;

/// Queue pairs that agreed on IRN, with small packets.
fn settings() -> Settings {
    Settings { mtu: 256, irn: Some(irn::Settings::default().reach()), ..Settings::default() }
}

fn bench() -> bench::Bench {
    bench::Bench::new(&settings())
}

/// The same with other settings of IRN at both ends.
fn bench_with(irn: irn::Settings) -> bench::Bench {
    let mut config = Config::default();
    config.nic.irn = irn;
    bench::Bench::over(&config, &settings())
}

fn rules(bench: &mut bench::Bench, rules: Vec<Rule>) {
    bench.world.set_rules(&Rules::of(rules), 1);
}

/// Only the `nth` frame (from 0) that fits.
fn nth(rule: Rule, nth: u64) -> Rule {
    Rule { after: nth, at_most: Some(1), ..rule }
}
