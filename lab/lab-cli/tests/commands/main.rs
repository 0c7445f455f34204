//! Tests of benchmarks and figures from the outside: the real binaries, real processes, small tables, free
//! ports.

mod congestion;
mod curves;
mod figures;
mod loss;
mod options;
mod prism;
mod redn;
mod replay;
mod rma_bench;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../../tool/cli/tests/commands/running.rs"]
mod running;
mod strom;
mod txn_bench;
