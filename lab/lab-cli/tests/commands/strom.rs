//! `remora bench strom` and `remora figures strom`: rows and plots. Times are not checked here; the tests
//! of the models check the predictions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::running::{Folder, Scratch, lines, remora};

/// A task of each kind, with its metric and the baselines of StRoM.
const BESIDE: [(&str, &str, &[&str]); 6] = [
    ("walk/8", "latency_p50", &["reads", "tcp-rpc"]),
    ("get/256", "latency_p50", &["reads", "tcp-rpc"]),
    ("check/4096", "latency_p50", &["read", "read+crc64"]),
    ("check/512/failing-50%", "latency_mean", &["read+crc64"]),
    ("shuffle/16777216", "time", &["write", "sender-partitions"]),
    ("count/1048576", "bandwidth", &["write", "eight threads of the paper"]),
];

/// Runs every task over a port. The benchmark checks each value that it receives.
fn every_task_over(port: &str) {
    let mut cases = BTreeSet::new();
    for (task, metric, beside) in BESIDE {
        let only = format!("{port}/{task}/{metric}");
        let ended = remora(&["bench", "strom", "--port", port, "--rounds", "1", "--json", "--only", &only]);
        remora_netns::require!(
            !ended.err.contains("which needs root"),
            "making network namespaces needs root"
        );
        let gets = task.starts_with("get/");
        // A build without WebAssembly kernels prints one line that names the feature to enable.
        let mentions = ended.err.matches("kernels as WebAssembly are left out").count();
        let hints = ended.err.matches("--features wasm").count();
        let out = ended.good();
        let wanted = usize::from(gets && !cfg!(feature = "wasm"));
        assert_eq!((mentions, hints), (wanted, wanted), "{task}");
        let rows: Vec<Value> =
            out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        cases.extend(rows.iter().filter_map(|row| row["case"].as_str()).map(str::to_owned));
        let figures = rows.iter().filter(|row| row["metric"] == metric);
        let baselines: Vec<&str> = figures.filter_map(|row| row["baseline"].as_str()).collect();
        // Of StRoM's two variants for an object, the one with a READ (for objects of one packet) comes
        // first.
        let beside = if cases.contains(&format!("{port}/{task}/strom-read")) {
            beside.repeat(2)
        } else {
            beside.to_vec()
        };
        let users: &[&str] = if cfg!(feature = "wasm") && gets { &["the native kernel"] } else { &[] };
        assert_eq!(baselines, [&beside[..], users].concat(), "{task}");
        for row in &rows {
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
            assert_eq!((&row["bench"], row["rounds"].as_array().map(Vec::len)), (&"strom".into(), Some(1)));
        }
        let judged = rows.iter().filter(|row| !row["holds"].is_null()).count();
        // An object longer than a packet is only checked by RPC, which is not judged.
        let asked = match task {
            "check/4096" => cases.contains(&format!("{port}/{task}/strom-read")),
            _ => matches!(task, "check/512/failing-50%" | "shuffle/16777216" | "count/1048576"),
        };
        assert_eq!(judged > 0, asked, "{task}");
    }
    for case in
        ["walk/8/strom", "walk/8/tcp-rpc", "check/4096/read+crc64", "check/512/failing-50%/strom-read"]
    {
        assert!(cases.contains(&format!("{port}/{case}")), "{case} of {cases:?}");
    }
}

#[test]
fn over_shm_each_task_is_done_by_a_kernel_and_by_what_it_is_compared_to() {
    every_task_over("shm");
}

#[test]
fn over_udp_each_task_is_done_by_a_kernel_and_by_what_it_is_compared_to() {
    every_task_over("udp");
}

#[test]
fn over_xdp_each_task_is_done_by_a_kernel_and_by_what_it_is_compared_to() {
    every_task_over("xdp");
}

/// Figures of the models, with the number of values stated in the paper's text, each of which is compared
/// to a row.
const PREDICTED: [(&str, usize); 12] = [
    ("figure-5a", 0),
    ("figure-5b", 2),
    ("figure-5c", 0),
    ("figure-7", 0),
    ("figure-8", 3),
    ("figure-9", 2),
    ("figure-10", 0),
    ("figure-11", 0),
    ("figure-12a", 0),
    ("figure-12b", 0),
    ("figure-12c", 0),
    ("figure-13", 1),
];

#[test]
fn models_have_rows_beside_the_numbers_of_the_text_and_each_figure_is_drawn() {
    let folder = Folder::new("strom");
    let path = folder.0.to_str().expect("a path of letters");
    let words = ["bench", "strom", "--port", "shm", "--json", "--report", path, "--only"];
    let rows = remora(&[&words[..], &["model:"]].concat()).good();
    let rows = lines(&rows);
    for (figure, stated) in PREDICTED {
        let is_of =
            |row: &&Value| row["case"].as_str().is_some_and(|case| case.contains(&format!("/{figure}/")));
        let matching: Vec<&Value> = rows.iter().filter(is_of).collect();
        assert!(matching.len() > stated, "{figure}");
        let compared = matching
            .iter()
            .filter(|row| row["baseline"].as_str().is_some_and(|baseline| baseline.starts_with("paper, ")));
        assert_eq!(compared.count(), stated, "{figure}");
        let svg = folder.read(&format!("strom-{figure}.svg"));
        assert!(svg.contains("model time") && !svg.contains("in this software"), "{figure}");
    }
    assert!(
        rows.iter().all(|row| row["case"].as_str().is_some_and(|case| case.starts_with("model:StromFpga")))
    );
    remora(&[&words[..], &["nothing"]].concat()).one_line("no case or metric contains nothing");
}

#[test]
fn figures_show_what_was_measured_beside_the_models_where_rows_are_given() {
    let folder = Folder::new("strom-rows");
    let path = folder.0.to_str().expect("a path of letters");
    let row = |case: &str, value: f64| {
        let beside = r#""baseline":"reads","baseline_value":5e3"#;
        format!(r#"{{"bench":"strom","case":"{case}","metric":"latency_p50","value":{value},{beside}}}"#)
            + "\n"
    };
    let rows = Scratch::new([row("shm/walk/4/strom", 2e3), row("udp/walk/4/strom", 9e3)].concat().as_bytes());
    let out = remora(&["figures", "strom", "--rows", rows.path(), "--report", path]).good();
    assert!(out.contains("model:StromFpga10G/figure-7/strom/4"), "{out}");
    let svg = folder.read("strom-figure-7.svg");
    for word in ["Figure 7 in model time", "in this software over shm", "in this software over udp", "reads"]
    {
        assert!(svg.contains(word), "no {word} in {svg}");
    }
    assert!(!folder.read("strom-figure-8.svg").contains("in this software"));
}
