//! Real runs over `udp`: each server and each client is a process on a host of its own (a network
//! namespace; all are connected to one bridge). Processes are killed and stopped, links are cut, and the
//! recorded histories are checked. Needs root; without it each test prints a message and ends.
//!
//! No result depends on time: a mishap lasts until the clients show its effect, and the history proves that
//! each mishap happened.

mod block;
mod hosts;
mod kv;
mod party;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../../tool/cli/tests/commands/running.rs"]
mod running;
mod scene;
mod txn;
