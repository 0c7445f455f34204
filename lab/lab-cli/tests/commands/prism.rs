//! `remora bench prism` and `remora figures`: rows, round trips and plots. The NIC's own tests check the
//! predictions; times are not checked here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::running::{Ended, Folder, lines, remora};

fn bench(port: &str, folder: &Folder, more: &[&str]) -> Ended {
    let path = folder.0.to_str().expect("a path of letters");
    let words = ["bench", "prism", "--port", port, "--rounds", "1", "--json", "--report", path];
    remora(&[&words[..], more].concat())
}

/// Round trips of each operation on the wire: 1 for a GET, 2 for a PUT, and 1 for a PUT with a known slot.
const ROUND_TRIPS: [(&str, f64); 13] = [
    ("read/512", 1.0),
    ("write/512", 1.0),
    ("cas/8", 1.0),
    ("indirect-read/512", 1.0),
    ("bounded-read/512", 1.0),
    ("allocate/512", 1.0),
    ("enhanced-cas/16", 1.0),
    ("chain/512", 1.0),
    ("put/512", 2.0),
    ("two-reads/512", 2.0),
    ("write-then-cas/512", 2.0),
    ("rpc-to-read/512", 1.0),
    ("rpc-to-write/512", 1.0),
];

/// Operations to which each operation is compared.
const BESIDE: [(&str, &[&str]); 5] = [
    ("indirect-read/512", &["read", "two-reads", "rpc-to-read"]),
    ("bounded-read/512", &["read", "two-reads", "rpc-to-read"]),
    ("allocate/512", &["write", "rpc-to-write"]),
    ("enhanced-cas/16", &["cas"]),
    ("chain/512", &["write", "write-then-cas", "rpc-to-write"]),
];

fn every_operation_over(port: &str) {
    let folder = Folder::new(port);
    let ended = bench(port, &folder, &["--only", &format!("{port}/")]);
    remora_netns::require!(!ended.err.contains("which needs root"), "making network namespaces needs root");
    let rows = lines(&ended.good());
    let rows_of = |operation: &str, metric: &str| {
        let case = format!("{port}/{operation}");
        rows.iter().filter(|row| row["case"] == case.as_str() && row["metric"] == metric).collect::<Vec<_>>()
    };
    let counted: BTreeMap<&str, f64> = ROUND_TRIPS
        .iter()
        .map(|(operation, _)| {
            (*operation, rows_of(operation, "round_trips")[0]["value"].as_f64().expect("a number"))
        })
        .collect();
    assert_eq!(counted, BTreeMap::from(ROUND_TRIPS));
    for (operation, beside) in BESIDE {
        let latency = rows_of(operation, "latency_p50");
        let baselines: Vec<&str> = latency.iter().filter_map(|row| row["baseline"].as_str()).collect();
        assert_eq!(baselines, beside, "{operation}");
        for row in latency {
            let number = |field: &str| row[field].as_f64().expect("a number");
            assert!((number("ratio") - number("value") / number("baseline_value")).abs() < 1e-9, "{row}");
            assert_eq!((&row["bench"], &row["unit"]), (&"prism".into(), &"ns".into()));
            assert_eq!(row["rounds"].as_array().map(Vec::len), Some(1));
        }
    }
    // Both figures show the measured values beside the models, and name the origin of each time.
    for (name, words) in [("prism-figure-1.svg", "enhanced"), ("prism-figure-2.svg", "two-reads")] {
        let svg = folder.read(name);
        for word in [words, port, "model time", "real time", "stated in the paper", "PrismAsic"] {
            assert!(svg.contains(word), "no {word} in {name}");
        }
    }
}

#[test]
fn over_shm_each_operation_stands_beside_what_it_replaces_and_its_round_trips_are_counted() {
    every_operation_over("shm");
}

#[test]
fn over_udp_each_operation_stands_beside_what_it_replaces_and_its_round_trips_are_counted() {
    every_operation_over("udp");
}

#[test]
fn over_xdp_each_operation_stands_beside_what_it_replaces_and_its_round_trips_are_counted() {
    every_operation_over("xdp");
}

#[test]
fn predictions_and_their_residuals_are_rows_too_and_figures_draws_the_same() {
    let folder = Folder::new("model");
    let path = folder.0.to_str().expect("a path of letters");
    let words = ["figures", "prism", "--port", "shm", "--rounds", "1", "--json", "--report", path];
    let rows = lines(&remora(&words).good());
    let model = |row: &&Value| row["case"].as_str().is_some_and(|case| case.starts_with("model:"));
    let judged: Vec<&Value> = rows.iter().filter(model).filter(|row| row["metric"] == "predicted").collect();
    assert_eq!(judged.len(), 17);
    for row in judged {
        let ratio = row["ratio"].as_f64().expect("a ratio");
        assert_eq!((&row["holds"], (0.8..=1.2).contains(&ratio)), (&true.into(), true), "{row}");
        assert!(
            row["baseline"].as_str().is_some_and(|baseline| baseline.starts_with("paper, section")),
            "{row}"
        );
    }
    for case in ["model:ConnectX5/read/512/direct", "model:PrismAsic/indirect-read/512/datacenter"] {
        assert!(rows.iter().any(|row| row["case"] == case && row["metric"] == "latency_p50"), "{case}");
    }
    assert!(folder.read("prism-figure-1.svg").contains("</svg>"));
    bench("shm", &folder, &["--only", "nothing"]).one_line("no case or metric contains nothing");
    remora(&["figures", "mona-lisa"]).bad_arguments("mona-lisa");
}
