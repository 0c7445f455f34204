//! `remora bench dropin` on this library: each case runs, and has its rows. Times are not judged.

use std::path::Path;
use std::process::Command;

use crate::library::{done, folder, remora};

/// Runs the cases of a port whose path contains these words, once and with few messages. Returns the rows.
fn rows(port: &str, only: &str, report: &Path) -> Vec<String> {
    let mut bench = Command::new(remora());
    bench.args([
        "bench", "dropin", "--rounds", "1", "--part", "1000", "--json", "--port", port, "--only", only,
    ]);
    let printed = done(bench.arg("--libraries").arg(folder()).arg("--report").arg(report));
    printed.lines().map(str::to_owned).collect()
}

#[test]
fn the_bench_puts_programs_beside_the_native_api() {
    let report = tempfile::tempdir().expect("a folder").keep();
    let mut records = rows("shm", "ib_", &report);
    records.extend(rows("udp", "ib_write_bw", &report));
    for (case, judged) in [
        ("shm/ib_read_lat/64", "latency_over_native"),
        ("shm/ib_send_lat/64", "latency_over_native"),
        ("shm/ib_write_bw/65536", "bandwidth"),
        ("shm/ib_read_bw/65536", "bandwidth"),
        ("shm/ib_write_bw/64/batch-16", "rate"),
        ("udp/ib_write_bw/65536", "bandwidth"),
        ("udp/ib_write_bw/64/batch-16", "rate"),
    ] {
        let words =
            [format!(r#""case":"{case}""#), format!(r#""metric":"{judged}""#), r#""holds":"#.to_owned()];
        let row = records.iter().find(|row| words.iter().all(|word| row.contains(word)));
        assert!(row.is_some_and(|row| !row.contains("null")), "no {case}: {records:?}");
        let native = format!(r#""case":"{case}/native""#);
        assert!(records.iter().any(|row| row.contains(&native)), "no native rounds of {case}: {records:?}");
    }
    assert!(report.join("dropin.svg").exists());
    std::fs::remove_dir_all(report).unwrap();
}
