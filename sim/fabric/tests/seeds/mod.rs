//! Shared code of the tests that run seed by seed: two threads for the seeds, and names of the events that
//! must have happened.

use remora_fault::Tally;
use remora_transport::Counters;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the number of seeds of a run: a tenth of `whole`, or all with `REMORA_WHOLE` (set by `make
/// nightly`).
pub(crate) fn share(whole: u64) -> u64 {
    if std::env::var_os("REMORA_WHOLE").is_some() { whole } else { whole / 10 }
}

/// Runs `one` for each seed on two threads. `add` receives the results, one at a time.
pub(crate) fn each<T>(seeds: Range<u64>, one: impl Fn(u64) -> T + Sync, add: impl FnMut(u64, T) + Send) {
    let next = AtomicU64::new(seeds.start);
    let add = Mutex::new(add);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = one(seed);
            let mut add = add.lock().expect("no thread panics with it");
            add(seed, outcome);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Returns the names of the events that never happened.
pub(crate) fn never(counted: &[(&str, u64)]) -> Vec<String> {
    counted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| (*name).to_owned()).collect()
}

/// Returns the count of each kind of fault.
pub(crate) fn faults(faults: &Tally) -> [(&'static str, u64); 5] {
    [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
    ]
}

/// Returns the count of each retry cause, of each NAK code at both ends, and of each drop reason of a
/// reliable connection.
pub(crate) fn reliable(counters: &Counters) -> [(&'static str, u64); 16] {
    [
        ("timeout", counters.local_ack_timeout_err),
        ("sequence NAK", counters.packet_seq_err),
        ("RNR", counters.rnr_nak_retry_err),
        ("RNR sent", counters.send_rnr_err),
        ("retries exhausted", counters.retry_exceeded_err),
        ("RNR retries exhausted", counters.retry_rnr_exceeded_err),
        ("remote access NAK sent", counters.resp_remote_access_errors),
        ("invalid request NAK sent", counters.resp_remote_invalid_request),
        ("remote operation NAK sent", counters.resp_remote_op_errors),
        ("remote access NAK", counters.req_remote_access_errors),
        ("invalid request NAK", counters.req_remote_invalid_request),
        ("remote operation NAK", counters.req_remote_op_errors),
        ("duplicate", counters.duplicate_request),
        ("gap", counters.out_of_sequence),
        ("wrong ICRC", counters.rx_icrc_encapsulated),
        ("malformed", counters.malformed_pkts),
    ]
}
