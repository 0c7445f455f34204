//! `remora bench redn` and `remora figures redn`: model time. The tests of the chains check the
//! predictions.

use serde_json::Value;

use crate::running::{Folder, lines, remora};

fn bench(folder: &Folder, more: &[&str]) -> crate::running::Ended {
    let path = folder.0.to_str().expect("a path of letters");
    let words = ["bench", "redn", "--json", "--report", path];
    remora(&[&words[..], more].concat())
}

#[test]
fn every_figure_is_rows_beside_the_papers_and_a_plot_and_twice_the_same() {
    let folder = Folder::new("redn");
    let first = bench(&folder, &["--only", "model:"]).good();
    assert_eq!(first, bench(&folder, &["--only", "model:"]).good(), "the same rows");
    let rows = lines(&first);
    for figure in [
        "figure-7",
        "figure-8",
        "figure-10",
        "figure-11",
        "figure-13",
        "figure-14",
        "table-3",
        "table-4",
        "table-5",
    ] {
        let matching: Vec<&Value> = rows
            .iter()
            .filter(|row| row["case"].as_str().is_some_and(|case| case.contains(&format!("/{figure}/"))))
            .collect();
        assert!(!matching.is_empty(), "{figure}");
        let name = format!("redn-{figure}.svg");
        let svg = folder.read(&name);
        for word in ["model time", "the authors", "</svg>"] {
            assert!(svg.contains(word), "no {word} in {name}");
        }
        // This row is a chain of Remora's own, which has not been measured on such a NIC.
        for row in
            matching.into_iter().filter(|row| !row["case"].as_str().unwrap().contains("/list-break.chain/"))
        {
            let number = |field: &str| row[field].as_f64().expect("a number");
            assert!((number("ratio") - number("value") / number("baseline_value")).abs() < 1e-9, "{row}");
            assert!(
                row["baseline"].as_str().is_some_and(|baseline| baseline.starts_with("paper, ")),
                "{row}"
            );
        }
    }
    residuals_are_told(&rows, &folder);
    bench(&folder, &["--only", "nothing"]).one_line("no case or metric contains nothing");
}

/// Checks that each number of the authors has a residual, that misses and rivals have a reason, and that
/// the printed text agrees.
fn residuals_are_told(rows: &[Value], folder: &Folder) {
    for row in rows.iter().filter(|row| row["baseline_value"].is_f64()) {
        let ratio = row["ratio"].as_f64().expect("a number");
        let residual = row["residual"].as_f64().expect("a residual");
        assert!((residual - (ratio - 1.0) * 100.0).abs() < 0.1, "{row}");
        let rival = row["baseline"].as_str().is_some_and(|baseline| baseline.ends_with("a rival's"));
        assert_eq!(row["reason"].is_string(), rival || row["holds"] == false, "{row}");
    }
    let over_sizes = |row: &&Value| {
        let case = row["case"].as_str().expect("a path");
        ["figure-10/redn/", "figure-11/redn-", "figure-14/redn/"].iter().any(|figure| case.contains(figure))
    };
    let missed: Vec<&str> =
        rows.iter().filter(over_sizes).filter(|row| row["holds"] == false).map(named).collect();
    assert_eq!(missed, ["model:ConnectX5/figure-11/redn-seq/64"]);
    let path = folder.0.to_str().expect("a path of letters");
    let table = remora(&["bench", "redn", "--only", "model:", "--report", path]).good();
    let line = table.lines().find(|line| line.starts_with(missed[0])).expect("its line");
    assert!(line.contains("-21.9 %, MISSED: 0.8 to 1.2x, the second look is"), "{line}");
}

/// Checks that chains, READs and calls return the values they look for (the benchmark compares them). Speed
/// is not checked.
#[test]
fn the_same_runs_in_real_software_each_way_beside_the_others() {
    let folder = Folder::new("redn-real");
    let rates = bench(&folder, &["--only", "software/loopback", "--rounds", "1"]).good();
    let names: Vec<String> =
        lines(&rates).iter().map(|row| row["case"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["nop", "if", "while-recycled"].map(|name| format!("software/loopback/{name}")));
    for port in ["shm", "udp", "xdp"] {
        for (lookup, ways) in [("hash-get/1024/", 3), ("list-of-8/range-4", 4)] {
            let case = format!("software/{port}/{lookup}");
            let ended = bench(&folder, &["--only", &case, "--port", port, "--rounds", "1"]);
            remora_netns::require!(
                !ended.err.contains("which needs root"),
                "making network namespaces needs root"
            );
            let rows = lines(&ended.good());
            assert_eq!(rows.len(), 2 * ways, "{case}: {rows:?}");
            assert!(
                rows.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)),
                "{rows:?}"
            );
            for (rows, metric) in rows.chunks(ways).zip(["latency_p50", "rate"]) {
                assert!(rows.iter().all(|row| row["metric"] == metric), "{rows:?}");
                assert!(rows[1..].iter().all(|row| row["baseline"] == "the chain"), "{rows:?}");
            }
        }
    }
}

/// Checks that each value and each answer to a SET is compared. Speed is not checked.
#[test]
fn a_reader_beside_writers_gets_its_values_by_a_chain_and_by_a_call() {
    let folder = Folder::new("redn-isolation");
    let rows = bench(&folder, &["--only", "software/shm/isolation/", "--rounds", "1"]).good();
    let rows = lines(&rows);
    assert_eq!(rows.len(), 5 * 2 * 4, "writers, ways, metrics: {rows:?}");
    assert!(rows.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)), "{rows:?}");
    let judged: Vec<&str> = rows.iter().filter(|row| row["holds"].is_boolean()).map(named).collect();
    let asked = ["chain", "two-sided"].map(|way| format!("software/shm/isolation/writers-16/{way}"));
    assert_eq!(judged, asked);
    let svg = folder.read("redn-figure-15.svg");
    for word in ["real time", "RedN, p99", "two-sided, p99", "the authors", "</svg>"] {
        assert!(svg.contains(word), "no {word} in the figure");
    }
}

fn named(row: &Value) -> &str {
    row["case"].as_str().expect("a path")
}
