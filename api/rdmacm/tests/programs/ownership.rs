//! Programs in C that wait and fork as verbs programs do, over both ports of a shared address.

use remora_broker::client::{self, Options as ClientOptions, Start};
use remora_broker::{Broker, FoundBy, Options};
use remora_netns::Process;
use std::process::Command;

use crate::library::{address, c_program, program_at, remora};

/// Runs a program of `tests/c` over each port of an address. `discovery` says how the broker notices dead
/// programs.
#[track_caller]
fn runs_over_both(name: &str, discovery: FoundBy, says: &str) {
    for port in ["udp", "shm"] {
        let address = address();
        let options = Options { linger: None, found: discovery, ..Options::default() };
        let broker = Broker::open(format!("{address}:4791").parse().unwrap(), &options).unwrap();
        let output = c_program(name, &[], &|words| {
            let mut command = program_at(&address, words);
            command.env("REMORA_PORT", port);
            command
        });
        assert_eq!(output, says, "{name} over {port}");
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

/// Regression: the connection to the communication manager of a killed broker was kept for ever.
#[test]
fn after_the_broker_was_killed_and_ids_have_ended_there_may_be_new_ones() {
    let address = address();
    let words = ["broker", "--linger", "3600", "--address", &address];
    let mut broker = Process::start(Command::new(remora()).args(words));
    let socket_address = format!("{address}:4791").parse().unwrap();
    while client::start(socket_address, &ClientOptions { start: Start::Never, ..ClientOptions::default() })
        .is_err()
    {
        assert!(broker.try_wait().unwrap().is_none(), "the broker has ended");
        std::thread::yield_now();
    }
    let output = c_program("fatal", &[&broker.id().to_string()], &|words| program_at(&address, words));
    assert_eq!(output, "anew");
}
