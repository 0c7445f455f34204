//! Programs in C whose waits and children are as verbs programs have them, over both ports of a shared
//! address.

use remora_broker::{Broker, FoundBy, Options};

use crate::library::{address, c_program, program_at};

/// Runs a program of `tests/c` over each port of an address whose broker finds dead programs so.
#[track_caller]
fn runs_over_both(name: &str, found: FoundBy, says: &str) {
    for port in ["udp", "shm"] {
        let address = address();
        let options = Options { linger: None, found, ..Options::default() };
        let broker = Broker::open(format!("{address}:4791").parse().unwrap(), &options).unwrap();
        let said = c_program(name, &[], &|words| {
            let mut command = program_at(&address, words);
            command.env("REMORA_PORT", port);
            command
        });
        assert_eq!(said, says, "{name} over {port}");
        drop(broker);
    }
}

#[test]
fn a_child_that_lives_on_does_not_hide_its_parents_death_from_the_peer() {
    runs_over_both("orphans", FoundBy::Socket, "told");
}

#[test]
fn nor_does_it_where_the_kernel_has_no_so_peerpidfd() {
    runs_over_both("orphans", FoundBy::Number, "told");
}

#[test]
fn waits_obey_flags_return_on_signals_and_may_be_cancelled_over_both_ports() {
    runs_over_both("waits", FoundBy::Socket, "waited");
}
