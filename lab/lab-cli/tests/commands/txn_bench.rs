//! `remora bench txn`: short runs over shm, with its counts and sums.

use serde_json::Value;

use crate::running::remora;

fn rows(words: &[&str]) -> Vec<Value> {
    let all =
        [&["bench", "txn", "--port", "shm", "--rounds", "1", "--millis", "10", "--json"], words].concat();
    let ended = remora(&all);
    ended.good().lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

#[track_caller]
fn figure(rows: &[Value], case: &str, metric: &str) -> f64 {
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    row.and_then(|row| row["value"].as_f64()).unwrap_or_else(|| panic!("no {metric} of {case} in {rows:?}"))
}

const METRICS: [&str; 8] = [
    "latency_p50",
    "latency_p99",
    "latency_mean",
    "rate",
    "round_trips",
    "attempted",
    "committed",
    "aborted",
];

#[test]
fn ycsb_t_takes_two_round_trips_over_prism_tx_and_four_over_farm() {
    let rows = rows(&["ycsb-t", "--records", "500"]);
    for (design, trips) in [("prism-tx", 2.0), ("farm", 4.0)] {
        for window in [1, 2, 4, 8, 16, 32, 64] {
            let case = format!("shm/{design}/512/ycsb-t/uniform/window-{window}");
            let [p50, p99, mean, rate, counted, attempted, committed, aborted] =
                METRICS.map(|metric| figure(&rows, &case, metric));
            assert!(0.0 < p50 && p50 <= p99 && mean > 0.0 && rate > 0.0, "{rows:?}");
            assert_eq!(attempted, committed + aborted, "{rows:?}");
            if window == 1 {
                assert_eq!((counted, aborted), (trips, 0.0), "{rows:?}");
            }
        }
        for skew in ["uniform", "zipf-0.2", "zipf-0.99", "zipf-1.6"] {
            let case = format!("shm/{design}/512/ycsb-t/{skew}");
            assert!(figure(&rows, &case, "rate") > 0.0);
        }
    }
    let floor: Vec<&Value> = rows
        .iter()
        .filter(|row| row["baseline"].as_str().is_some_and(|baseline| baseline.starts_with("round trips")))
        .collect();
    assert!(
        floor.len() == 3
            && floor.iter().all(|row| row["case"].as_str().is_some_and(|case| case.contains("farm")))
    );
    assert!(floor.iter().filter(|row| row["limit"] == 1.15).count() == 1, "{floor:?}");
}

/// Checks that the benchmarks run. Each of them adds up all rows at its end and fails if a sum is wrong.
#[test]
fn smallbank_and_tatp_run_and_their_rows_add_up() {
    let rows = rows(&["smallbank", "tatp", "--customers", "50", "--subscribers", "20"]);
    for (workload, len) in [("smallbank", 16), ("tatp", 44)] {
        for design in ["prism-tx", "farm"] {
            for window in [1, 16, 64] {
                let case = format!("shm/{design}/{len}/{workload}/window-{window}");
                let [.., attempted, committed, aborted] = METRICS.map(|metric| figure(&rows, &case, metric));
                assert!(committed > 0.0 && attempted == committed + aborted, "{rows:?}");
            }
            assert!(figure(&rows, &format!("shm/{design}/{len}/{workload}"), "rate") > 0.0);
        }
    }
}

/// Runs SmallBank over a network port. The benchmark checks that everything loaded and committed is
/// present.
#[track_caller]
fn adds_up_over(port: &str) {
    let words = ["bench", "txn", "smallbank", "--port", port, "--rounds", "1", "--millis", "5"];
    let ended = remora(&[words.as_slice(), &["--customers", "50", "--json"]].concat());
    remora_netns::require!(!ended.err.contains("which needs root"), "making network namespaces needs root");
    let rows: Vec<Value> =
        ended.good().lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    for design in ["prism-tx", "farm"] {
        assert!(figure(&rows, &format!("{port}/{design}/16/smallbank/window-16"), "committed") > 0.0);
    }
}

#[test]
fn over_udp_the_money_adds_up() {
    adds_up_over("udp");
}

#[test]
fn over_xdp_the_money_adds_up() {
    adds_up_over("xdp");
}

#[test]
fn wrong_words_are_refused() {
    remora(&["bench", "txn", "ycsb"]).bad_arguments("'ycsb'");
    remora(&["bench", "txn", "--records", "1"]).bad_arguments("records");
    remora(&["bench", "txn", "--keys", "5"]).bad_arguments("keys");
}
