//! Flows take the paths that the hashes of other simulators choose.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use remora_fabric::network::KeyedHash;
use remora_fabric::topology::Routes;
use remora_import::hpcc::{flows, topology};
use remora_import::paths::parse;
use remora_scenario::Source;
use remora_scenario::format::hpcc::outputs::address;
use remora_scenario::record::{Frame, FrameBytes, Output, PortName, RecordConfig, Sink};
use remora_scenario::scenario::{Balance, Hash};

use super::*;

/// Returns the network, the first flows of ConWeave's load on its leaf-spine, and the spines that they took
/// in ConWeave.
fn recorded() -> (Network, Vec<Flow>, BTreeMap<u64, u32>) {
    let text = include_str!("../data/leaf_spine_128_100G_OS2.txt");
    let network = topology::parse(Source::new("topology", text)).unwrap().value;
    let text = include_str!("../data/T2ms-first-200.txt");
    let flows = flows::parse(Source::new("flows", text), Some(&network)).unwrap().value.flows;
    let text = include_str!("../data/T2ms-first-200-paths.csv");
    let paths = parse(Source::new("paths", text), 1, &flows, &network).unwrap();
    let spines = paths.iter().filter_map(|path| Some((path.flow, *path.above.first()?))).collect();
    (Network::from(&network), flows, spines)
}

#[test]
fn the_hash_of_ns3_chooses_the_spines_that_conweave_recorded() {
    let (network, flows, spines) = recorded();
    let topology = network.topology().unwrap();
    let routes = Routes::new(&topology, |_| true).unwrap();
    let ports = topology.ports();
    for flow in flows.iter().filter(|flow| spines.contains_key(&flow.id)) {
        let tor = ports[flow.src as usize][0].neighbour;
        let choices = routes.ports(tor, flow.dst);
        let [sport, dport] = flow.ports.map(u32::from);
        let hash = KeyedHash::Ns3.of([address(flow.src), address(flow.dst), sport | dport << 16], tor);
        let port = choices[hash as usize % choices.len()];
        assert_eq!(ports[tor as usize][usize::from(port)].neighbour, spines[&flow.id], "{flow:?}");
    }
    assert!(spines.len() > 150);
}

/// Number of the capture that recorded a packet, by UDP source port and destination address.
type Taken = BTreeMap<(u16, [u8; 4]), usize>;

/// The packets that all captures have recorded.
#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Taken>>);

impl Sink for Passed {
    fn append(&mut self, _: Output, _: &[u8]) {}

    fn frame(&mut self, capture: usize, frame: &Frame<'_>) {
        let FrameBytes::Packet(packet, _) = frame.bytes else { return };
        let sport = u16::from_be_bytes([packet[20], packet[21]]);
        let destination = packet[16..20].try_into().unwrap();
        // Packets from a spine are not a choice of this switch.
        if frame.leaves {
            self.0.lock().unwrap().insert((sport, destination), capture);
        }
    }
}

#[test]
fn packets_take_the_spines_that_conweave_recorded() {
    let (network, flows, spines) = recorded();
    let flows: Vec<Flow> = flows.into_iter().filter(|flow| flow.src < 16 && flow.size < 20_000).collect();
    let mut scenario = Scenario::on(network);
    scenario.workloads = vec![Workload::listed(flows.clone())];
    scenario.switch.balance = Balance::Ecmp { hash: Hash::Ns3 };
    let mut run = Run::new(&scenario).unwrap();
    // Ports of the first ToR to the spines 136 to 143.
    let captures: Vec<PortName> = (17..25).map(|port| PortName { node: 128, port }).collect();
    let passed = Passed::default();
    run.record(&scenario, &RecordConfig { captures: &captures, outputs: &[] }, Box::new(passed.clone()))
        .unwrap();
    while run.advance(Picos(10_000_000 * Picos::MICROSECOND)).is_some() {}
    assert_eq!(run.unfinished().count(), 0);
    let passed = passed.0.lock().unwrap();
    let mut seen = 0;
    for flow in flows.iter().filter(|flow| spines.contains_key(&flow.id)) {
        let [_, a, b, c] = (flow.dst + 1).to_be_bytes();
        assert_eq!(passed[&(flow.ports[0], [10, a, b, c])] as u32 + 136, spines[&flow.id], "{flow:?}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_hash_of_htsim_spreads_flows_and_depends_on_the_seed() {
    let flows: Vec<(u32, u32, u64)> = (0..64).map(|flow| (flow % 16, 127 - flow, 1_000)).collect();
    let times = |seed| {
        let mut scenario = scenario(fat_tree(8), &flows);
        scenario.seed = seed;
        scenario.switch.balance = Balance::Ecmp { hash: Hash::Htsim };
        run(&scenario).iter().map(|row| (row.flow.id, row.fct)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(times(1), times(1));
    assert_ne!(times(1), times(2));
}
