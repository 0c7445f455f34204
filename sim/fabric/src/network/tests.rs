//! Tests of networks without NICs, in which packets are sent by hand.

use super::*;
use crate::topology::{Level, Link, NodeKind, Ring};

mod deadlock;
mod headroom;
mod out_of_order;
mod pauses;
mod queues;

/// A kilobyte takes 80 ns at this rate, a byte 80 ps.
const RATE: u64 = 100_000_000_000;
const MICROSECOND: u64 = Picos::MICROSECOND;

fn link(a: u32, b: u32, rate: u64, delay: u64) -> Link {
    Link { a, b, rate, delay, loss: 0.0 }
}

/// Hosts `0..hosts` around one switch. The link of the last host has its own rate.
fn star(hosts: u32, last_rate: u64, delay: u64) -> Topology {
    let mut nodes = vec![NodeKind::Host; hosts as usize];
    nodes.push(NodeKind::Switch);
    let rate = |host| if host + 1 == hosts { last_rate } else { RATE };
    let links = (0..hosts).map(|host| link(host, hosts, rate(host), delay)).collect();
    Topology { nodes, links, places: Vec::new() }
}

/// Returns a packet to a node.
fn packet(destination: u16, class: u8, bytes: u16) -> Packet {
    Packet::new(destination, class, bytes, u32::from(destination))
}

/// Runs until no event is left. Returns the arrivals at hosts: time, host and hash of the packet.
fn arrivals(network: &mut Network) -> Vec<(u64, u32, u32)> {
    let mut arrivals = Vec::new();
    while let Some(due) = network.next_due(Picos::NEVER) {
        if let Due::Arrived(host, id) = due {
            let packet = network.take(id);
            arrivals.push((network.now().0, host, packet.hash));
        }
    }
    arrivals
}

/// Sends `left` packets from a host, one after the other, as a NIC does.
struct Source {
    host: u32,
    packet: Packet,
    left: usize,
}

/// Runs until all sources have sent everything and no event is left, or until `limit`. Returns the arrivals.
fn run(network: &mut Network, sources: &mut [Source], limit: Picos) -> Vec<(u64, u32, u32)> {
    let mut arrivals = Vec::new();
    sources.iter().for_each(|source| network.wake(source.host, Picos(0)));
    while let Some(due) = network.next_due(limit) {
        match due {
            Due::Arrived(host, id) => {
                let packet = network.take(id);
                arrivals.push((network.now().0, host, packet.hash));
            }
            Due::Observed => panic!("nobody observes"),
            Due::Free(host) | Due::Wake(host) => {
                for source in sources.iter_mut().filter(|source| source.host == host && source.left > 0) {
                    let port = network.uplinks(host)[0];
                    if network.can_send(port, source.packet.class) {
                        source.left -= 1;
                        network.send(port, source.packet);
                    }
                    if source.left > 0 {
                        network.expect_free(port);
                    }
                }
            }
        }
    }
    arrivals
}

#[test]
fn a_packet_takes_its_transmission_and_delay_on_each_of_two_hops() {
    let mut network = Network::new(star(2, RATE, MICROSECOND), NetworkConfig::default()).unwrap();
    let uplink = network.uplinks(0)[0];
    network.send(uplink, packet(1, 0, 1_000));
    // Store and forward: twice 80 ns and twice a microsecond.
    assert_eq!(arrivals(&mut network), [(2 * (80_000 + MICROSECOND), 1, 1)]);
    assert_eq!((network.totals().hops, network.totals().sent), (2, network.totals().arrived));
    network.check();
    assert!(network.findings().kept().is_empty());
}

#[test]
fn a_queue_leaves_at_the_rate_of_its_link() {
    let mut network = Network::new(star(3, RATE / 4, 0), NetworkConfig::default()).unwrap();
    let mut sources = [0, 1].map(|host| Source { host, packet: packet(2, 0, 1_000), left: 3 });
    let times: Vec<_> =
        run(&mut network, &mut sources, Picos::NEVER).iter().map(|arrival| arrival.0).collect();
    // 80 ns to the switch, then 320 ns for each packet.
    let expected: Vec<_> = (1..=6).map(|number| 80_000 + number * 320_000).collect();
    assert_eq!(times, expected);
}

#[test]
fn the_same_seed_gives_the_same_run_and_every_packet_is_accounted_for() {
    let run_once = |seed| {
        let mut topology = star(8, RATE, MICROSECOND);
        topology.links.iter_mut().for_each(|link| link.loss = 0.1);
        let buffer = BufferConfig::Fifo { limit: 20_000, pause: None, per_port: false };
        let config = NetworkConfig { seed, buffer, ..NetworkConfig::default() };
        let mut network = Network::new(topology, config).unwrap();
        let mut sources: Vec<_> =
            (0..7).map(|host| Source { host, packet: packet(7, 0, 1_000), left: 200 }).collect();
        let arrived = run(&mut network, &mut sources, Picos::NEVER);
        network.check();
        assert!(network.findings().kept().is_empty(), "{:?}", network.findings());
        let totals = *network.totals();
        assert_eq!(totals.sent.packets, 1_400);
        assert_eq!(totals.sent.bytes, totals.arrived.bytes + totals.lost().bytes);
        assert!(
            totals.lost[Cause::Full as usize].packets > 0 && totals.lost[Cause::Loss as usize].packets > 0
        );
        (arrived, totals)
    };
    assert_eq!(run_once(1), run_once(1));
    assert_ne!(run_once(1).0, run_once(2).0);
}

#[test]
fn a_link_that_fails_loses_what_is_on_it_and_others_take_over() {
    // Two switches between two hosts, with two links between them.
    let nodes = vec![NodeKind::Host, NodeKind::Host, NodeKind::Switch, NodeKind::Switch];
    let links = vec![
        link(0, 2, RATE, 0),
        link(1, 3, RATE, 0),
        link(2, 3, RATE, MICROSECOND),
        link(2, 3, RATE, MICROSECOND),
    ];
    let topology = Topology { nodes, links, places: Vec::new() };
    for fails in [vec![2], vec![3], vec![2, 3]] {
        let config = NetworkConfig { balancing: Balancing::Packet, ..NetworkConfig::default() };
        let mut network = Network::new(topology.clone(), config).unwrap();
        let failure_time = Picos(4 * MICROSECOND + 1);
        network.set_failures(
            fails.iter().map(|link| Failure { at: failure_time, link: *link, up: false }).collect(),
        );
        let mut sources = [Source { host: 0, packet: packet(1, 0, 1_000), left: 100 }];
        let arrived = run(&mut network, &mut sources, Picos::NEVER).len() as u64;
        network.check();
        let lost = network.totals().lost;
        let down = lost[Cause::Down as usize].packets;
        let no_path = lost[Cause::NoPath as usize].packets;
        assert_eq!(arrived + down + no_path, 100);
        // 12.5 packets fit on the link within a microsecond; half of them take each of two links.
        let expected = if fails.len() == 1 { (6..=7, 0..=0) } else { (12..=14, 30..=60) };
        assert!(expected.0.contains(&down) && expected.1.contains(&no_path), "{fails:?}: {down} {no_path}");
        assert!(network.findings().kept().is_empty());
    }
}

#[test]
fn a_watcher_finds_a_packet_that_vanished() {
    let mut network = Network::new(star(2, RATE, 0), NetworkConfig::default()).unwrap();
    let uplink = network.uplinks(0)[0];
    let id = network.send(uplink, packet(1, 0, 1_000));
    network.check();
    assert!(network.findings().kept().is_empty(), "it is under way");
    network.packets.remove(id);
    network.check();
    let expected = Finding::NotConserved { at: Picos(0), expected: 1, found: 0 };
    assert!(network.findings().kept().contains(&expected), "{:?}", network.findings());
}
