//! Programs in C, compiled with Debian's headers.

use crate::library::{c_program, program, program_at};
use crate::links::brokered;

/// Runs a program of `tests/c` at an address that it has alone. Returns its output.
#[track_caller]
fn runs(name: &str) -> String {
    c_program(name, &[], &program)
}

/// Like [`runs`], with the standard error before the output.
fn runs_explained(name: &str, explain: bool) -> String {
    c_program(name, &[], &|words| {
        let mut command = program(&["sh", "-c", "exec \"$0\" 2>&1", words[0]]);
        if explain {
            command.env("REMORA_EXPLAIN", "1");
        }
        command
    })
}

#[test]
fn an_error_completion_and_a_refused_attribute_are_explained_once_and_only_if_asked_for() {
    let printed = runs_explained("explains", true);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines.len(), lines[2]), (3, "explained"), "{printed}");
    assert!(lines[0].starts_with("remora: ibv_modify_qp is refused: path_mtu"), "{printed}");
    assert!(
        lines[1].contains("work request 0x7 ended with status 10 (vendor_err 0), peer queue pair 0x"),
        "{printed}"
    );
    assert!(lines[1].contains(" at 127.") && lines[1].contains("compare rkey"), "{printed}");
    assert_eq!(runs_explained("explains", false), "explained");
}

#[test]
fn how_often_a_queue_pair_waited_for_receives_is_told_when_it_ends_and_of_no_other() {
    let printed = runs_explained("rnr", true);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(lines[1].starts_with(&format!("remora: queue pair {} waited ", lines[0])), "{printed}");
    assert!(lines[1].contains("had no receive posted (RNR)"), "{printed}");
    assert_eq!(runs_explained("rnr", false).lines().count(), 1);
}

#[test]
fn four_threads_share_a_queue_pair_and_a_completion_queue_and_lose_nothing() {
    assert_eq!(runs("threads"), "nothing lost");
}

#[test]
fn a_queue_pair_says_the_attributes_that_it_was_given() {
    assert_eq!(runs("queries"), "as given");
}

#[test]
fn a_child_opens_its_own_device_and_its_parent_goes_on() {
    assert_eq!(runs("forks"), "unharmed");
}

#[test]
fn waits_obey_flags_return_on_signals_and_may_be_cancelled() {
    assert_eq!(runs("waits"), "waited");
}

/// Regression: FLUSH bits in access flags were EOPNOTSUPP, so that 14 tests of rdma-core skipped, and
/// unknown bits of `comp_mask` were EINVAL.
#[test]
fn bad_input_is_refused_with_the_errno_of_providers() {
    assert_eq!(runs("refusals"), "refused");
}

/// Regression: a bind by a key whose upper 24 bits were not the window's was refused; mlx5, irdma and
/// rxe take the low byte alone. After a failed or flushed bind the window could neither be bound nor end
/// with its domain.
#[test]
fn a_window_survives_failed_and_flushed_binds_and_takes_the_low_byte_of_its_key() {
    assert_eq!(runs("windows"), "as they were");
}

/// Hooks of libfabric and UCX overwrite the first bytes of these functions once the device is open.
///
/// Regression: a libfabric program crashed at its start, twice in 400: its memory hooks overwrote
/// `munmap` while a new thread of the library was inside it.
#[test]
fn no_thread_of_the_library_maps_or_unmaps_once_the_device_is_open() {
    // With a broker in another process, and with a broker that is a thread of the program.
    let (address, _broker) = brokered();
    assert_eq!(c_program("settles", &[], &|words| program_at(&address, words)), "seen");
    assert_eq!(runs("settles"), "seen");
}

/// Regression: programs linked against rdma-core 33, or 57 and later, did not start, because the private
/// symbols existed by the version of releases 34 to 56 alone.
#[test]
fn a_program_finds_the_private_symbols_by_the_version_of_every_release() {
    assert_eq!(runs("releases"), "remora0");
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

/// Regression: ofi_rxm of libfabric opened no endpoint: it asks for a completion queue of 196608
/// entries, whatever `max_cqe` is, and the limit was 65536.
#[test]
fn as_many_objects_as_there_may_be_and_no_more() {
    assert_eq!(runs("bounds"), "bounded");
}
