//! Unmodified programs of rdma_cm, as Debian ships them or as its headers compile them, on both libraries.

mod c_programs;
mod connections;
#[path = "../../../ibverbs/tests/programs/library.rs"]
mod library;
mod ownership;
mod perftest;
mod pyverbs;
mod symbols;
mod utilities;

/// The libraries that the tests link: the second finds the first beside it.
const LIBRARIES: [&str; 2] = ["ibverbs", "rdmacm"];
