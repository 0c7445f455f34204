//! rping under Valgrind, one side at a time.

use crate::connections::CmServer;
use crate::library::{address, program_at, under_valgrind};

/// Regression: under Valgrind each `ibv_reg_mr` was an error, because holes were looked for by `msync`,
/// which Valgrind takes for a read of the bytes.
#[test]
fn valgrind_finds_nothing_in_either_side_of_rping_over_both_ports() {
    for port in ["udp", "shm"] {
        let here = address();
        let words = |line: &str, checked: bool| {
            let words: Vec<&str> = line.split_whitespace().chain([here.as_str()]).collect();
            let mut command = match checked {
                true => program_at(&here, &under_valgrind(&words)),
                false => program_at(&here, &words),
            };
            command.env("REMORA_PORT", port);
            command
        };
        for checks_client in [false, true] {
            let mut server = CmServer::start(words("rping -s -C 10 -a", !checks_client));
            let printed = server.serves(words("rping -c -v -C 10 -a", checks_client));
            assert_eq!(printed.matches("ping data: rdma-ping-").count(), 10, "{port}: {printed}");
            server.succeeds();
        }
    }
}
