//! Many programs on one address, each in a QPN range that the broker lends.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;

use remora_netns::free_port;

use crate::library::{address, program_at, unlimited_at};
use crate::pairs::{pair_of, until_listening};

#[test]
fn two_programs_on_one_address_reach_each_other_and_themselves() {
    let address = address();
    let program = |words: &[&str]| program_at(&address, words);
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"] {
        let printed = pair_of(&program, &[name, "-g", "0", "-n", "200", "-s", "1024"], "-p");
        assert!(printed.contains("200 iters in"), "{name}: {printed}");
    }
}

/// Pairs of programs that run at the same time.
const PAIRS: [&[&str]; 6] = [
    &["ib_write_bw", "-s", "4096", "-n", "500"],
    &["ib_send_lat", "-s", "64", "-n", "500"],
    &["ib_read_bw", "-s", "65536", "-n", "100"],
    &["ib_atomic_lat", "-n", "200"],
    &["ibv_rc_pingpong", "-g", "0", "-n", "500"],
    &["ibv_ud_pingpong", "-g", "0", "-n", "500", "-s", "1024"],
];

#[test]
fn six_pairs_finish_at_once_on_one_address_while_others_are_killed() {
    let address = address();
    let program = |words: &[&str]| program_at(&address, words);
    thread::scope(|scope| {
        for words in PAIRS {
            scope.spawn(move || pair_of(&program, words, "-p"));
        }
        for _ in 0..3 {
            // Its queue pair exists before it sends its address; then it waits for its client.
            let port = free_port().unwrap();
            let mut victim = unlimited_at(&address, &["ibv_rc_pingpong", "-g", "0", "-p", &port.to_string()]);
            let mut victim = victim.stdout(Stdio::null()).spawn().unwrap();
            until_listening(&mut victim, port);
            victim.kill().unwrap();
            assert!(victim.wait().unwrap().signal().is_some(), "the victim was killed while it waited");
        }
    });
}

#[test]
fn nobody_in_a_namespace_where_only_loopback_is_up_runs_a_pair() {
    let script = "ip link set lo up && \
        (ibv_rc_pingpong -g 0 -n 100 & for try in $(seq 200); do \
            ibv_rc_pingpong -g 0 -n 100 127.0.0.1 && break; sleep 0.05; done; wait)";
    let mut command = program_at("127.0.0.1", &["unshare", "-Urn", "sh", "-c", script]);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.matches("100 iters in").count(), 2, "{printed} {stderr}");
}

#[test]
fn a_bandwidth_test_ends_though_frames_are_lost_and_each_frame_is_captured() {
    let address = address();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("loss.toml");
    let capture = folder.path().join("frames.pcapng");
    std::fs::write(&rules, "[[rule]]\nfault = 'drop'\nprobability = 0.05\n").unwrap();
    let program = |words: &[&str]| {
        let mut command = program_at(&address, words);
        // Only for the client, whose last word is the address.
        if words.last() == Some(&"127.0.0.1") {
            command.env("REMORA_FAULT", &rules).env("REMORA_CAPTURE", &capture);
        }
        command
    };
    let printed = pair_of(&program, &["ib_write_bw", "-s", "4096", "-n", "200"], "-p");
    assert!(printed.contains(" 4096 "), "{printed}");
    let captured = std::fs::metadata(&capture).unwrap().len();
    assert!(captured > 200 * 4096, "{captured} bytes");
}

#[test]
fn a_recorded_bandwidth_test_with_loss_is_replayed_to_the_same_counters_and_completions() {
    let address = address();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("loss.toml");
    std::fs::write(&rules, "[[rule]]\nfault = 'drop'\nprobability = 0.05\n").unwrap();
    let [client, server] = ["client.rec", "server.rec"].map(|name| folder.path().join(name));
    let program = |words: &[&str]| {
        let mut command = program_at(&address, words);
        match words.last() == Some(&"127.0.0.1") {
            true => command.env("REMORA_FAULT", &rules).env("REMORA_RECORD", &client),
            false => command.env("REMORA_RECORD", &server),
        };
        command
    };
    let printed = pair_of(&program, &["ib_send_bw", "-s", "4096", "-n", "500"], "-p");
    assert!(printed.contains(" 4096 "), "{printed}");
    for (path, completions) in [(&client, 500 / 100), (&server, 500)] {
        let report = remora_host::replay(std::fs::File::open(path).unwrap()).unwrap();
        assert_eq!((&report.difference, report.end), (&None, Some(remora_host::recording::End::Closed)));
        assert!(report.tally.completions >= completions, "{:?}", report.tally);
        assert!(report.tally.sent > 0 && report.tally.received > 0, "{:?}", report.tally);
        assert!(path == &server || report.counters.retransmitted_pkts > 0, "{:?}", report.counters);
    }
}
