//! Tests that counters have the names that NICs use in `hw_counters`, so that existing dashboards work.

use remora_transport::Counters;
use std::collections::BTreeMap;

/// Counters that ConnectX NICs (mlx5) have under the same names.
const MLX5: [&str; 18] = [
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
];

/// Counters that Soft-RoCE (rxe) has under the same names.
const RXE: [&str; 6] = [
    "sent_pkts",
    "rcvd_pkts",
    "duplicate_request",
    "send_rnr_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
];

#[test]
fn the_names_of_mlx5_and_rxe_are_there() {
    let counters = Counters::default();
    let names: Vec<&str> = counters.each().map(|(name, _, _)| name).collect();
    let missing: Vec<&&str> = MLX5.iter().chain(&RXE).filter(|name| !names.contains(name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn each_counter_has_one_name_and_a_meaning_and_sums_by_itself() {
    let mut sum = Counters { out_of_sequence: 3, sent_pkts: 5, ..Counters::default() };
    sum.add(&Counters { out_of_sequence: 4, wqes_executed: u64::MAX >> 1, ..Counters::default() });
    let mut seen = BTreeMap::new();
    for (name, meaning, value) in sum.each() {
        assert!(meaning.trim().ends_with('.'), "{name}: {meaning}");
        assert_eq!(seen.insert(name, value), None, "{name} twice");
    }
    let moved: Vec<_> = seen.into_iter().filter(|(_, value)| *value != 0).collect();
    assert_eq!(moved, [("out_of_sequence", 7), ("sent_pkts", 5), ("wqes_executed", u64::MAX >> 1)]);
}
