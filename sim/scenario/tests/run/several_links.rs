//! Hosts with several links: a flow leaves by a port on a shortest path, and is as fast as if that path were
//! alone.

use std::collections::BTreeMap;

use super::*;
use remora_fabric::topology::Topology;
use remora_fault::Random;
use remora_scenario::path::Paths;
use remora_scenario::scenario::{
    Balance, Control, ControlName, Failure, Hash, LinkText, Transport, TransportName,
};

/// Networks (planes) that share their hosts. A host has at most one link in each plane.
struct Planes {
    hosts: u32,
    nodes: u32,
    links: Vec<Vec<LinkText>>,
}

impl Planes {
    fn of_hosts(hosts: u32) -> Planes {
        Planes { hosts, nodes: hosts, links: Vec::new() }
    }

    /// Adds `leaves` leaf switches below `spines` spine switches, and links from hosts to leaves.
    fn add_switches(&mut self, leaves: u32, spines: u32, links: &[(u32, u32)], link: &str) {
        let first_leaf = self.nodes;
        let first_spine = self.nodes + leaves;
        self.nodes += leaves + spines;
        let mut plane: Vec<LinkText> =
            links.iter().map(|(host, leaf)| text(*host, first_leaf + leaf, link)).collect();
        for leaf in first_leaf..first_spine {
            plane.extend((first_spine..self.nodes).map(|spine| text(leaf, spine, link)));
        }
        self.links.push(plane);
    }

    /// Returns the network of one plane, or of all. A host without a link there becomes a switch.
    fn network(&self, plane: Option<usize>) -> Network {
        let links: Vec<LinkText> = match plane {
            Some(plane) => self.links[plane].clone(),
            None => self.links.concat(),
        };
        let has_link = |node: &u32| links.iter().any(|link| link.0.a == *node || link.0.b == *node);
        let switches = (0..self.nodes).filter(|node| *node >= self.hosts || !has_link(node)).collect();
        Network::Links { nodes: self.nodes, switches, links }
    }
}

fn text(a: u32, b: u32, link: &str) -> LinkText {
    format!("{a} {b} {link}").parse().unwrap()
}

/// SimAI's shape: two servers with eight GPUs each. A GPU has a link to the NVSwitch of its server, and one
/// to the ToR of its server, below two spines.
fn servers() -> Planes {
    let mut planes = Planes::of_hosts(16);
    let of_server: Vec<_> = (0..16).map(|gpu| (gpu, gpu / 8)).collect();
    planes.add_switches(2, 0, &of_server, "2880Gbps 25ns");
    planes.add_switches(2, 2, &of_server, "400Gbps 500ns");
    planes
}

/// astra-sim's shape: eight hosts in a ring, without a switch.
fn ring() -> Planes {
    let mut planes = Planes::of_hosts(8);
    let of_parity = |parity| move |host: &u32| host % 2 == parity;
    for parity in [0, 1] {
        let link = |host| text(host, (host + 1) % 8, "25Gbps 5us");
        planes.links.push((0..8).filter(of_parity(parity)).map(link).collect());
    }
    planes
}

/// Two hosts and two switches, with all four links between them.
fn twins() -> Planes {
    let mut planes = Planes::of_hosts(2);
    for _ in 0..2 {
        planes.add_switches(1, 0, &[(0, 0), (1, 0)], "25Gbps 5us");
    }
    planes
}

/// Planes of random rates and shapes, and direct links between hosts, which are the fastest.
fn random(seed: u64) -> Planes {
    let mut random = Random::new(seed);
    let mut planes = Planes::of_hosts(random.between(3, 9) as u32);
    for plane in 0..random.between(2, 4) {
        let leaves = random.between(1, 3) as u32;
        let spines = if leaves == 1 { 0 } else { random.between(1, 3) as u32 };
        // All hosts are in the first plane, so that each has a link.
        let mut has_link = |_: &u32| plane == 0 || random.chance(0.7);
        let members: Vec<u32> = (0..planes.hosts).filter(&mut has_link).collect();
        let links: Vec<_> =
            members.into_iter().map(|host| (host, random.below(u64::from(leaves)) as u32)).collect();
        let link = random.pick(&["25Gbps 5us", "100Gbps 1us", "400Gbps 500ns"]);
        planes.add_switches(leaves, spines, &links, link);
    }
    let pairs = (0..planes.hosts).step_by(2).filter(|host| host + 1 < planes.hosts);
    let chosen = pairs.filter(|_| random.chance(0.5));
    let links = chosen.map(|host| text(host, host + 1, "800Gbps 100ns")).collect();
    planes.links.push(links);
    planes
}

/// Returns the completion time of each of these flows, which run one after the other.
fn times(network: Network, pairs: &[(u32, u32)], settings: &Scenario) -> Vec<u64> {
    let start = |number: usize| number as u64 * 2_000 * Picos::MICROSECOND;
    let flow = |(number, (src, dst)): (usize, &(u32, u32))| Flow {
        ports: [10_000, 100],
        ..Flow::write(number as u64, *src, *dst, 50_000, start(number))
    };
    let flows = pairs.iter().enumerate().map(flow).collect();
    let workloads = vec![Workload::listed(flows)];
    let mut rows = run(&Scenario { network, workloads, ..settings.clone() });
    rows.sort_by_key(|row| row.flow.id);
    rows.iter().map(|row| row.fct).collect()
}

/// Returns the number of links on a shortest path; 0 without a path.
fn hops(topology: &Topology, paths: &Paths, src: u32, dst: u32) -> usize {
    if topology.is_host(src) && topology.is_host(dst) { paths.of(src, dst).len() } else { 0 }
}

/// Largest number of host pairs that are tested in a network.
const PAIRS: usize = 9;

/// Checks that each flow takes at most 1.05 times as long as in the best plane that has a shortest path for
/// it.
fn check(planes: &Planes, settings: &Scenario) {
    let all = planes.network(None).topology().unwrap();
    let all_paths = Paths::new(&all).unwrap();
    let pairs = (0..planes.hosts).flat_map(|src| (0..planes.hosts).map(move |dst| (src, dst)));
    let pairs: Vec<_> =
        pairs.filter(|(src, dst)| src != dst && hops(&all, &all_paths, *src, *dst) > 0).collect();
    let pairs: Vec<_> = pairs.iter().step_by(pairs.len().div_ceil(PAIRS)).copied().collect();
    let mut best = BTreeMap::new();
    for plane in 0..planes.links.len() {
        let Ok(topology) = planes.network(Some(plane)).topology() else { continue };
        let paths = Paths::new(&topology).unwrap();
        let is_shortest = |(src, dst): &&(u32, u32)| {
            hops(&topology, &paths, *src, *dst) == hops(&all, &all_paths, *src, *dst)
        };
        let own: Vec<_> = pairs.iter().filter(is_shortest).copied().collect();
        for (pair, time) in own.iter().zip(times(planes.network(Some(plane)), &own, settings)) {
            let best = best.entry(*pair).or_insert(time);
            *best = time.min(*best);
        }
    }
    for (pair, time) in pairs.iter().zip(times(planes.network(None), &pairs, settings)) {
        let alone = best[pair];
        let transport = settings.transport.name;
        let control = settings.control.name;
        assert!(time * 100 <= alone * 105, "{transport} {control} {pair:?}: {time} ps, alone {alone} ps");
    }
}

fn settings(transport: TransportName, control: ControlName, seed: u64) -> Scenario {
    let mut settings = Scenario::on(fat_tree(4));
    settings.transport = Transport { name: transport, ..Transport::default() };
    settings.control = Control { name: control, ..Control::default() };
    settings.seed = seed;
    settings
}

/// Regression: a host with several links chose its port by the destination's number and slept while another
/// port was free. Flows took 10 to 100 times as long, or never started.
#[test]
fn a_flow_of_a_host_with_several_links_is_as_fast_as_on_its_best_path_alone() {
    for planes in [twins(), ring(), servers()] {
        for transport in TransportName::ALL {
            for control in ControlName::ALL {
                check(&planes, &settings(*transport, *control, 1));
            }
        }
    }
}

#[test]
fn random_hosts_with_several_links_are_as_fast_as_on_their_best_paths() {
    for seed in 0..12_u64 {
        let transport = TransportName::ALL[seed as usize % TransportName::ALL.len()];
        let control = ControlName::ALL[seed as usize % ControlName::ALL.len()];
        let mut settings = settings(transport, control, seed);
        if seed % 3 == 0 {
            settings.switch.balance = Balance::Ecmp { hash: Hash::Ns3 };
        }
        check(&random(seed), &settings);
    }
}

#[test]
fn flows_by_different_links_of_a_host_do_not_slow_each_other() {
    for transport in TransportName::ALL {
        let links = [text(0, 1, "25Gbps 5us"), text(0, 2, "25Gbps 5us")];
        let network = Network::Links { nodes: 3, switches: Vec::new(), links: links.to_vec() };
        let flow = |dst: u32| Flow::write(u64::from(dst), 0, dst, 200_000, 0);
        let workloads = vec![Workload::listed(vec![flow(1), flow(2)])];
        let settings = settings(*transport, ControlName::None, 1);
        for row in run(&Scenario { network, workloads, ..settings }) {
            assert!(row.slowdown() < 1.05, "{transport} {}: {}", row.flow.id, row.slowdown());
        }
    }
}

/// Returns the failure of a link at a time.
fn failure(ends: [u32; 2], time: u64) -> Failure {
    Failure { ends, nth: 0, at: Time(time), until: None }
}

#[test]
fn a_flow_goes_on_by_another_link_when_its_own_fails() {
    for transport in [TransportName::Irn, TransportName::IrnPfc] {
        for switch in [2, 3] {
            let flow = Flow::write(0, 0, 1, 200_000, 0);
            let failures = vec![failure([0, switch], 20 * Picos::MICROSECOND)];
            let workloads = vec![Workload::listed(vec![flow])];
            let network = twins().network(None);
            let settings = settings(transport, ControlName::None, 1);
            let rows = run(&Scenario { network, workloads, failures, ..settings });
            assert_eq!(rows.len(), 1, "{transport} {switch}");
        }
    }
}

/// The hash of the ns-3 programs divides by the number of paths.
///
/// Regression: a packet without a path ended the simulator.
#[test]
fn packets_without_a_path_are_lost_and_counted_whatever_hash_chooses_the_paths() {
    for hash in [Hash::Own, Hash::Ns3, Hash::Htsim] {
        let mut settings = settings(TransportName::Irn, ControlName::None, 1);
        settings.switch.balance = Balance::Ecmp { hash };
        let flow = Flow { ports: [10_000, 100], ..Flow::write(0, 0, 1, 200_000, 0) };
        let failures = vec![failure([1, 2], 20 * Picos::MICROSECOND)];
        let network = twins().network(Some(0));
        let until = Some(Time(2_000 * Picos::MICROSECOND));
        let workloads = vec![Workload::listed(vec![flow])];
        let mut run = Run::new(&Scenario { network, workloads, failures, until, ..settings }).unwrap();
        assert_eq!(run.advance(Picos::NEVER), None);
        let balance = run.simulation().network().balance();
        assert!(balance.holds() && balance.lost > 0, "{hash:?} {balance:?}");
        assert_eq!(run.findings(), (Vec::new(), 0));
    }
}

/// Regression: a host with more than eight links had port numbers beyond the bits of a NIC's transmit queues.
#[test]
fn more_links_of_a_host_than_a_nic_has_ports_are_refused() {
    let mut planes = Planes::of_hosts(2);
    for _ in 0..9 {
        planes.add_switches(1, 0, &[(0, 0), (1, 0)], "25Gbps 5us");
    }
    let workloads = vec![Workload::listed(vec![Flow::write(0, 0, 1, 1_000, 0)])];
    let scenario = |planes: &Planes| Scenario {
        network: planes.network(None),
        workloads: workloads.clone(),
        ..settings(TransportName::Irn, ControlName::None, 1)
    };
    let says = Run::new(&scenario(&planes)).err().unwrap();
    assert_eq!(says, "host 0 has 9 links, and a NIC has at most 8 ports: join some by a switch");
    planes.links.pop();
    assert_eq!(run(&scenario(&planes)).len(), 1);
}
