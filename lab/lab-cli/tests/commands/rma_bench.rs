//! `remora bench rma`: each case has its rows with their baselines. Times are not checked here.

use serde_json::Value;

use crate::running::{lines, remora};

/// An expected row: its case, its metric and its baseline.
type Wanted<'a> = (&'a str, &'a str, Option<&'a str>);

/// Runs a benchmark once and checks that it prints exactly the expected rows.
fn rows(words: &[&str], wanted: &[Wanted<'_>]) -> Vec<Value> {
    let out =
        remora(&[&["bench", "rma", "--json", "--rounds", "1", "--part", "100", "--only"], words].concat())
            .good();
    let rows = lines(&out);
    let text = |row: &Value, field: &str| row[field].as_str().map(str::to_owned);
    let actual: Vec<_> = rows
        .iter()
        .map(|row| (text(row, "case").unwrap(), text(row, "metric").unwrap(), text(row, "baseline")))
        .collect();
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(case, metric, beside)| ((*case).to_owned(), (*metric).to_owned(), beside.map(str::to_owned)))
        .collect();
    assert_eq!(actual, wanted);
    for row in &rows {
        assert_eq!(
            (&row["bench"], row["rounds"].as_array().map(Vec::len)),
            (&"rma".into(), Some(1)),
            "{row}"
        );
    }
    rows
}

/// Checks that all values are measured, and that `judged` rows have a verdict.
fn measured(rows: &[Value], judged: usize) {
    assert!(rows.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)), "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row["holds"].is_boolean()).count(), judged, "{rows:?}");
}

fn single_operations_over(port: &str) {
    let read = format!("{port}/read/64");
    let latency = rows(
        &[&read, "--port", port],
        &[
            (&read, "latency_p50", Some("rc-read + 1.3 x crypto")),
            (&read, "latency_p50", Some("rc-read")),
            (&read, "crypto_of_both_sides", None),
            (&read, "latency_p99", None),
            (&format!("{read}/window-128"), "rate", Some("1/(1/rc + crypto of the busier side)")),
            (&format!("{read}/window-128"), "rate", Some("rc-read")),
            (&format!("{read}/beside-4-MiB"), "latency_p99", Some("alone + two chunks")),
            (&format!("{read}/beside-4-MiB"), "latency_p99", Some("alone")),
            (&format!("{read}/beside-4-MiB"), "latency_p50", Some("alone")),
            (&format!("{read}/beside-4-MiB"), "time_of_a_chunk", None),
            (&format!("{read}/beside-4-MiB/rc-one-queue-pair"), "latency_p99", Some("alone")),
            (&format!("{read}/beside-4-MiB/rc-one-queue-pair"), "latency_p50", Some("alone")),
        ],
    );
    measured(&latency, 3);
    let write = format!("{port}/write/64");
    measured(&rows(&[&write], &[(&write, "latency_p50", Some("rma-read"))]), 1);
    let long = format!("{port}/read/4096/window-32");
    let goodput = rows(
        &[&long],
        &[
            (&long, "bandwidth", Some("the lesser of RC and the cipher")),
            (&long, "bandwidth", Some("rc-read")),
            (&long, "bandwidth", Some("the cipher of one core")),
        ],
    );
    measured(&goodput, 1);
}

#[test]
fn over_shm_single_operations_stand_beside_rc_and_the_cipher() {
    single_operations_over("shm");
}

#[test]
fn over_udp_single_operations_stand_beside_rc_and_the_cipher() {
    single_operations_over("udp");
}

#[test]
fn cold_keys_stand_beside_warm_ones_and_each_answer_is_under_its_initiators_key() {
    let case = "udp/cold/10000-initiators";
    let cold = rows(
        &[case],
        &[
            (case, "latency_p50", Some("warm + 1.5 x (derivation + set-up)")),
            (case, "latency_p50", Some("warm")),
            (case, "derivation_and_set_up", None),
        ],
    );
    measured(&cold, 1);
}

#[test]
fn an_incast_of_reads_loses_nothing_and_rcs_loss_stands_beside_it() {
    let rma = "udp/incast/32/rma";
    let rc = "udp/incast/32/rc";
    let wanted =
        [(rma, "datagrams_lost", None), (rc, "datagrams_lost", None), (rma, "bandwidth", Some("rc"))];
    let incast = rows(&["incast"], &wanted);
    // The kernel's buffer holds more than the window allows in flight, so the result does not depend on
    // time.
    assert_eq!((&incast[0]["value"], &incast[0]["holds"]), (&0.0.into(), &true.into()), "{incast:?}");
    measured(&incast[2..], 0);
}

#[test]
fn the_software_above_the_nic_is_judged_by_the_papers_rates() {
    let long = "software/executor/4096";
    let short = "software/executor/64";
    let commands = "software/commands";
    let software = rows(
        &["software"],
        &[
            (long, "rate", Some("asked")),
            (long, "cores_for_100_Gbit", Some("the paper's")),
            (short, "rate", Some("asked")),
            (commands, "rate", Some("the paper's, a core")),
        ],
    );
    measured(&software, 3);
}

#[test]
fn the_cipher_stands_beside_openssl_where_that_is_installed() {
    let installed = std::process::Command::new("openssl").arg("version").output().is_ok();
    let beside = installed.then_some("openssl-speed");
    let wanted = [("crypto/seal/64", "bandwidth", beside), ("crypto/seal/4096", "bandwidth", beside)];
    measured(&rows(&["crypto"], &wanted), if installed { 2 } else { 0 });
}

#[test]
fn another_key_is_a_gap_of_a_readers_and_readers_of_other_regions_stand_beside_it() {
    let case = |way: &str| format!("udp/rekey/{way}");
    let ways = [
        "announced",
        "unannounced",
        "one-grant",
        "deregister-and-register",
        "deregister-and-register/nicd",
        "rc-reconnect",
    ]
    .map(case);
    let other = case("other-region");
    let rekey = rows(
        &["rekey"],
        &[
            (&ways[0], "gap", Some("2 round trips + 1 operation")),
            (&ways[1], "gap", Some("2 round trips + 1 operation + 1 grant")),
            (&ways[2], "gap", None),
            (&ways[3], "gap", Some("announced")),
            (&ways[4], "gap", Some("announced")),
            (&ways[5], "gap", Some("announced")),
            (&other, "latency_p50", Some("no key changes")),
            (&other, "latency_p99", Some("no key changes")),
        ],
    );
    measured(&rekey, 3);
}

#[test]
fn programs_of_a_daemon_have_rates_by_their_slots_and_delays_beside_a_bulk_program() {
    let share = |slots: u16| format!("udp/tenants/shares/slots-{slots}");
    let shares = [4, 16, 64].map(share);
    let bulk = "udp/tenants/read-64-beside-bulk";
    let its_share = Some("its slots' share of the rate");
    let tenants = rows(
        &["tenants"],
        &[
            (&shares[0], "rate", its_share),
            (&shares[1], "rate", its_share),
            (&shares[2], "rate", its_share),
            (bulk, "latency_p99", Some("alone + two chunks")),
            (bulk, "latency_p99", Some("alone")),
            (bulk, "time_of_a_chunk", None),
        ],
    );
    measured(&tenants, 4);
}

#[test]
fn while_the_server_rotates_its_key_reads_fail_and_recover() {
    let case = "udp/rotate";
    let out = remora(&["bench", "rma", "--json", "--only", "rotate", "--rotate", "3"]).good();
    let rows = lines(&out);
    let value = |metric: &str| {
        let row = rows.iter().find(|row| row["metric"] == metric && row["case"] == case);
        row.unwrap_or_else(|| panic!("{metric} of {rows:?}"))["value"].as_f64().expect("a number")
    };
    // At least two key changes happen in three seconds, and each interrupts a read of a client that reads
    // all the time.
    assert!(value("reads_failed") >= 1.0 && value("rate") > 0.0 && value("longest_gap") > 0.0, "{rows:?}");
    assert_eq!(value("reads_not_recovered"), 0.0);
}

#[test]
fn what_there_is_not_is_told() {
    remora(&["bench", "rma", "--only", "nothing"]).one_line("no case contains nothing");
    remora(&["bench", "rma", "--port", "xdp"]).one_line("choose shm or udp");
    remora(&["bench", "rma", "--rotate", "0"]).bad_arguments("error: ");
}
