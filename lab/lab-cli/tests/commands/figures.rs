//! Output for other programs: JSON that parses and is complete. The values are not checked, because tests
//! run on busy machines.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::running::{command, remora};

#[track_caller]
fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

#[track_caller]
fn positive(line: &Value, field: &str) {
    assert!(line[field].as_f64().is_some_and(|value| value > 0.0), "{field} of {line}");
}

/// Each row has round trips, median, p99, throughput and server CPU, and the report draws them.
#[test]
fn the_demo_reads_each_design_over_each_port_and_no_value_is_wrong() {
    // The demo itself checks each value and fails if one is wrong.
    let words = ["demo", "--records", "2000", "--gets", "1000", "--value-len", "64,300", "--json"];
    let out = remora(&words).good();
    let lines = lines(&out);
    let cases: Vec<&str> = lines.iter().filter_map(|line| line["case"].as_str()).collect();
    let mut expected = Vec::new();
    for port in ["shm", "udp", "xdp"] {
        for len in [64, 300] {
            let designs = ["pilaf", "farm", "two-sided", "prism", "strom", "redn", "farm-irn", "farm-rma"];
            // Frames of shm never leave this host, so some designs do not apply.
            let count = if port == "shm" { 6 } else { 8 };
            expected.extend(designs[..count].iter().map(|design| format!("{port}/{design}-get/{len}")));
        }
    }
    // If no network namespaces can be created, xdp is not measured.
    assert!(cases == expected || cases == expected[..28], "{cases:?}");
    for line in &lines {
        assert_eq!(line["bench"], "demo");
        for field in ["round_trips", "latency_p50_ns", "latency_p99_ns", "rate_per_s"] {
            positive(line, field);
        }
        // The kernel counts CPU time in ticks, and so few GETs may fit between two ticks.
        assert!(line["server_cpu_ns_per_get"].as_f64().is_some_and(|ns| ns >= 0.0), "{line}");
    }
}

/// Returns the output of the command on a terminal.
fn on_a_terminal(words: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&near).and_then(|()| unlockpt(&near)).expect("a terminal");
    let name = ptsname(&near, Vec::new()).expect("its name").into_string().expect("ASCII");
    let far = std::fs::File::options().read(true).write(true).open(name).expect("its other end");
    let mut child =
        command(words).env("TERM", "xterm").stdout(Stdio::null()).stderr(far).spawn().expect("it");
    let mut near = std::fs::File::from(near);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    // Reading fails when the last process with the other end of the terminal has ended.
    while let Ok(count @ 1..) = near.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().expect("a child").success());
    String::from_utf8_lossy(&shown).into_owned()
}

/// Regression: `make demo` printed nothing for minutes.
#[test]
fn the_demo_shows_a_bar_to_a_person_and_a_line_for_each_row_to_a_pipe() {
    let report = tempfile::tempdir().expect("a folder").keep();
    let folder = report.to_str().expect("a name");
    let words = [
        "demo",
        "--records",
        "2000",
        "--gets",
        "1000",
        "--value-len",
        "64",
        "--port",
        "shm",
        "--report",
        folder,
    ];
    let shown = on_a_terminal(&words);
    assert!(shown.contains("farm over shm: 2000 records") && shown.contains("2/6"), "{shown}");
    let piped = remora(&words);
    let messages: Vec<&str> = piped.err.lines().collect();
    assert!(messages.len() == 6 && messages[3] == "4 of 6: indirect READ (PRISM) over shm", "{messages:?}");
    let table = piped.good();
    for column in ["round trips", "median", "p99", "GETs/s", "server CPU per GET"] {
        assert!(table.contains(column), "{table}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    assert_eq!(page.matches("<svg").count(), 4, "a picture of each column");
    assert!(
        page.contains("GET kernel (StRoM)") && page.contains("chain (RedN)") && !page.contains("<script"),
        "{page}"
    );
    std::fs::remove_dir_all(&report).expect("removed");
    let help = remora(&["demo", "--help"]).good();
    assert!(help.contains("[default: 1000000]"), "a million records: {help}");
}

#[test]
fn logs_are_there_for_who_asks() {
    let asked = crate::running::finish(command(&["devinfo"]).env("RUST_LOG", "info"));
    assert!(asked.err.contains("adapter open") && asked.err.contains("adapter closed"), "{}", asked.err);
    assert_eq!(remora(&["devinfo"]).err, "");
}

#[test]
fn figures_of_the_verbs_have_their_rounds_and_their_baseline() {
    let out = remora(&["bench", "verbs", "--rounds", "1", "--only", "latency", "--json"]).good();
    let lines = lines(&out);
    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(line["bench"], "verbs");
        assert!(line["case"].is_string() && line["metric"].is_string() && line["unit"].is_string(), "{line}");
        // A difference may have either sign: on a busy machine the slower run may be the one that is
        // subtracted.
        if line["metric"] == "latency_over_raw_ring" || line["metric"] == "kernel_slower_by" {
            assert!(line["value"].is_number(), "{line}");
        } else {
            positive(line, "value");
        }
        assert_eq!(line["rounds"].as_array().map(Vec::len), Some(1), "{line}");
    }
    for port in ["shm", "udp"] {
        let compared = lines.iter().find(|line| {
            line["case"].as_str().is_some_and(|case| case.starts_with(port)) && line["baseline"].is_string()
        });
        let compared = compared.unwrap_or_else(|| panic!("{port} has a baseline"));
        positive(compared, "baseline_value");
        positive(compared, "ratio");
    }
}

/// Checks that the latency of a 64 B READ is reported beside that of raw AF_XDP frames, and the rate of
/// READs beside that of a raw echo, from one run.
#[test]
fn figures_of_xdp_stand_beside_raw_frames() {
    let ended = remora(&["bench", "verbs", "--port", "xdp", "--rounds", "1", "--only", "xdp/r", "--json"]);
    remora_netns::require!(!ended.err.contains("which needs root"), "making network namespaces needs root");
    let lines = lines(&ended.good());
    let find = |metric: &str, baseline: &str| {
        let matching = lines.iter().find(|line| line["metric"] == metric && line["baseline"] == baseline);
        matching.unwrap_or_else(|| panic!("{metric} beside {baseline}: {lines:?}"))
    };
    for line in [find("latency_p50", "raw-xdp-pingpong"), find("rate", "raw-xdp-echo")] {
        assert!(line["case"].as_str().is_some_and(|case| case.starts_with("xdp/read/64")), "{line}");
        for field in ["value", "baseline_value", "ratio"] {
            positive(line, field);
        }
    }
    for metric in ["latency_over_raw_xdp", "other_code", "kernel_slower_by"] {
        assert!(lines.iter().any(|line| line["metric"] == metric && line["value"].is_number()), "{metric}");
    }
}

#[test]
fn every_ycsb_workload_runs_and_no_answer_is_wrong() {
    for workload in ["A", "B", "C", "d", "E", "f"] {
        let words = ["bench", "kv", "--workload", workload, "--design", "farm", "--port", "shm"];
        let more = ["--records", "2000", "--operations", "6400"];
        let more =
            [&more[..], &["--rounds", "1", "--distribution", "zipf", "--no-rivals", "--json"]].concat();
        let out = remora(&[words.as_slice(), more.as_slice()].concat()).good();
        let keys = if workload == "d" { "latest" } else { "zipf-0.99" };
        let case = format!("shm/farm/512/ycsb-{}/{keys}", workload.to_lowercase());
        let lines = lines(&out);
        let trips =
            lines.iter().find(|line| line["case"] == case.as_str() && line["metric"] == "round_trips");
        let trips = trips.and_then(|line| line["value"].as_f64()).expect("round trips");
        match workload {
            // A scan of 1 to 100 records is done as that many GETs with two round trips each.
            "E" => assert!(trips > 20.0, "{trips}"),
            // Half of the operations are a GET followed by a PUT.
            "f" => assert!(trips > 2.2 && trips < 3.5, "{trips}"),
            _ => assert!((1.0..=2.5).contains(&trips), "{workload}: {trips}"),
        }
    }
}

#[test]
#[ignore = "soak: needs Redis, which `make setup-bench` installs"]
fn soak_every_ycsb_workload_ends_against_the_rivals_too() {
    for rival in ["memcached", "redis-server"] {
        let status = Command::new(rival).arg("--version").stdout(Stdio::null()).status();
        assert!(status.is_ok(), "{rival} is not installed: run `make setup-bench`");
    }
    for workload in ["A", "B", "C", "D", "E", "F"] {
        let words = ["bench", "kv", "--workload", workload, "--design", "pilaf", "--port", "shm"];
        let more =
            ["--records", "500", "--operations", "6400", "--rounds", "1", "--distribution", "zipf", "--json"];
        let lines = lines(&remora(&[words.as_slice(), more.as_slice()].concat()).good());
        for rival in ["memcached", "redis"] {
            let keys = if workload == "D" { "latest" } else { "zipf-0.99" };
            let case = format!("tcp/{rival}/512/ycsb-{}/{keys}/window-1024", workload.to_lowercase());
            let line = lines.iter().find(|line| line["case"] == case.as_str());
            positive(line.unwrap_or_else(|| panic!("{case}")), "value");
            let beside = lines.iter().find(|line| line["metric"] == "rate" && line["baseline"] == rival);
            positive(beside.unwrap_or_else(|| panic!("{workload} beside {rival}")), "ratio");
        }
    }
}

#[test]
fn each_design_is_judged_by_its_bare_verbs_and_its_own_work() {
    let words =
        ["bench", "kv", "--port", "shm", "--records", "2000", "--rounds", "1", "--no-rivals", "--json"];
    let more = ["--distribution", "zipf", "--operations", "6400"];
    let lines = lines(&remora(&[words.as_slice(), &more].concat()).good());
    prism_stands_beside_pilaf(&lines, "shm");
    for design in ["pilaf", "farm", "two-sided"] {
        for work in ["ycsb-c", "put"] {
            let case = format!("shm/{design}/512/{work}/zipf-0.99");
            let rows_of = |metric: &str| {
                lines
                    .iter()
                    .filter(|line| line["case"] == case.as_str() && line["metric"] == metric)
                    .collect()
            };
            let work: Vec<&Value> = rows_of("cpu_work");
            assert_eq!(work.len(), 1, "{case}");
            positive(work[0], "value");
            let latency: Vec<&Value> = rows_of("latency_p50");
            let judged: Vec<&&Value> = latency.iter().filter(|line| line["holds"].is_boolean()).collect();
            assert_eq!((latency.len(), judged.len()), (2, 1), "{case}");
            let number = |line: &Value, field: &str| line[field].as_f64().expect("a number");
            let ratio = number(judged[0], "value") / number(judged[0], "baseline_value");
            assert!((number(judged[0], "ratio") - ratio).abs() < 1e-9, "{}", judged[0]);
            assert_eq!(judged[0]["holds"], (ratio <= 1.15), "{}", judged[0]);
            // The row has a larger baseline than the bare verbs.
            let verbs = latency.iter().find(|line| line["baseline"] == "round trips x bare verb");
            let verbs = number(verbs.expect("the verbs alone"), "baseline_value");
            let whole = verbs + number(work[0], "value");
            assert!((number(judged[0], "baseline_value") - whole).abs() < 1e-6, "{}", judged[0]);
        }
    }
}

/// Checks that PRISM-KV has judged rows for a maximum latency and a minimum rate, whatever the values.
#[track_caller]
fn prism_stands_beside_pilaf(lines: &[Value], port: &str) {
    let beside = |case: &str, metric: &str| {
        let matching = lines.iter().find(|line| {
            (&line["case"], &line["metric"], &line["baseline"])
                == (&case.into(), &metric.into(), &"pilaf".into())
        });
        matching.unwrap_or_else(|| panic!("{case}, {metric}: {lines:?}"))
    };
    let most = if port == "shm" { 0.75 } else { 0.6 };
    let reads = format!("{port}/prism/512/ycsb-c/zipf-0.99");
    let latency = beside(&reads, "latency_p50");
    assert_eq!((&latency["limit"], latency["holds"].is_boolean()), (&most.into(), true), "{latency}");
    let rate = beside(&format!("{reads}/window-64"), "rate");
    assert_eq!((&rate["least"], rate["holds"].is_boolean()), (&1.22.into(), true), "{rate}");
    if port == "shm" {
        let updates = beside("shm/prism/512/ycsb-a/zipf-0.99/window-64", "rate");
        assert_eq!(updates["least"], 1.0, "{updates}");
    }
}

#[test]
fn over_xdp_the_key_value_designs_stand_beside_each_other_too() {
    let words = ["bench", "kv", "--port", "xdp", "--records", "500", "--rounds", "1", "--workload", "C"];
    let more = ["--distribution", "zipf", "--operations", "6400", "--no-rivals", "--json"];
    let ended = remora(&[words.as_slice(), &more].concat());
    remora_netns::require!(!ended.err.contains("which needs root"), "making network namespaces needs root");
    let lines = lines(&ended.good());
    for design in ["pilaf", "farm", "two-sided", "prism"] {
        let case = format!("xdp/{design}/512/ycsb-c/zipf-0.99/window-64");
        let line = lines.iter().find(|line| line["case"] == case.as_str() && line["metric"] == "rate");
        positive(line.unwrap_or_else(|| panic!("{case}")), "value");
    }
    prism_stands_beside_pilaf(&lines, "xdp");
}

/// Both commands list which ports this machine can run and why not, what the drivers offer, and how
/// exactly each port checks the ICRC.
#[test]
fn doctor_and_devinfo_speak_json() {
    let doctor = remora(&["doctor", "--json"]);
    for finding in lines(&doctor.out) {
        assert!(finding["what"].is_string() && finding["found"].is_string(), "{finding}");
        let verdict = finding["verdict"].as_str().expect("a verdict");
        assert!(["good", "limited", "missing"].contains(&verdict), "{finding}");
        assert!(verdict == "good" || finding["mend"].is_string(), "nothing to mend it: {finding}");
    }
    for port in ["port shm", "port udp", "port udp, IPv6", "port xdp"] {
        let finding = lines(&doctor.out).into_iter().find(|finding| finding["what"] == port);
        let finding = finding.unwrap_or_else(|| panic!("{port} is not told of: {}", doctor.out));
        let is_stated = finding["found"].as_str().is_some_and(|text| text.contains("ICRC"));
        assert!(is_stated || finding["verdict"] != "good", "how far its ICRC is checked: {finding}");
    }
    assert!(doctor.out.lines().count() >= 6, "{}", doctor.out);
    for port in ["shm", "udp"] {
        let info = lines(&remora(&["devinfo", "--port", port, "--json"]).good());
        assert_eq!((info.len(), &info[0]["port"], &info[0]["state"]), (1, &port.into(), &"ACTIVE".into()));
    }
}

#[test]
fn the_help_of_every_command_shows_an_example() {
    let commands: [&[&str]; 17] = [
        &[],
        &["demo"],
        &["serve"],
        &["serve", "kv"],
        &["kv"],
        &["kv", "get"],
        &["kv", "put"],
        &["kv", "delete"],
        &["kv", "load"],
        &["bench"],
        &["bench", "kv"],
        &["bench", "block"],
        &["figures"],
        &["devinfo"],
        &["doctor"],
        &["top"],
        &["capture"],
    ];
    for words in commands {
        let help = remora(&[words, &["--help"]].concat()).good();
        let example = format!("  remora {}", words.join(" "));
        let shown = help.split_once("Example").is_some_and(|(_, rest)| rest.contains(example.trim_end()));
        assert!(shown, "{words:?}: {help}");
    }
}
