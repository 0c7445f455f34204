//! Real runs over `udp`: each server and each client is a process on a host of its own (a network namespace;
//! all hang on one bridge). Processes are killed and stopped, links are cut, and what the clients recorded is
//! judged. Needs root; without it each test says so and ends.
//!
//! Nothing is timed: a mishap lasts until the clients have shown what it did, and each is proved by the
//! history itself.

mod block;
mod hosts;
mod kv;
mod party;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../../tool/cli/tests/commands/running.rs"]
mod running;
mod scene;
mod txn;
