//! The benefit of the rule by which IRN retransmits packets.

use super::*;
use remora_fabric::simulation::{FlowSpec, Simulation};
use remora_fabric::topology::{Link, NodeKind, Topology};
use remora_scenario::setup;

/// Returns the picoseconds in which two hosts write 10 MB to each other, over a path of a hundred packets
/// with random loss.
fn exchange(eager: bool, loss: f64, seed: u64) -> u64 {
    let link = Link { a: 0, b: 1, rate: 40_000_000_000, delay: 11 * Picos::MICROSECOND, loss };
    let topology = Topology { nodes: vec![NodeKind::Host; 2], links: vec![link], places: Vec::new() };
    let mut scenario = Scenario { seed, mtu: 1024, ..Scenario::on(Network::from(&topology)) };
    scenario.transport.cap = Some(110);
    let mut config = setup::simulation(&scenario, &topology).unwrap();
    config.nic.irn.eager = eager;
    let mut simulation = Simulation::new(topology, config).unwrap();
    for (source, destination) in [(0, 1), (1, 0)] {
        simulation.add_flow(FlowSpec::write(source, destination, 10_000_000, Picos(0)));
    }
    std::iter::from_fn(|| simulation.run(Picos::NEVER)).map(|end| end.at.0).max().unwrap()
}

#[test]
fn a_recovery_that_ends_though_a_nack_was_lost_keeps_more_goodput() {
    for loss in [0.001, 0.01] {
        let [eager, waits] =
            [true, false].map(|eager| (0..4).map(|seed| exchange(eager, loss, seed)).sum::<u64>());
        println!("at {loss}: {:.4} of what the authors' own code keeps", eager as f64 / waits as f64);
        assert!(waits < eager, "at {loss}: {waits} and {eager} ps");
    }
}
