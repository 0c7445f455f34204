//! A file of another simulator and its conversion are equal scenarios.

use crate::text;
use remora_import::hpcc::config::Config;
use remora_import::hpcc::translation::{Parts, scenario};
use remora_import::hpcc::{flows, topology};
use remora_import::htsim;
use remora_scenario::format::own;
use remora_scenario::format::own::{parse, to_toml};
use remora_scenario::{Scenario, Source};

#[track_caller]
fn converts(scenario: &Scenario) {
    let toml = to_toml(scenario).unwrap();
    let read = parse(text(&toml)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read.value, *scenario);
    let [a, b] = [&read.value, scenario].map(|scenario| {
        let topology = scenario.topology().unwrap();
        let flows = scenario.flows(&topology).unwrap();
        (topology.links, flows)
    });
    assert_eq!(a, b);
    assert!(!a.1.is_empty());
    assert_eq!(to_toml(&read.value).unwrap(), toml);
}

#[test]
fn conweaves_files_convert() {
    for (config, net, rows) in [
        (
            include_str!("../data/ns3-T2ms-irn-config.txt"),
            include_str!("../data/leaf_spine_128_100G_OS2.txt"),
            include_str!("../data/T2ms-first-200.txt"),
        ),
        (
            include_str!("../data/ns3-I32-pfc-config.txt"),
            include_str!("../data/fat_k8_100G_OS2_n128_OS1.txt"),
            include_str!("../data/P128_2MB.txt"),
        ),
    ] {
        let topology = topology::parse(text(net)).unwrap().value;
        let flows = flows::parse(text(rows), Some(&topology)).unwrap().value;
        let config = Config::parse(text(config)).unwrap().value;
        let parts = Parts { topology, flows, trace: Vec::new() };
        converts(&scenario(text(""), &config, parts, None).unwrap().value);
    }
}

#[test]
fn htsims_files_convert() {
    let matrix = |text: &str| htsim::connections::parse(Source::new("m", text)).unwrap().value;
    let options = htsim::options::Options::default();
    let incast = matrix(include_str!("../data/inc_128_32_2000000.cm"));
    converts(&htsim::translation::scenario(text(""), &options, &incast, None).unwrap().value);
    let triggered = matrix(
        "Nodes 32\nConnections 2\nTriggers 1\nFailures 1\n0->9 id 1 start 5 size 9 recv_done_trigger 1\n\
         9->0 id 2 trigger 1 size 9\ntrigger id 1 barrier count 1\nfailure switch_type TOR switch_id 0 link_id 1",
    );
    let tree = htsim::topology::parse(text(include_str!("../data/leaf_spine_tiny.topo"))).unwrap().value;
    converts(&htsim::translation::scenario(text(""), &options, &triggered, Some(&tree)).unwrap().value);
}

#[test]
fn a_scenario_of_many_flows_is_read_quickly() {
    let row = |n: u32| format!("{} {} 3 4995 2.{:09}\n", n % 128, (n + 1) % 128, n);
    let rows: String = std::iter::once("100000\n".to_owned()).chain((0..100_000).map(row)).collect();
    let topology = topology::parse(text(include_str!("../data/leaf_spine_128_100G_OS2.txt"))).unwrap().value;
    let flows = flows::parse(text(&rows), Some(&topology)).unwrap().value;
    let config = Config::parse(text("CC_MODE 1 BUFFER_SIZE 9")).unwrap().value;
    let parts = Parts { topology, flows, trace: Vec::new() };
    let scenario = scenario(text(""), &config, parts, None).unwrap().value;
    let toml = to_toml(&scenario).unwrap();
    assert!(own::parse(text(&toml)).unwrap().value == scenario);
}
