//! perftest, by verbs alone.

use crate::pairs::pair;

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
    // A socket of an unprivileged program holds 208 KiB, which so few messages fit into: nothing repeats
    // them.
    runs("ib_write_bw", "-n 50 -s 1024 -c UC");
    runs("ib_send_bw", "-n 50 -s 1024 -c UC");
    runs("ib_send_bw", "-n 50 -s 1024 -c UD");
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        runs(name, "-n 200 -c XRC");
    }
}
