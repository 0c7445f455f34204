//! Unmodified rdma_cm programs, as Debian ships them or compiled with Debian's headers, on both libraries.
#![allow(unsafe_code, reason = "a filter of system calls is installed between fork and exec")]

mod c_programs;
mod connections;
mod faults;
mod gids;
mod lent;
#[path = "../../../ibverbs/tests/programs/library.rs"]
mod library;
mod links;
mod loss;
mod many;
mod ownership;
#[path = "../../../ibverbs/tests/programs/pairs.rs"]
#[allow(dead_code, reason = "the tests of libibverbs call the rest")]
mod pairs;
mod perftest;
mod places;
mod pyverbs;
mod seccomp;
mod symbols;
mod traffic_class;
mod utilities;
mod valgrind;

/// The libraries that the tests link. The second finds the first beside it.
const LIBRARIES: [&str; 2] = ["ibverbs", "rdmacm"];
