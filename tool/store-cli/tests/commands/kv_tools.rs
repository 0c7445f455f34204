//! Further tools of the key-value command line: listings, dumps, a shell, workload files, completions and
//! manual pages.

use std::io::Write as _;
use std::process::Stdio;
use std::thread;

use crate::running::{Ended, Scratch, Server, command, finish, remora};

const DESIGNS: [&str; 5] = ["pilaf", "farm", "two-sided", "prism", "strom"];

/// Runs a command with this standard input.
#[track_caller]
fn fed(words: &[&str], input: &[u8]) -> Ended {
    let file = Scratch::new(input);
    let mut command = command(words);
    finish(command.stdin(Stdio::from(std::fs::File::open(file.path()).unwrap())))
}

#[test]
fn every_design_lists_its_keys_sorted_and_each_once() {
    for design in DESIGNS {
        let server = Server::start(design, "shm", &["--records", "900"]);
        for key in ["zebra", "apple", "ünïcode"] {
            server.kv("put", &[key, "value"]).good();
        }
        let keys = server.kv("scan", &[]).good();
        let keys: Vec<&str> = keys.lines().collect();
        assert_eq!(keys.len(), 903, "{design}");
        assert!(keys.is_sorted() && keys[0] == "apple" && keys[902] == "ünïcode", "{design}: {keys:?}");
        assert_eq!(server.kv("scan", &["--prefix", "z", "--json"]).good(), "{\"key\":\"zebra\"}\n");
        assert_eq!(server.kv("scan", &["--limit", "7"]).good().lines().count(), 7, "{design}");
        server.kv("delete", &["zebra"]).good();
        assert_eq!(server.kv("scan", &["--prefix", "z"]).good(), "");
    }
}

#[test]
fn a_listing_over_udp_beside_a_writer_has_all_keys_that_stay() {
    for design in ["farm", "prism"] {
        let server = Server::start(design, "udp", &["--records", "500"]);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..20 {
                    server.kv("put", &[&format!("new-{number}"), &"v".repeat(number * 50)]).good();
                }
            });
            while !writer.is_finished() {
                let keys = server.kv("scan", &["--prefix", "user"]).good();
                assert_eq!(keys.lines().count(), 500, "{design}");
            }
        });
        assert_eq!(server.kv("scan", &["--prefix", "new-"]).good().lines().count(), 20);
    }
}

#[test]
fn a_dump_loads_into_another_design_and_names_what_no_line_can_hold() {
    let server = Server::start("pilaf", "shm", &[]);
    server.kv("put", &["colour", "blue and green"]).good();
    server.kv("put", &["empty", ""]).good();
    let lines = server.kv("dump", &[]).good();
    assert_eq!(lines, "colour blue and green\nempty \n");
    server.kv("put", &["a key", "two\nlines"]).good();
    let part = server.kv("dump", &[]);
    assert_eq!((part.status, part.out.as_str()), (1, lines.as_str()));
    assert!(part.err.contains("1 pairs") && part.err.contains("--json"), "{}", part.err);
    let json = Scratch::new(server.kv("dump", &["--json"]).good().as_bytes());
    let other = Server::start("prism", "shm", &["--records", "10"]);
    assert_eq!(other.kv("load", &["--json", json.path()]).good(), "3 keys stored, 0 lines left out\n");
    assert_eq!(other.kv("get", &["a key"]).good(), "two\nlines\n");
    let bad =
        fed(&other.words("load", &["--json", "-"]), b"{\"key\":\"a\"}\n{\"key\":\"b\",\"value\":\"c\"}\n");
    assert!(bad.err.contains("line 1: "), "{}", bad.err);
    assert_eq!(bad.good(), "1 keys stored, 1 lines left out\n");
}

#[test]
fn several_keys_are_printed_as_lines_and_those_that_are_missing_are_named() {
    let server = Server::start("farm", "shm", &[]);
    server.kv("put", &["colour", "blue"]).good();
    server.kv("put", &["shape", "round"]).good();
    assert_eq!(server.kv("get", &["colour", "shape"]).good(), "colour blue\nshape round\n");
    let some = server.kv("get", &["colour", "none", "shape", "nothing"]);
    assert_eq!(some.out, "colour blue\nshape round\n");
    some.one_line("no such key: none nothing");
}

#[test]
fn a_shell_does_what_its_lines_say_and_counts_those_that_fail() {
    let server = Server::start("strom", "shm", &[]);
    let lines = b"put colour light blue\nget colour\nscan\n\ndelete colour\nhelp\nquit\nget colour\n";
    let out = fed(&server.words("shell", &[]), lines).good();
    assert!(out.starts_with("stored\nlight blue\ncolour\ndeleted\nget KEY"), "{out}");
    let bad = fed(&server.words("shell", &[]), b"get none\nfrobnicate\nput a b\n");
    assert!(bad.out.ends_with("stored\n") && bad.out.contains("no such key: none"), "{}", bad.out);
    bad.one_line("2 lines failed");
}

const WORKLOAD: &[u8] = b"# as YCSB ships it\nrecordcount=200\noperationcount=3000\nworkload=site.ycsb.workloads.CoreWorkload\nreadproportion=0.5\nupdateproportion=0.4\nscanproportion=0.05\ninsertproportion=0.05\nmaxscanlength=10\nrequestdistribution=zipfian\n";

#[test]
fn a_ycsb_workload_file_is_loaded_and_run_against_a_running_server() {
    let file = Scratch::new(WORKLOAD);
    for design in ["farm", "prism"] {
        let server = Server::start(design, "shm", &["--records", "10", "--memory", "64m"]);
        let run = server.kv("bench", &["--load", "--workload", file.path(), "--json"]);
        let rows: Vec<serde_json::Value> =
            run.good().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let metrics: Vec<&str> = rows.iter().map(|row| row["metric"].as_str().unwrap()).collect();
        assert_eq!(metrics, ["rate", "latency_p50", "latency_p99"]);
        let case = rows[0]["case"].as_str().unwrap();
        assert!(case.starts_with(&format!("shm/{design}/1000/ycsb-remora-test-")), "{case}");
        assert!(rows.iter().all(|row| row["value"].as_f64().unwrap() > 0.0));
        // A second client reads the records that the first one has loaded.
        server
            .kv(
                "bench",
                &["--records", "200", "--value-len", "1000", "--workload", "c", "--operations", "500"],
            )
            .good();
    }
}

#[test]
fn a_workload_that_cannot_be_run_is_told_by_file_and_line() {
    let server = Server::start("farm", "shm", &["--records", "10"]);
    let bad = Scratch::new(b"recordcount=10\nrequestdistribution=hotspot\n");
    server.kv("bench", &["--workload", bad.path()]).one_line("line 2: requestdistribution");
    server.kv("bench", &["--workload", "/nowhere"]).one_line("a letter from A to F, or a file");
    remora(&["bench", "kv", "--workload", bad.path()]).one_line("line 2: requestdistribution");
    let missing = server.kv("bench", &["--records", "500", "--workload", "C", "--operations", "5000"]);
    assert!(missing.err.contains("wrong answer"), "{}", missing.err);
}

#[test]
fn values_of_another_length_are_told_with_the_option_that_gives_it() {
    for design in ["pilaf", "farm", "two-sided", "prism", "strom"] {
        let server = Server::start(design, "shm", &["--records", "100", "--value-len", "64"]);
        let run = |more: &[&str]| {
            let words = ["--records", "100", "--workload", "C", "--operations", "1000"];
            server.kv("bench", &[&words, more].concat())
        };
        run(&[]).one_line("the server's value has 64 bytes instead of 512: give --value-len 64");
        run(&["--value-len", "16"]).one_line("give --value-len");
        run(&["--value-len", "64"]).good();
    }
}

#[test]
fn completions_and_manual_pages_know_each_command() {
    let bash = remora(&["completions", "bash"]).good();
    assert!(bash.contains("_remora()") && bash.contains("--workload"), "{} bytes", bash.len());
    let checked = std::process::Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn();
    let mut checked = checked.expect("bash");
    checked.stdin.take().unwrap().write_all(bash.as_bytes()).unwrap();
    assert!(checked.wait().unwrap().success(), "bash refuses its completions");
    for shell in ["zsh", "fish"] {
        assert!(remora(&["completions", shell]).good().contains("remora"));
    }
    let folder = Scratch::new(b"");
    let pages = format!("{}.d", folder.path());
    remora(&["man", &pages]).good();
    let page = std::fs::read_to_string(format!("{pages}/remora-kv-get.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("user42"), "{page}");
    std::fs::remove_dir_all(pages).unwrap();
    remora(&["man", folder.path()]).one_line("writing manual pages into");
}
