//! Written files read back unchanged, and no text makes a parser panic.

use crate::text;
use proptest::prelude::*;
use remora_fabric::topology::{Link, NodeKind, Topology};
use remora_import::hpcc::config::{Config, KEYS, Kind, Value};
use remora_import::hpcc::flows::{self, FlowFile};
use remora_import::hpcc::{Dialect, cdf, topology, trace};
use remora_scenario::Flow;
use remora_scenario::format::hpcc::outputs;
use remora_scenario::units::Rate;
use remora_scenario::workload::distribution::{Cdf, Point};

fn topologies() -> impl Strategy<Value = Topology> {
    (1u32..20, 1u32..10).prop_flat_map(|(hosts, switches)| {
        let nodes = hosts + switches;
        let link = (0..nodes, 1..nodes, 1000u64..8_000_000_000_000, 0u64..2_000_000_000, 0.0f64..1.0);
        proptest::collection::vec(link, 0..30).prop_map(move |random| {
            let mut topology =
                Topology { nodes: vec![NodeKind::Host; nodes as usize], ..Topology::default() };
            topology.nodes[hosts as usize..].fill(NodeKind::Switch);
            let first = (0..hosts).map(|host| Link { a: host, b: hosts, rate: 1000, delay: 0, loss: 0.0 });
            topology.links.extend(first);
            let other = |(a, step, rate, delay, loss)| Link { a, b: (a + step) % nodes, rate, delay, loss };
            topology.links.extend(random.into_iter().map(other));
            topology
        })
    })
}

fn flow_files() -> impl Strategy<Value = FlowFile> {
    let flow = (0u32..50, 1u32..50, 1u64.., 0u64..1 << 60, 0u8..8, any::<u16>());
    (any::<bool>(), proptest::collection::vec(flow, 0..40)).prop_map(|(hpcc, rows)| {
        let dialect = if hpcc { Dialect::Hpcc } else { Dialect::Conweave };
        let mut rows = rows;
        rows.sort_by_key(|row| row.3);
        let flow = |(src, step, size, start, class, dport)| Flow {
            class,
            ports: [0, dport],
            ..Flow::write(0, src, (src + step) % 50, size, start)
        };
        let mut flows: Vec<Flow> = rows.into_iter().map(flow).collect();
        flows::number(&mut flows, dialect);
        // Without rows, the dialect cannot be inferred.
        FlowFile { dialect: if flows.is_empty() { Dialect::Hpcc } else { dialect }, flows }
    })
}

fn configs() -> impl Strategy<Value = Config> {
    let value =
        (any::<u64>(), "[a-z/._]{1,12}", proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..5));
    proptest::collection::vec((0..KEYS.len(), value), 0..40).prop_map(|values| {
        let mut config = Config::default();
        for (index, (number, word, map)) in values {
            let value = match KEYS[index].1 {
                Kind::Integer => Value::Integer(number),
                Kind::Decimal => Value::Decimal(number),
                Kind::Rate => Value::Rate(Rate(number)),
                Kind::Text => Value::Text(word),
                Kind::Map => Value::Map(map),
                Kind::Triple => Value::Triple([number, 1, number / 2]),
            };
            assert!(config.set(KEYS[index].0, value));
        }
        config
    })
}

fn cdfs() -> impl Strategy<Value = Cdf> {
    proptest::collection::btree_set(1u32..1_000_000, 1..20).prop_map(|bytes| {
        let last = bytes.len() as f64;
        let mut points = vec![Point { bytes: 0.0, percent: 0.0 }];
        let point =
            |(index, bytes)| Point { bytes: f64::from(bytes), percent: 100.0 * (index as f64 + 1.0) / last };
        points.extend(bytes.into_iter().enumerate().map(point));
        Cdf::new(points).unwrap()
    })
}

proptest! {
    #[test]
    fn a_topology_reads_back(value in topologies()) {
        let read = topology::parse(text(&topology::write(&value))).unwrap();
        prop_assert_eq!((read.value, read.warnings), (value, vec![]));
    }

    #[test]
    fn flows_read_back(value in flow_files()) {
        let read = flows::parse(text(&flows::write(&value)), None).unwrap();
        prop_assert_eq!((read.value, read.warnings), (value, vec![]));
    }

    #[test]
    fn a_configuration_reads_back(value in configs()) {
        let read = Config::parse(text(&value.write())).unwrap();
        prop_assert_eq!((read.value, read.warnings), (value, vec![]));
    }

    #[test]
    fn a_distribution_and_a_trace_read_back(value in cdfs(), nodes in proptest::collection::vec(0u32..100, 0..9)) {
        prop_assert_eq!(cdf::parse(text(&cdf::write(&value))).unwrap().value, value);
        prop_assert_eq!(trace::parse(text(&trace::write(&nodes)), 100).unwrap().value, nodes);
    }

    #[test]
    fn every_size_lies_within_its_distribution(value in cdfs(), percent in 0.0f64..100.0) {
        let last = value.points().last().unwrap().bytes as u64;
        prop_assert!((1..=last).contains(&value.size_at(percent)));
        prop_assert!(value.size_at(percent) <= value.size_at((percent + 1.0).min(100.0)));
    }

    #[test]
    fn no_text_makes_a_parser_panic(
        words in proptest::collection::vec("[0-9]{1,4}|[0-9.]{1,8}(Gbps|ns)?|CC_MODE|KMAX_MAP|\\{|\\}|\\PC{1,3}|\n", 0..60)
    ) {
        let joined = words.join(" ");
        let source = text(&joined);
        let _ = (topology::parse(source), flows::parse(source, None), Config::parse(source));
        let _ = (cdf::parse(source), trace::parse(source, 9), outputs::parse_fct(source));
    }
}
