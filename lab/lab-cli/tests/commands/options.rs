//! Options without effect are refused, because nobody would notice that they are ignored.

use std::process::Command;

use crate::running::{finish, remora};

/// Checks that the arguments are refused for this reason.
#[track_caller]
fn refused(words: &[&str], reason: &str) {
    let ended = remora(words);
    assert_eq!(ended.status, 2, "{words:?}: {} {}", ended.out, ended.err);
    assert!(ended.err.contains(reason), "{words:?}: {}", ended.err);
}

/// Regression: `--port`, `--capture` and `--fault` of `remora serve cache` were ignored without
/// `--chains`.
#[test]
fn options_of_a_cache_s_nic_want_chains() {
    let options = [["--port", "udp"], ["--address", "127.0.0.1"], ["--interface", "eth0"]];
    for option in options.iter().chain(&[["--capture", "file"], ["--fault", "rules"]]) {
        let words = ["serve", "cache", "--listen", "127.0.0.1:0", option[0], option[1]];
        refused(&words, "--chains <ADDRESS>");
    }
}

#[test]
fn a_benchmark_refuses_the_options_of_others() {
    for (name, option) in [
        ("verbs", ["--report", "folder"]),
        ("verbs", ["--out", "file"]),
        ("congestion", ["--port", "udp"]),
        ("congestion", ["--only", "none"]),
        ("redn", ["--packets", "5"]),
        ("prism", ["--cap", "5"]),
    ] {
        let reason = format!("`bench {name}` takes no {}: its options are --", option[0]);
        refused(&["bench", name, option[0], option[1]], &reason);
    }
    refused(&["bench", "irn-receiver", "trace", "--json"], "takes no --json: its options are --out");
    refused(&["bench", "irn-receiver", "trace", "--cap", "5"], "takes no --cap");
    refused(&["bench", "kv", "--curves", "--design", "farm"], "--curves");
    refused(&["bench", "kv", "--curves", "--workload", "A"], "--curves");
    refused(&["bench", "txn", "tatp", "--records", "1000"], "--records is for ycsb-t");
    refused(&["bench", "txn", "ycsb-t", "smallbank", "--subscribers", "10"], "--subscribers is for tatp");
}

#[test]
fn options_that_exclude_or_need_each_other_say_so() {
    refused(&["serve", "kv", "--value-len", "100"], "--records <RECORDS>");
    refused(&["demo", "--json", "--report", "folder"], "--report");
    refused(&["top", "--once", "--interval", "2"], "--once");
    remora(&["figures", "prism", "--rows", "/dev/null"]).one_line("prism is not drawn from rows");
}

/// Regression: the error advised `--clients 0`.
#[test]
fn a_cache_without_descriptors_never_advises_no_clients() {
    let serve = |most: u32| {
        let line =
            format!("ulimit -n {most} && exec {} serve cache --listen 127.0.0.1:0", crate::running::binary());
        finish(Command::new("sh").args(["-c", &line]))
    };
    serve(16).one_line("raise `ulimit -Hn`");
    assert!(!serve(16).err.contains("--clients"));
    serve(17).one_line("serve --clients 1");
}
