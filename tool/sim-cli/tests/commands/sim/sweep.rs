//! `remora sim sweep`: its list, its runs, and the finished and unfinished runs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Folder, sim};
use crate::running::{command, finish};

/// Returns a scenario with four hosts and this traffic.
fn base(traffic: &str) -> String {
    format!(
        "[network]\nkind = \"dumbbell\"\nleft = 2\nright = 2\nrate = \"100Gbps\"\nmiddle-rate = \"40Gbps\"\n\
        delay = \"1us\"\n[[workload]]\ntraffic = {{ {traffic} }}\n"
    )
}

/// An incast in which one host receives 10 KB from each other host.
const INCAST: &str = "kind = \"incast\", senders = 3, size = \"10KB\", to = 0";

/// Returns traffic in which each host starts flows during `duration`.
fn poisson(duration: &str) -> String {
    format!("kind = \"poisson\", sizes = \"irn\", load = 0.9, duration = \"{duration}\"")
}

const SWEEP: &str = "base = \"base.toml\"\n[[axis]]\nkey = \"transport.name\"\nvalues = [\"irn\", \"roce+pfc\"]\n\
    [[axis]]\nkey = \"workload.0.traffic.size\"\nvalues = [\"10KB\", \"100KB\"]\n[[axis]]\nkey = \"seed\"\nvalues = [1, 2]\n";

fn folder(name: &str, traffic: &str, sweep: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::write(folder.path("base.toml"), base(traffic)).unwrap();
    std::fs::write(folder.path("sweep.toml"), sweep).unwrap();
    folder
}

/// Returns the folders of runs, or none if the sweep's folder does not exist.
fn runs(folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

fn summary(run: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(run.join("summary.json")).ok()?).ok()
}

/// Returns the number of finished runs.
fn done(folder: &str) -> usize {
    let whole =
        |run: &PathBuf| summary(run).is_some_and(|summary| summary["interrupted"] == Value::Bool(false));
    runs(folder).iter().filter(|run| whole(run)).count()
}

/// Returns the names and contents of the files of all runs.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for run in runs(folder) {
        for file in std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(folder).unwrap().display().to_string();
            files.push((name, std::fs::read(&file).unwrap()));
        }
    }
    files.sort();
    files
}

fn list(folder: &Folder, out: &str) -> Vec<String> {
    let printed = sim(&["sweep", &folder.path("sweep.toml"), "--out", out, "--list"]).good();
    printed.lines().map(str::to_owned).collect()
}

#[test]
fn the_list_through_xargs_gives_the_files_of_jobs_and_done_runs_are_skipped() {
    let folder = folder("sweep", INCAST, SWEEP);
    let [jobs, xargs] = ["jobs", "xargs"].map(|name| folder.path(name));
    let output = sim(&["sweep", &folder.path("sweep.toml"), "--out", &jobs, "--jobs", "2"]).good();
    assert!(
        output.contains("transport.name=irn, workload.0.traffic.size=10KB, seed=1: slowdown mean"),
        "{output}"
    );
    assert!(output.contains("8 of 8 runs are done"), "{output}");
    assert_eq!(list(&folder, &jobs), [""; 0], "all are done");
    let again = sim(&["sweep", &folder.path("sweep.toml"), "--out", &jobs]).good();
    assert_eq!(again.lines().count(), 1, "{again}");

    let lines = list(&folder, &xargs);
    assert_eq!(lines.len(), 8);
    assert!(
        lines[0].contains(" sim ") && lines[0].contains("--set transport.name=irn --set"),
        "{}",
        lines[0]
    );
    std::fs::write(folder.path("list"), lines.join("\n") + "\n").unwrap();
    let mut command = Command::new("xargs");
    command.args(["-a", &folder.path("list"), "-d", "\n", "-P", "2", "-I{}", "sh", "-c", "{}"]);
    finish(&mut command).good();
    assert_eq!(files(&jobs), files(&xargs));
    // Half of the runs have pauses and therefore one more file.
    assert_eq!(files(&jobs).len(), 8 * 4 + 4);

    // The sweep then only writes the table, since all runs exist.
    sim(&["sweep", &folder.path("sweep.toml"), "--out", &xargs]).good();
    let table = |out: &str| std::fs::read_to_string(Path::new(out).join("sweep.csv")).unwrap();
    assert_eq!(table(&jobs), table(&xargs));
    assert!(table(&jobs).starts_with("transport.name,workload.0.traffic.size,seed,run,flows,"));
    assert_eq!(table(&jobs).lines().count(), 9);
}

/// Starts a sweep and waits until `ready` returns true.
fn start(folder: &Folder, out: &str, jobs: &str, ready: impl Fn() -> bool) -> Child {
    let mut sweep = command(&["sim", "sweep", &folder.path("sweep.toml"), "--out", out, "--jobs", jobs]);
    let child = sweep.stdout(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing happens");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

const SEEDS: &str = "base = \"base.toml\"\n[[axis]]\nkey = \"seed\"\nvalues = [1, 2, 3, 4, 5, 6]\n";

#[test]
fn a_sweep_that_is_killed_leaves_nothing_that_runs_and_goes_on_with_what_is_left() {
    let folder = folder("killed", &poisson("5ms"), SEEDS);
    let out = folder.path("out");
    let mut child = start(&folder, &out, "1", || done(&out) >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let left = 6 - done(&out);
    assert!(left > 0, "the sweep was over before it was killed");
    // The interrupted run ended with the sweep, so its folder is no longer locked.
    let output = sim(&["sweep", &folder.path("sweep.toml"), "--out", &out, "--jobs", "2"]).good();
    assert_eq!(output.lines().count(), left + 1, "{output}");
    assert_eq!(done(&out), 6);
}

#[test]
fn a_signal_ends_a_sweep_with_3_and_its_results_are_whole() {
    let folder = folder("signal", &poisson("500ms"), SEEDS);
    let out = folder.path("out");
    let lines =
        |run: &PathBuf| std::fs::read_to_string(run.join("flows.csv")).map_or(0, |text| text.lines().count());
    let ready = || runs(&out).iter().filter(|run| lines(run) > 10).count() == 2;
    let mut child = start(&folder, &out, "2", ready);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    for run in runs(&out) {
        let summary = summary(&run).expect("a summary");
        assert_eq!(summary["interrupted"], Value::Bool(true));
        assert_eq!(lines(&run) as u64 - 1, summary["flows_done"].as_u64().unwrap());
    }
    assert_eq!((runs(&out).len(), list(&folder, &out).len()), (2, 6), "two were under way, and none is done");
}

#[test]
fn what_is_no_sweep_is_one_line_with_a_remedy() {
    let folder = folder("sweep-bad", INCAST, SWEEP);
    let refused = |sweep: &str, words: &str| {
        std::fs::write(folder.path("sweep.toml"), sweep).unwrap();
        sim(&["sweep", &folder.path("sweep.toml"), "--out", &folder.path("out")]).one_line(words);
    };
    refused(&SWEEP.replace("transport.name", "transport.nam"), "transport.nam: unknown field `nam`");
    refused(&SWEEP.replace("\"irn\"", "\"iron\""), "transport.name: ");
    refused(&SWEEP.replace("[1, 2]", "[1, \"two\"]"), "seed: invalid type");
    refused(&SWEEP.replace("[1, 2]", "[]"), "the axis seed has no values");
    let many: Vec<String> = (0..2_501).map(|seed| seed.to_string()).collect();
    refused(
        &SWEEP.replace("[1, 2]", &format!("[{}]", many.join(", "))),
        "asks for 10004 runs, and the limit is 10000",
    );
    refused(
        &SWEEP.replace("base.toml", "none.toml"),
        "refers to none.toml, which is neither in the working directory",
    );
    refused("base = 1", "sweep.toml:1:");
    assert!(!Path::new(&folder.path("out")).exists(), "nothing has run");
    sim(&["sweep", &folder.path("none.toml")]).one_line("cannot read");
    sim(&["sweep", &folder.path("sweep.toml"), "--list", "--jobs", "2"]).bad_arguments("cannot be used with");
    sim(&["sweep", &folder.path("sweep.toml"), "--jobs", "0"]).bad_arguments("give a whole number from 1");
}

#[test]
fn two_runs_do_not_write_into_one_folder() {
    let folder = folder("lock", INCAST, SWEEP);
    let out = folder.path("out");
    std::fs::create_dir_all(&out).unwrap();
    let held = std::fs::File::open(&out).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    sim(&[&folder.path("base.toml"), "--out", &out]).one_line("another run writes into");
    drop(held);
    sim(&[&folder.path("base.toml"), "--out", &out]).good();
}
