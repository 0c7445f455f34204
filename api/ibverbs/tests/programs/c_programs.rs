//! Programs in C, compiled with Debian's headers.

use crate::library::{done, folder, program};
use std::process::Command;

/// Compiles a program of `tests/c` against the system's headers, and runs it on this library.
#[track_caller]
fn runs(name: &str) -> String {
    runs_with(name, &[]).0
}

/// The same with variables. Returns what it printed on its standard output and error.
#[track_caller]
fn runs_with(name: &str, variables: &[(&str, &str)]) -> (String, String) {
    let number = variables.len();
    let built = std::env::temp_dir().join(format!("remora-ibverbs-{}-{name}-{number}", std::process::id()));
    let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(&built).arg(source).arg("-L").arg(folder()).args(["-libverbs", "-lpthread", "-ldl"]);
    done(&mut cc);
    let mut command = program(&[built.to_str().unwrap()]);
    let printed = command.envs(variables.iter().copied()).output().unwrap();
    std::fs::remove_file(&built).unwrap();
    let errors = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.status.success(), "{name}: {}: {errors}", printed.status);
    (String::from_utf8(printed.stdout).unwrap().trim().to_owned(), errors)
}

#[test]
fn an_error_completion_and_a_refused_attribute_are_explained_once_and_only_if_asked_for() {
    let (printed, words) = runs_with("explains", &[("REMORA_EXPLAIN", "1")]);
    assert_eq!(printed, "explained");
    let lines: Vec<&str> = words.lines().collect();
    assert_eq!(lines.len(), 2, "{words}");
    assert!(lines[0].starts_with("remora: ibv_modify_qp is refused: path_mtu"), "{words}");
    assert!(
        lines[1].contains("work request 0x7 ended with status 10 (vendor_err 0), peer queue pair 0x"),
        "{words}"
    );
    assert!(lines[1].contains(" at 127.") && lines[1].contains("compare rkey"), "{words}");
    assert_eq!(runs_with("explains", &[]), ("explained".to_owned(), String::new()));
}

#[test]
fn four_threads_share_a_queue_pair_and_a_completion_queue_and_lose_nothing() {
    assert_eq!(runs("threads"), "nothing lost");
}

#[test]
fn a_child_opens_its_own_device_and_its_parent_goes_on() {
    assert_eq!(runs("forks"), "unharmed");
}

#[test]
fn waits_obey_flags_return_on_signals_and_may_be_cancelled() {
    assert_eq!(runs("waits"), "waited");
}

#[test]
fn bad_input_is_refused_with_the_errno_of_providers() {
    assert_eq!(runs("refusals"), "refused");
}

#[test]
fn a_program_finds_everything_by_dlvsym_beside_debians_providers() {
    assert_eq!(runs("loads"), "remora0");
}

#[test]
fn events_are_told_once_and_ends_wait_for_their_acknowledgement() {
    assert_eq!(runs("events"), "told");
}

#[test]
fn datagrams_groups_null_regions_and_values_of_completions_are_delivered() {
    assert_eq!(runs("datagrams"), "delivered");
}

#[test]
fn as_many_objects_as_there_may_be_and_no_more() {
    assert_eq!(runs("bounds"), "bounded");
}
