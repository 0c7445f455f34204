//! Packet-hops per second on one core: permutation and incast on fat-trees, with a real NIC at every host.
//!
//! `cargo bench -p remora-fabric --bench fabric -- [HOSTS_K] [permutation|incast] [BYTES] [blank|whole]
//! [fifo|voq]`

use std::time::Instant;

use remora_fabric::engine::Picos;
use remora_fabric::network::{BufferConfig, NetworkConfig, PauseConfig, Thresholds};
use remora_fabric::simulation::{Connection, FlowSpec, Simulation, SimulationConfig};
use remora_fabric::topology::{Level, Tree};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let argument = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or(default.into());
    let k: u32 = argument(0, "8").parse().expect("an even number");
    let pattern = argument(1, "permutation");
    let bytes = argument(2, "2000000").parse().expect("bytes");
    let whole = argument(3, "blank") == "whole";
    let voq = argument(4, "fifo") == "voq";
    let level = Level::new(100_000_000_000, Picos::MICROSECOND);
    let topology = Tree::fat(k, 1, level).expect("a fat-tree").topology().expect("a topology");
    let pause = Some(Thresholds { xoff: 61_000, xon: 49_000 });
    let buffer = if voq {
        BufferConfig::Voq { limit: 10_000_000, pause }
    } else {
        BufferConfig::Fifo { limit: 10_000_000, pause, per_port: false }
    };
    let config = SimulationConfig {
        network: NetworkConfig { buffer, pause: Some(PauseConfig::default()), ..NetworkConfig::default() },
        connection: Connection { mtu: 1024, ..Connection::default() },
        whole,
        nic: remora_nic::Config {
            window: 65_535,
            ack_every: 1,
            turn_packets: 1,
            rto_ns: Some(remora_transport::timers::NEVER_NS),
            retries_forever: true,
            ..SimulationConfig::default().nic
        },
        ..SimulationConfig::default()
    };
    let mut simulation = Simulation::new(topology, config).expect("a topology that runs");
    let hosts = simulation.network().hosts() as u32;
    let flow = |source, destination| FlowSpec::write(source, destination, bytes, Picos(0));
    let started = Instant::now();
    match pattern.as_str() {
        "incast" => (1..33).for_each(|source| {
            simulation.add_flow(flow(source * 3, 0));
        }),
        _ => (0..hosts).for_each(|source| {
            simulation.add_flow(flow(source, (source + hosts / 2 + 1) % hosts));
        }),
    }
    let mut ends = Vec::new();
    while simulation.running() > 0 {
        let Some(end) = simulation.run(Picos(1_000_000_000_000)) else { break };
        assert_eq!(end.status, remora_nic::Status::Success);
        ends.push(end.at.0);
    }
    simulation.network_mut().check();
    let taken = started.elapsed().as_secs_f64();
    let totals = simulation.network().totals();
    println!(
        "{} flows ended, last at {:.3} us; {} hops in {taken:.2} s = {:.2} M/s; lost {}; pauses {}; most packets {}; {:?}",
        ends.len(),
        ends.last().copied().unwrap_or(0) as f64 / 1e6,
        totals.hops,
        totals.hops as f64 / taken / 1e6,
        totals.lost().packets,
        totals.pauses,
        simulation.network().under_way().1,
        simulation.network().findings(),
    );
}
