//! Table 1, and the memory for IRN's state (section 6.1): the paper's numbers in the paper's terms, and
//! those of this software.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use clap::Parser as _;
use remora_fabric::{Config, Settings, World};

use super::{Args, row};
use crate::{self as bench, Row, resident_bytes};

/// The bits of state of a queue pair: 104 of variables of both ends, 56 of timers of READs, and five bitmaps
/// of 128 bits.
const STATE_BITS: u64 = 160;
const BITMAP_BITS: u64 = 5 * 128;
/// The additional bytes of a work request, and the bytes that all queue pairs share.
const REQUEST_BYTES: u64 = 3;
const SHARED_BYTES: u64 = 10;
/// Assumptions about the paper's cache, whose size is not given: it holds some thousand queue pairs and tens
/// of thousands of work requests.
const QUEUE_PAIRS: u64 = 2_000;
const REQUESTS: u64 = 20_000;
const CACHE_BYTES: u64 = 4 << 20;

/// Table 1 of the paper: requests per second and latency in ns for WRITEs of 64 bytes on one queue pair.
const TABLE_1: [(&str, f64, f64); 2] =
    [("iwarp, chelsio t-580-cr", 3.24e6, 2890.0), ("roce, mellanox mcx416a-bcat", 14.7e6, 940.0)];

/// The number of queue pairs at each of two nodes whose memory is measured.
const MEASURED: usize = 2_048;

/// Returns the rows of the table and of the state.
pub(crate) fn rows(args: &Args) -> Result<Vec<Row>> {
    let mut rows = overhead()?;
    for (name, rate, latency) in TABLE_1 {
        rows.push(row(&format!("table-1/{name}"), "64 B write rate, stated", "1/s", &[rate]));
        rows.push(row(&format!("table-1/{name}"), "64 B write latency, stated", "ns", &[latency]));
    }
    if !args.quick {
        measured(args)?;
    }
    Ok(rows)
}

/// Returns the rows of the state of all queue pairs as a share of the NIC's cache; the paper states 3 to 10
/// %.
fn overhead() -> Result<Vec<Row>> {
    let of_pair = STATE_BITS + BITMAP_BITS;
    let bytes = QUEUE_PAIRS * of_pair.div_ceil(8) + REQUESTS * REQUEST_BYTES + SHARED_BYTES;
    let part = bytes as f64 / CACHE_BYTES as f64;
    let own = memory(Some(128))? - memory(None)?;
    let assumed =
        format!("overhead/{QUEUE_PAIRS} queue pairs/{REQUESTS} work requests/{CACHE_BYTES} bytes of cache");
    Ok(vec![
        row("overhead/paper/queue pair", "bits of state", "bit", &[of_pair as f64]),
        row(&assumed, "part of the cache", "", &[part]).against("stated: 3 to 10 %", &[0.1]),
        row("overhead/remora/queue pair", "memory of IRN", "B", &[own]),
    ])
}

/// Returns the memory in bytes of a connected queue pair with four slots in each direction.
fn memory(irn: Option<u32>) -> Result<f64> {
    let settings = Settings { send_slots: 4, receives: 4, receive_max_sge: 1, irn, ..Settings::default() };
    let nic = remora_nic::Config { max_qps: 2 * MEASURED as u32, ..Config::default().nic };
    let mut world = World::new(&Config { nic, ..Config::default() });
    let cqs = [0, 1].map(|node| world.create_counted_cq(node, 16));
    let before = resident_bytes()?;
    for _ in 0..MEASURED {
        let ends = cqs.map(|cq| world.create_qp(cq, cq, &settings));
        ensure!(ends.iter().all(Result::is_ok), "a NIC for {MEASURED} queue pairs did not create as many");
        let [own, peer] = ends.map(|end| end.expect("the queue pair exists"));
        world.connect(own, peer, &settings);
    }
    Ok((resident_bytes()? - before) as f64 / (2 * MEASURED) as f64)
}

/// Measures the same WRITEs in this software, over shared memory with one core per side.
fn measured(args: &Args) -> Result<()> {
    for only in ["shm/write/64/window-128/batch-32", "shm/write/64/latency"] {
        let rounds = args.rounds.to_string();
        let words = ["bench", "verbs", "--port", "shm", "--rounds", &rounds, "--only", only];
        let json = args.json.then_some("--json");
        let words = words.into_iter().chain(json).map(OsString::from);
        bench::rows(&bench::Args::try_parse_from(words)?)?;
    }
    Ok(())
}
