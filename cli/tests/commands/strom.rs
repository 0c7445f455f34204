//! `remora bench strom`: its rows. No time is judged here.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::Value;

use crate::running::remora;

/// A task of each kind, and what StRoM is compared to there.
const BESIDE: [(&str, &str, &[&str]); 6] = [
    ("walk/8", "latency_p50", &["reads", "tcp-rpc"]),
    ("get/256", "latency_p50", &["reads", "tcp-rpc"]),
    ("check/4096", "latency_p50", &["read", "read+crc64"]),
    ("check/512/failing-50%", "latency_mean", &["read+crc64"]),
    ("shuffle/16777216", "time", &["write", "sender-partitions"]),
    ("count/1048576", "bandwidth", &["write", "eight threads of the paper"]),
];

/// The benchmark looks at every value that it gets, so that what it measures is what it says.
fn every_task_over(port: &str) {
    let mut cases = BTreeSet::new();
    for (task, metric, beside) in BESIDE {
        let only = format!("{port}/{task}/{metric}");
        let ended = remora(&["bench", "strom", "--port", port, "--rounds", "1", "--json", "--only", &only]);
        if ended.err.contains("which needs root") {
            // Past the test harness, which keeps what tests print.
            let _ = writeln!(std::io::stderr(), "strom over {port}: not run, because it needs CAP_SYS_ADMIN");
            return;
        }
        let out = ended.good();
        let rows: Vec<Value> =
            out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let figures = rows.iter().filter(|row| row["metric"] == metric);
        let baselines: Vec<&str> = figures.filter_map(|row| row["baseline"].as_str()).collect();
        assert_eq!(baselines, beside, "{task}");
        for row in &rows {
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
            assert_eq!((&row["bench"], row["rounds"].as_array().map(Vec::len)), (&"strom".into(), Some(1)));
            cases.extend(row["case"].as_str().map(str::to_owned));
        }
        let judged = rows.iter().filter(|row| !row["holds"].is_null()).count();
        let asked =
            matches!(task, "check/4096" | "check/512/failing-50%" | "shuffle/16777216" | "count/1048576");
        assert_eq!(judged > 0, asked, "{task}");
    }
    for case in ["walk/8/strom", "walk/8/tcp-rpc", "check/4096/read+crc64"] {
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
