//! Programs in C that own objects as verbs programs do: with threads, forks, handlers and cancelled waits.
//! Each runs over both ports, on an address that it shares.

use crate::library::{address, c_program, program_at};

/// Runs a program of `tests/c` over each port of a shared address.
#[track_caller]
fn runs_over_both(name: &str, words: &[&str], says: &str) {
    for port in ["udp", "shm"] {
        let address = address();
        let output = c_program(name, words, &|words| {
            let mut command = program_at(&address, words);
            command.env("REMORA_PORT", port);
            command
        });
        assert_eq!(output, says, "{name} over {port}");
    }
}

#[test]
fn four_threads_share_a_queue_pair_over_both_ports_and_lose_nothing() {
    runs_over_both("threads", &["1000"], "nothing lost");
}

#[test]
fn a_child_opens_its_own_device_over_both_ports_and_its_parent_goes_on() {
    runs_over_both("forks", &[], "unharmed");
}

#[test]
fn traffic_between_processes_goes_on_over_both_ports_while_children_open_and_execute() {
    runs_over_both("family", &[], "unharmed");
}

#[test]
fn waits_obey_flags_return_on_signals_and_may_be_cancelled_over_both_ports() {
    runs_over_both("waits", &[], "waited");
}

#[test]
fn ends_wait_for_acknowledgements_over_both_ports() {
    runs_over_both("events", &[], "told");
}

#[test]
fn programs_end_in_handlers_over_both_ports() {
    runs_over_both("exits", &[], "ended");
}
