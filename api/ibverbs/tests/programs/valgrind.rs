//! Programs under Valgrind, one side at a time: Valgrind slows a side so much that with both of them
//! requests would time out.

use std::process::Command;

use crate::library::{address, program_at, under_valgrind};
use crate::pairs::pair_of;

#[test]
fn valgrind_finds_nothing_in_either_side_of_ibv_rc_pingpong_over_both_ports() {
    for port in ["udp", "shm"] {
        let address = address();
        for checks_client in [false, true] {
            let make = |words: &[&str]| {
                let is_client = words.last() == Some(&"127.0.0.1");
                let mut command: Command = match is_client == checks_client {
                    true => program_at(&address, &under_valgrind(words)),
                    false => program_at(&address, words),
                };
                command.env("REMORA_PORT", port);
                command
            };
            let printed = pair_of(&make, &["ibv_rc_pingpong", "-g", "0", "-n", "20", "-c"], "-p");
            assert!(printed.contains("20 iters in"), "{port}: {printed}");
        }
    }
}
