//! Tests of the `remora` command from the outside: the real binaries, real processes, small tables, free
//! ports.

mod addresses;
mod broker;
mod capture;
mod chain;
mod counters;
mod documented;
mod golden;
mod limits;
mod nicd;
mod outputs;
mod programs;
mod replay;
#[allow(dead_code, reason = "the other programs' tests use the rest")]
mod running;
mod terminal;
