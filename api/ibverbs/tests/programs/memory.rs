//! Registered memory that is unmapped, and the cost of registration.

use crate::library::{c_program, program, program_at};
use crate::links::brokered;

/// Arguments of a C program that installs handlers of SIGSEGV and SIGBUS after the library's, or before.
const HANDLERS: [&[&str]; 2] = [&[], &["a handler before the library's"]];

#[test]
fn pages_that_go_away_are_errors_of_the_work_request_and_end_nobody() {
    for words in HANDLERS {
        let printed = c_program("memory", words, &program);
        println!("{printed}");
        assert_eq!(printed.lines().last(), Some("handled"));
    }
}

#[test]
fn a_target_whose_pages_go_away_lives_and_its_requester_is_told() {
    for port in ["udp", "shm"] {
        for words in HANDLERS {
            let (address, _broker) = brokered();
            let printed = c_program("targets", words, &|words| {
                let mut command = program_at(&address, words);
                command.env("REMORA_PORT", port);
                command
            });
            assert!(printed.ends_with("the target's own fault was its handler's"), "{port}: {printed}");
        }
    }
}
