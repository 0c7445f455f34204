//! IRN queue pairs end to end in the simulated world: the order in which packets are placed, held back and
//! acknowledged.

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

/// Settings of queue pairs that negotiated IRN, with small packets.
fn settings() -> Settings {
    Settings { mtu: 256, irn: Some(irn::Settings::default().reach()), ..Settings::default() }
}

fn bench() -> bench::Bench {
    bench::Bench::new(&settings())
}

/// Returns a bench with other IRN settings at both ends.
fn bench_with(irn: irn::Settings) -> bench::Bench {
    let mut config = Config::default();
    config.nic.irn = irn;
    bench::Bench::over(&config, &settings())
}

fn rules(bench: &mut bench::Bench, rules: Vec<Rule>) {
    bench.world.set_rules(&Rules::of(rules), 1);
}

/// Applies `rule` only to the `nth` matching frame, from 0.
fn nth(rule: Rule, nth: u64) -> Rule {
    rule.after(nth).at_most(1)
}
