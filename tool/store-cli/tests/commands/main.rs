//! Tests of the stores' commands from the outside: the real binaries, real processes, small tables, free
//! ports.

mod admission;
mod block;
mod cache;
mod kv;
mod kv_rma;
mod kv_tools;
mod loading;
mod mistakes;
mod repair;
mod rma;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../cli/tests/commands/running.rs"]
mod running;
mod txn;
mod waits;
