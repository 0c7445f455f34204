//! Programs in C, compiled with Debian's headers.

use crate::library::{address, c_program, program, program_at};

/// Runs a program of `tests/c`, which shares its address with its children.
#[track_caller]
fn runs(name: &str, words: &[&str]) -> String {
    let address = address();
    c_program(name, words, &|words| program_at(&address, words))
}

#[test]
fn waits_obey_flags_return_on_signals_may_be_cancelled_and_ends_wait_for_acknowledgements() {
    assert_eq!(runs("waits", &[]), "waited");
}

#[test]
fn bad_input_is_refused_with_the_errno_of_rdma_cores_library() {
    assert_eq!(runs("refusals", &[]), "refused");
    assert_eq!(c_program("refusals", &[], &program), "refused", "at an address that it has alone");
}

#[test]
fn ids_move_with_their_events_and_are_inert_in_a_forked_child() {
    assert_eq!(runs("moves", &[]), "moved");
}

#[test]
fn endpoints_wait_for_their_events_and_exchange_messages() {
    assert_eq!(runs("endpoints", &[]), "exchanged");
}

/// A tenth of the connections ends with its client, which is killed. Ten thousand where all is tested.
#[test]
fn a_thousand_connects_and_disconnects_a_tenth_of_them_by_death_are_all_told() {
    let count = if std::env::var_os("REMORA_WHOLE").is_some() { 10_000 } else { 1_000 };
    assert_eq!(runs("connects", &[&count.to_string()]), format!("{count} ended"));
}
