//! Short measurements of throughput and latency curves, and the figures drawn from them.

use std::path::PathBuf;

use serde_json::Value;

use crate::running::{Scratch, remora};

#[track_caller]
fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Checks that every point has a rate and a mean latency, and if `exact`, that rate times latency
/// is the number of operations in flight.
#[track_caller]
fn points(rows: &[Value], prefix: &str, windows: &[u32], exact: bool) {
    for window in windows {
        let case = format!("{prefix}/window-{window}");
        let value_of = |metric: &str| {
            let row = rows.iter().find(|row| row["case"] == case.as_str() && row["metric"] == metric);
            row.unwrap_or_else(|| panic!("{case}, {metric}"))["value"].as_f64().expect("a number")
        };
        let together = value_of("rate") * value_of("latency_mean") / 1e9;
        assert!(
            value_of("rate") > 0.0 && (!exact || (together / f64::from(*window) - 1.0).abs() < 1e-6),
            "{case}"
        );
    }
}

#[test]
fn curves_are_measured_window_by_window_and_figures_3_and_4_show_them_beside_the_models() {
    let words = ["bench", "kv", "--curves", "--port", "shm", "--records", "500", "--window", "4"];
    let out = remora(&[words.as_slice(), &["--rounds", "1", "--json"]].concat()).good();
    let rows = lines(&out);
    for design in ["pilaf", "prism"] {
        for workload in ["ycsb-a", "ycsb-c"] {
            points(&rows, &format!("shm/{design}/512/{workload}/uniform"), &[1, 2, 4], true);
        }
    }
    drawn(&out, &[("3", "shm, prism"), ("4", "shm, pilaf")], "Pilaf, RDMA");
}

#[test]
fn figures_6_and_7_show_replicated_blocks_by_clients_and_by_skew() {
    let words = ["bench", "block", "--curves", "--port", "shm", "--blocks", "64", "--clients", "8"];
    let out =
        remora(&[words.as_slice(), &["--rounds", "1", "--operations", "2000", "--json"]].concat()).good();
    let rows = lines(&out);
    for design in ["abdlock", "prism-rs"] {
        points(&rows, &format!("shm/{design}/512/uniform"), &[1, 2, 4, 8], false);
        for keys in ["uniform", "zipf-0.5", "zipf-1.2"] {
            let case = format!("shm/{design}/512/{keys}/clients-8");
            assert!(rows.iter().any(|row| row["case"] == case.as_str() && row["metric"] == "latency_mean"));
        }
    }
    drawn(&out, &[("6", "shm, prism-rs"), ("7", "shm, abdlock")], "ABDLOCK, RDMA");
}

#[test]
fn figures_9_and_10_show_transactions_by_clients_and_by_skew() {
    let words = ["bench", "txn", "ycsb-t", "--port", "shm", "--records", "300", "--millis", "5"];
    let out = remora(&[words.as_slice(), &["--rounds", "1", "--json"]].concat()).good();
    let rows = lines(&out);
    for design in ["farm", "prism-tx"] {
        points(&rows, &format!("shm/{design}/512/ycsb-t/uniform"), &[1, 2, 4, 8, 16, 32, 64], false);
    }
    drawn(&out, &[("9", "shm, prism-tx"), ("10", "shm, farm")], "FaRM, RDMA");
}

/// Checks that the figures of saved rows name all rows in their legends, and distinguish measured from
/// modelled times.
#[track_caller]
fn drawn(rows: &str, figures: &[(&str, &str)], modelled: &str) {
    let file = Scratch::new(rows.as_bytes());
    let number = figures[0].0;
    let folder = Folder(tempfile::Builder::new().prefix(number).tempdir().expect("a folder").keep());
    let path = folder.0.to_str().expect("a path of letters");
    let ids: Vec<&str> = figures.iter().map(|(id, _)| *id).collect();
    let words = [&["figures"], ids.as_slice(), &["--rows", file.path(), "--report", path, "--json"]].concat();
    let residuals = lines(&remora(&words).good());
    assert!(residuals.iter().all(|row| row["metric"] == "predicted" && row["holds"].is_boolean()));
    assert!(residuals.len() >= 3, "{residuals:?}");
    for (id, software) in figures {
        let svg = std::fs::read_to_string(folder.0.join(format!("prism-figure-{id}.svg"))).expect("a plot");
        for word in ["model time", "real time", software, modelled] {
            assert!(svg.contains(word), "no {word} in figure {id}");
        }
    }
}

#[test]
fn rows_that_are_none_are_told_by_their_line() {
    let file = Scratch::new(b"{\"bench\":\"kv\",\"case\":\"c\",\"metric\":\"rate\",\"value\":1}\nnonsense\n");
    remora(&["figures", "3", "--rows", file.path()]).one_line("line 2");
    remora(&["figures", "3", "--rows", "/there/is/none"]).one_line("/there/is/none");
}
