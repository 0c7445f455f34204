//! `remora sim` as a person or a script meets it: the real binaries, real processes, small tables, free
//! ports.

#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../../../cli/tests/commands/running.rs"]
mod running;
mod sim;
mod sim_capture;
mod sim_outputs;
