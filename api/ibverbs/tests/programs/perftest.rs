//! perftest, by verbs alone.

use std::process::Command;

use crate::library::program;
use crate::pairs::{pair, pair_of};

/// Runs one of perftest's programs on GID 0 with these options.
#[track_caller]
fn runs(name: &str, options: &str) {
    let words: Vec<&str> = [name, "-x", "0"].into_iter().chain(options.split_whitespace()).collect();
    let printed = pair(&words, "-p");
    assert!(printed.contains("#bytes"), "{words:?}: {printed}");
}

#[test]
fn latency_over_rc_uc_ud_and_xrc() {
    for name in ["ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"] {
        runs(name, "-n 100");
    }
    for (name, service) in [("ib_write_lat", "UC"), ("ib_send_lat", "UC"), ("ib_send_lat", "UD")] {
        runs(name, &format!("-n 100 -c {service}"));
    }
    runs("ib_send_lat", "-n 100 -c XRC");
    runs("ib_send_lat", "-n 100 -e");
}

/// A program with explanations, which are redirected to the standard output.
fn explained(words: &[&str]) -> Command {
    let mut command = program(&["sh", "-c", "exec \"$@\" 2>&1", "sh"]);
    command.args(words).env("REMORA_EXPLAIN", "1");
    command
}

/// The thread that blocks in `ibv_get_cq_event` waits for packets itself, so no other thread is woken before
/// it.
#[test]
fn a_thread_that_waits_for_events_is_woken_once_for_a_message() {
    const MESSAGES: u64 = 2000;
    let iterations = (MESSAGES / 2).to_string();
    let printed = pair_of(&explained, &["ib_send_lat", "-x", "0", "-e", "-n", &iterations], "-p");
    let line = printed
        .lines()
        .find(|line| line.contains("threads were woken"))
        .expect("a line with the number of wakeups");
    let counts: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [waiting, packets, ..] = counts[..] else { panic!("{line}") };
    assert!(waiting > 0 && packets < MESSAGES / 20, "{line}");
    assert!((waiting + packets) * 10 <= MESSAGES * 12, "{line}");
}

#[test]
fn bandwidth_of_each_operation_over_rc() {
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        runs(name, "-n 200 -s 65536");
        runs(name, "-n 100 -s 2");
        runs(name, "-n 5 -s 8388608");
    }
    runs("ib_atomic_bw", "-n 200 -A FETCH_AND_ADD");
    runs("ib_atomic_bw", "-n 200 -A CMP_AND_SWAP");
}

#[test]
fn bandwidth_both_ways_with_several_queue_pairs_and_events() {
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        runs(name, "-n 200 -b -q 4");
    }
    runs("ib_send_bw", "-n 200 -e");
    runs("ib_send_bw", "-n 200 -q 2 --use-srq -r 256");
    runs("ib_write_bw", "-n 200 -s 64 -I 64");
    runs("ib_write_bw", "-n 200 --use_old_post_send");
}

#[test]
fn bandwidth_over_uc_ud_and_xrc() {
    // The socket of an unprivileged program holds 208 KiB. The few messages fit into it, because nothing
    // retransmits them.
    runs("ib_write_bw", "-n 50 -s 1024 -c UC");
    runs("ib_send_bw", "-n 50 -s 1024 -c UC");
    runs("ib_send_bw", "-n 50 -s 1024 -c UD");
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        runs(name, "-n 200 -c XRC");
    }
}
