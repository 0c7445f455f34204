//! Large files take time in proportion to their size; a quadratic parser would take hours here.

use remora_import::hpcc::config::Config;
use remora_import::hpcc::{cdf, flows, topology, trace};
use remora_import::htsim;
use remora_scenario::Source;
use remora_scenario::format::hpcc::outputs;
use remora_scenario::format::own;

const BYTES: usize = 5_000_000;

/// Returns `head`, followed by repetitions of `unit` up to the size.
fn large(head: &str, unit: &str) -> String {
    head.to_owned() + &unit.repeat(BYTES / unit.len())
}

#[test]
fn rows_of_megabytes_are_read() {
    let rows = BYTES / "1 2 3 9 2.000000000\n".len();
    let read = flows::parse(Source::new("f", &large("99999999\n", "1 2 3 9 2.000000000\n")), None).unwrap();
    assert_eq!((read.value.flows.len(), read.warnings.len()), (rows, 1));
    let connections = BYTES / "0->1 start 0 size 9\n".len();
    let head = format!("Nodes 2\nConnections {connections}\n");
    let read = htsim::connections::parse(Source::new("f", &large(&head, "0->1 start 0 size 9\n"))).unwrap();
    assert_eq!(read.value.flows.len(), connections);
    let line = "1 2 10000 100 9 2000000000 5 5\n";
    let read = outputs::parse_fct(Source::new("f", &large("", line))).unwrap();
    assert_eq!(read.value.len(), BYTES / line.len());
}

#[test]
fn megabytes_of_nonsense_are_refused_or_skipped_with_few_words() {
    for unit in ["FOO_BAR 1\n", "{ prose ", "KMAX_MAP 0 ", "x ", "\n", " "] {
        let read = Config::parse(Source::new("f", &large("", unit))).unwrap();
        assert!(read.warnings.len() <= 1, "{unit:?}: {:?}", read.warnings);
    }
    let keys: String = (0..BYTES / 16).map(|n| format!("KEY_{n:010} ")).collect();
    assert_eq!(Config::parse(Source::new("f", &keys)).unwrap().warnings.len(), 101);
    let one = large("2 1 1\n1\n0 1 1Gbps 1ns 0\n", "prose ");
    assert!(topology::parse(Source::new("f", &one)).unwrap().warnings.is_empty());
    let word = "9".repeat(BYTES);
    let source = Source::new("f", &word);
    assert!(topology::parse(source).unwrap_err().to_string().len() < 200);
    assert!(trace::parse(source, 9).is_err() && cdf::parse(source).is_err());
    assert!(flows::parse(source, None).is_err() && own::parse(source).is_err());
    let topo = large("Nodes 4\nTiers 2\nPodsize 4\n", "Colour 3\n");
    assert!(htsim::topology::parse(Source::new("f", &topo)).is_err());
    let cm = large("Nodes 2\n", "Colour 3\n");
    assert!(htsim::connections::parse(Source::new("f", &cm)).unwrap().value.flows.is_empty());
}

#[test]
fn a_barrier_of_thousands_is_one_list() {
    let count = 20_000;
    let mut cm = format!("Nodes 2\nConnections {}\nTriggers 1\n", 2 * count);
    for id in 1..=count {
        cm.push_str(&format!("0->1 id {id} start 0 size 9 send_done_trigger 1\n"));
        cm.push_str(&format!("1->0 id {} trigger 1 size 9\n", id + count));
    }
    cm.push_str(&format!("trigger id 1 barrier count {count}\n"));
    let matrix = htsim::connections::parse(Source::new("f", &cm)).unwrap().value;
    let flows = matrix.flows(&mut Vec::new());
    assert_eq!(flows.len(), 2 * count);
    let topology = remora_fabric::topology::Tree::fat(2, 1, remora_fabric::topology::Level::new(1000, 0));
    let topology = topology.unwrap().topology().unwrap();
    let twice = [flows.clone(), flows].map(remora_scenario::workload::Workload::listed);
    let made = remora_scenario::workload::generate(&twice, &topology, 1).unwrap();
    assert_eq!(made.len(), 4 * count);
}
