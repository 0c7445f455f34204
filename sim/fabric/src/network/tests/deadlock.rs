//! Deadlocks of switches in a ring.

use super::*;

/// Three switches in a ring, with a host at each.
fn ring_of_three() -> (Topology, Vec<u32>) {
    let mut nodes = vec![NodeKind::Host; 3];
    nodes.extend([NodeKind::Switch; 3]);
    let mut links: Vec<Link> = (0..3).map(|host| link(host, 3 + host, RATE, MICROSECOND / 10)).collect();
    links.extend((0..3).map(|switch| link(3 + switch, 3 + (switch + 1) % 3, RATE, MICROSECOND / 10)));
    (Topology { nodes, links, places: Vec::new() }, vec![0, 1, 2])
}

/// A ring in which the shortest path to the host two switches ahead is clockwise for all hosts.
fn clockwise(switches: u32) -> Topology {
    let level = Level::new(RATE, MICROSECOND / 10);
    Ring { switches, hosts_per_switch: 1, hosts: level, around: level }.topology().unwrap()
}

fn deadlocked(switches: u32, lasts: Lasts, limit: Picos) -> Network {
    let buffer = BufferConfig::Fifo {
        limit: 1 << 20,
        pause: Some(Thresholds { xoff: 4_000, xon: 2_000 }),
        per_port: false,
    };
    let config = NetworkConfig {
        buffer,
        pause: Some(PauseConfig { lasts, ..PauseConfig::default() }),
        watch_period: 20 * MICROSECOND,
        ..NetworkConfig::default()
    };
    let mut network = Network::new(clockwise(switches), config).unwrap();
    let mut sources: Vec<_> = (0..switches)
        .map(|host| Source { host, packet: packet(((host + 2) % switches) as u16, 3, 1_000), left: 2_000 })
        .collect();
    run(&mut network, &mut sources, limit);
    network
}

#[test]
fn a_ring_of_paused_ports_is_found_and_named() {
    let mut network = deadlocked(5, Lasts::UntilResume, Picos(2_000 * MICROSECOND));
    let cycles: Vec<_> = network
        .findings()
        .kept()
        .iter()
        .filter_map(|finding| match finding {
            Finding::Deadlock { cycle, .. } => Some(cycle.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(cycles.len(), 1, "{:?}", network.findings());
    let mut nodes: Vec<_> = cycles[0].iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [5, 6, 7, 8, 9], "all five switches");
    let words = network.findings().kept()[0].to_string();
    assert!(words.contains("deadlock") && words.contains("->"), "{words}");
    assert!(network.under_way().0 > 0);
    network.check();
}

#[test]
fn one_way_through_a_line_is_no_deadlock() {
    let (topology, hosts) = ring_of_three();
    let buffer = BufferConfig::Fifo {
        limit: 1 << 20,
        pause: Some(Thresholds { xoff: 4_000, xon: 2_000 }),
        per_port: false,
    };
    let config = NetworkConfig {
        buffer,
        pause: Some(PauseConfig { lasts: Lasts::UntilResume, ..PauseConfig::default() }),
        watch_period: 20 * MICROSECOND,
        ..NetworkConfig::default()
    };
    let mut network = Network::new(topology, config).unwrap();
    let mut sources: Vec<_> = hosts
        .iter()
        .map(|host| Source { host: *host, packet: packet(((host + 1) % 3) as u16, 3, 1_000), left: 500 })
        .collect();
    let arrived = run(&mut network, &mut sources, Picos::NEVER).len();
    assert_eq!((arrived, network.findings().kept().len()), (1_500, 0), "{:?}", network.findings());
}
