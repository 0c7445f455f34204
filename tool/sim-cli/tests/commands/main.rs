//! Tests of `remora sim` from the outside: the real binaries and real processes.

#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../cli/tests/commands/running.rs"]
mod running;
mod sim;
mod sim_capture;
mod sim_outputs;
