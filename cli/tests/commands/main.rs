//! The `remora` command as a person or a script meets it: the real binary, real processes, small tables, free ports.

mod block;
mod cache;
mod capture;
mod chain;
mod congestion;
mod counters;
mod curves;
mod figures;
mod kv;
mod kv_tools;
mod limits;
mod loss;
mod mistakes;
mod nicd;
mod prism;
mod redn;
mod repair;
mod replay;
mod running;
mod strom;
mod txn;
mod txn_bench;
