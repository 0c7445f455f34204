//! perftest with queue pairs connected by rdma_cm (`-R`).

use crate::connections::CmServer;
use crate::library::{address, program_at};

/// Runs one of perftest's programs with these options.
#[track_caller]
fn runs(name: &str, options: &str) {
    let here = address();
    let words: Vec<&str> = [name, "-R"].into_iter().chain(options.split_whitespace()).collect();
    let mut server = CmServer::start(program_at(&here, &words));
    let client: Vec<&str> = words.iter().copied().chain([here.as_str()]).collect();
    let printed = server.serves(program_at(&here, &client));
    server.succeeds();
    assert!(printed.contains("#bytes"), "{words:?}: {printed}");
}

#[test]
fn each_operation_runs_over_rc() {
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_send_lat", "ib_read_lat"] {
        runs(name, "-n 100");
    }
}

#[test]
fn several_queue_pairs_events_and_datagrams_run() {
    runs("ib_write_bw", "-n 100 -q 4");
    runs("ib_send_bw", "-n 100 -e");
    runs("ib_send_bw", "-n 50 -s 1024 -c UD");
    runs("ib_send_lat", "-n 50 -c UD");
}
