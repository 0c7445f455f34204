//! `remora sim`: scenarios in all formats, their outputs, and the ends of runs.

mod compare;
mod plot;
mod sweep;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::running::{Ended, command, finish_within, remora};

/// A folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of letters").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of a file of the project.
pub(crate) fn own(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
        .to_str()
        .expect("a path of letters")
        .to_owned()
}

fn sim(words: &[&str]) -> Ended {
    remora(&[&["sim"], words].concat())
}

/// Checks the exit status for unfinished flows and findings, and returns the output.
fn incomplete(ended: Ended) -> String {
    assert_eq!(ended.status, 3, "{}", ended.err);
    ended.out
}

#[test]
fn a_seed_gives_the_same_bytes_twice_and_its_outputs_agree() {
    let folder = Folder::new("seed");
    let scenario = own("examples/irn-with-pfc-and-loss.toml");
    let run = |name: &str, seed: &str| {
        let out = folder.path(name);
        sim(&[&scenario, "--seed", seed, "--out", &out]).good();
        ["flows.csv", "summary.json", "unfinished.csv", "scenario.toml"]
            .map(|file| std::fs::read(Path::new(&out).join(file)).expect("an output"))
    };
    let first = run("first", "5");
    assert_eq!(first, run("second", "5"));
    assert_ne!(first[0], run("third", "6")[0]);
    let summary: Value = serde_json::from_slice(&first[1]).expect("JSON");
    assert_eq!((&summary["flows"], &summary["flows_done"]), (&Value::from(12), &Value::from(12)));
    assert!(summary["packets_lost"].as_u64().unwrap() > 0 && summary["pauses"].as_u64().unwrap() > 0);
    let rows = String::from_utf8(first[0].clone()).expect("text");
    assert_eq!(rows.lines().count(), 13, "a head and 12 flows");
}

#[test]
fn json_has_each_flow_and_the_summary() {
    let out = sim(&[&own("examples/irn-with-pfc-and-loss.toml"), "--json"]).good();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.iter().filter(|line| line.get("flow").is_some()).count(), 12);
    assert_eq!(lines.iter().filter(|line| line.get("summary").is_some()).count(), 1);
}

#[test]
fn loss_in_a_lossless_class_is_named_and_ends_with_3() {
    let out = incomplete(sim(&[&own("examples/headroom-0.toml")]));
    assert!(out.contains("lost a packet of lossless class 3 that came by port"), "{out}");
}

#[test]
#[ignore = "nightly: nine figures are a minute of a processor"]
fn nightly_the_signs_of_irn_s_figures_are_the_known_ones() {
    let folder = Folder::new("irn");
    let words = ["figures", "irn", "--quick", "--json", "--report", &folder.path("report")];
    // The computation takes more than a minute beside other tests.
    let out = finish_within(&mut command(&words), Duration::from_secs(480)).good();
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Each control has three metrics, except for the single one of Figure 7.
    let of_figure = |number: u32| {
        let case = format!("simulated/figure-{number}/");
        rows.iter().filter(|row| row["case"].as_str().unwrap().starts_with(&case)).count()
    };
    let counts = [1, 2, 3, 4, 5, 6, 7, 10, 12].map(of_figure);
    assert_eq!(counts, [3, 3, 3, 6, 6, 6, 9, 3, 12]);
    let drawn = std::fs::read_to_string(folder.path("report/irn-figure-1.svg")).expect("a figure");
    assert!(drawn.contains("Simulated"), "it says what it is");
}

#[test]
fn a_deadlock_is_named_as_a_cycle_and_its_flows_are_listed() {
    let out = incomplete(sim(&[&own("examples/ring.toml")]));
    assert!(out.contains("a deadlock of paused ports: 5:1 -> 6:2 -> 7:2 -> 8:2 -> 9:2 -> 5:1"), "{out}");
    assert_eq!(out.matches("unfinished: flow").count(), 5, "{out}");
}

#[test]
fn a_file_of_ns3_and_what_it_is_converted_to_give_the_same_flows() {
    let folder = Folder::new("convert");
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(folder.path("flow.txt"), "2\n0 2 3 100 20000 2.0\n1 3 3 100 5000 2.000001\n").unwrap();
    std::fs::write(folder.path("config.txt"), CONFIG).unwrap();
    let converted = sim(&["convert", &folder.path("config.txt")]).good();
    std::fs::write(folder.path("own.toml"), &converted).unwrap();
    let flows = |scenario: &str, out: &str| {
        sim(&[&folder.path(scenario), "--out", &folder.path(out)]).good();
        let read = |name: &str| std::fs::read_to_string(Path::new(&folder.path(out)).join(name)).unwrap();
        (read("flows.csv"), read("fct.txt"))
    };
    let theirs = flows("config.txt", "a");
    assert_eq!(theirs, flows("own.toml", "b"));
    // The columns are src, dst, sport, dport, size, start, fct and alone.
    let columns: Vec<&str> = theirs.1.lines().next().unwrap().split(' ').collect();
    assert_eq!((columns.len(), columns[4]), (8, "5000"));
}

const TOPOLOGY: &str =
    "5 1 4\n4\n0 4 100Gbps 1000ns 0\n1 4 100Gbps 1000ns 0\n2 4 100Gbps 1000ns 0\n3 4 100Gbps 1000ns 0\n";

const CONFIG: &str = "TOPOLOGY_FILE topology.txt\nFLOW_FILE flow.txt\nCC_MODE 1\nPACKET_PAYLOAD_SIZE 1000\n\
    BUFFER_SIZE 32\nKMAX_MAP 1 100000000000 1600\nKMIN_MAP 1 100000000000 400\nPMAX_MAP 1 100000000000 0.2\n";

#[test]
fn a_matrix_of_htsim_runs_with_its_options() {
    let folder = Folder::new("htsim");
    let matrix =
        "Nodes 16\nConnections 2\n0->15 id 1 start 0 size 20000\n3->4 id 2 start 1000000 size 1000\n";
    std::fs::write(folder.path("two.cm"), matrix).unwrap();
    let out = folder.path("out");
    sim(&[&folder.path("two.cm"), "--out", &out, "--", "-nodes", "16", "-mtu", "1000", "-end", "10000"])
        .good();
    let lines = std::fs::read_to_string(Path::new(&out).join("htsim.txt")).unwrap();
    assert!(lines.lines().all(|line| line.starts_with("Flow Roce_")), "{lines}");
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn what_cannot_run_is_one_line_with_its_remedy() {
    let folder = Folder::new("bad");
    std::fs::write(folder.path("key.toml"), "sed = 1\n[network]\nkind = \"file\"\npath = \"a\"\n").unwrap();
    sim(&[&folder.path("key.toml")]).one_line("unknown field `sed`");
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(folder.path("flow.txt"), "1\n0 2 3 100 20000 2.0\n").unwrap();
    std::fs::write(folder.path("hpcc.txt"), CONFIG.replace("CC_MODE 1", "CC_MODE 3")).unwrap();
    sim(&[&folder.path("hpcc.txt")]).one_line("--control NAME");
    sim(&[&folder.path("hpcc.txt"), "--control", "dcqcn"]).good();
    std::fs::write(folder.path("flow.txt"), "1\n0 9 3 100 20000 2.0\n").unwrap();
    sim(&[&folder.path("hpcc.txt"), "--control", "none"]).one_line("flow.txt:2:");
    sim(&[&folder.path("missing.toml")]).one_line("cannot read");
    sim(&["--json"]).bad_arguments("required arguments were not provided");
}

#[test]
fn a_key_that_is_set_changes_the_scenario_and_what_cannot_be_set_is_one_line() {
    let folder = Folder::new("set");
    let scenario = own("examples/irn-with-pfc-and-loss.toml");
    let out = folder.path("out");
    sim(&[&scenario, "--set", "loss=0", "--set", "workload.0.traffic.size=10KB", "--out", &out]).good();
    let read = |name: &str| std::fs::read_to_string(Path::new(&out).join(name)).unwrap();
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["packets_lost"], Value::from(0));
    assert!(read("scenario.toml").contains("size = \"10KB\""), "{}", read("scenario.toml"));
    for (change, words) in [
        ("transport.nam=irn", "--set: transport.nam: unknown field `nam`"),
        ("mtu=long", "--set: mtu: invalid type"),
        ("workload.1.class=3", "is a list of 1: add an index from 0 to 0"),
        ("switch.pfc=7", "--set: switch.pfc: invalid type: integer `7`, expected a table"),
        (
            "workload.0.traffic=7",
            "expected a table: the page `Keys of a scenario` of the book lists its keys",
        ),
        ("transport.name=rocket", "rocket"),
        ("loss=2", "choose a probability"),
    ] {
        sim(&[&scenario, "--set", change]).one_line(words);
    }
    sim(&[&scenario, "--set", "loss"]).bad_arguments("is not KEY=VALUE");
    // A configuration of ns-3 has the same keys.
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(folder.path("flow.txt"), "1\n0 2 3 100 20000 2.0\n").unwrap();
    std::fs::write(folder.path("config.txt"), CONFIG).unwrap();
    let converted = sim(&["convert", &folder.path("config.txt"), "--set", "switch.mmu=clean"]).good();
    assert!(converted.contains("mmu = \"clean\""), "{converted}");
}

#[test]
fn the_ending_of_a_files_name_is_read_in_capitals_and_a_mark_in_front_of_it_is_skipped() {
    let folder = Folder::new("capitals");
    let matrix = "\u{feff}Nodes 16\r\nConnections 1\r\n0 -> 15 id 1 start 0 size 20000\r\n";
    std::fs::write(folder.path("ONE.CM"), matrix).unwrap();
    sim(&[&folder.path("ONE.CM"), "--", "-mtu", "1000", "-q", "2"]).good();
    let toml = std::fs::read_to_string(own("examples/irn.toml")).unwrap();
    std::fs::write(folder.path("IRN.TOML"), format!("\u{feff}{toml}")).unwrap();
    sim(&["check", &folder.path("IRN.TOML")]).good();
    let wide: Vec<u8> = "\u{feff}seed = 1".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(folder.path("wide.toml"), wide).unwrap();
    sim(&[&folder.path("wide.toml")]).one_line("UTF-16: save it as UTF-8");
}

#[test]
fn packets_longer_than_the_nics_name_the_remedy_of_the_files_own_program() {
    let folder = Folder::new("mtu");
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(folder.path("flow.txt"), "1\n0 2 3 100 20000 2.0\n").unwrap();
    let config = CONFIG.replace("PACKET_PAYLOAD_SIZE 1000", "PACKET_PAYLOAD_SIZE 9000");
    std::fs::write(folder.path("config.txt"), format!("SIMULATOR_STOP_TIME 40000000000000.00\n{config}"))
        .unwrap();
    sim(&[&folder.path("config.txt")]).one_line("set PACKET_PAYLOAD_SIZE, or give `--set mtu=4096`");
    sim(&[&folder.path("config.txt"), "--set", "mtu=4096"]).good();
    std::fs::write(folder.path("one.cm"), "Nodes 16\nConnections 1\n0->15 start 0 size 9\n").unwrap();
    sim(&[&folder.path("one.cm")]).one_line("give htsim's options `-- -mtu 4096`");
}

/// Checks that a run without a completed flow has no times, and that a transport without a timeout is
/// named.
///
/// Regression: a run that stopped after a loss did not name its reason.
#[test]
fn a_run_that_stops_after_a_loss_says_why_and_its_summary_counts_all_packets() {
    let folder = Folder::new("stops");
    let scenario = "loss = 0.2\n[network]\nkind = \"links\"\nnodes = 3\nswitches = [2]\n\
        links = [\"0 2 25Gbps 5us\", \"1 2 25Gbps 5us\"]\n[transport]\nname = \"roce+pfc\"\n\
        [[workload]]\ntraffic = { kind = \"flows\", flows = [\"0: 0->1 100KB at 1ms\"] }\n";
    std::fs::write(folder.path("loss.toml"), scenario).unwrap();
    let out = folder.path("out");
    let says = incomplete(sim(&[&folder.path("loss.toml"), "--out", &out]));
    assert!(
        says.contains("found: packets were lost, and with pauses the transport has no timeout"),
        "{says}"
    );
    assert!(says.contains("`--set transport.rto=320us`"), "{says}");
    let summary = std::fs::read_to_string(Path::new(&out).join("summary.json")).unwrap();
    assert!(!summary.contains("-0"), "{summary}");
    let summary: Value = serde_json::from_str(&summary).unwrap();
    for time in ["fct_us_mean", "fct_us_p99", "slowdown_mean", "slowdown_p50"] {
        assert_eq!(summary[time], Value::Null, "{time}");
    }
    let packets = |name: &str| summary[format!("packets_{name}")].as_u64().expect("a count");
    assert!(packets("lost") > 0);
    assert_eq!(packets("sent"), packets("delivered") + packets("lost") + packets("in_flight"));
    sim(&[&folder.path("loss.toml"), "--set", "transport.rto=320us"]).good();
}
