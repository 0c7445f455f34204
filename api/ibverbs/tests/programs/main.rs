//! Unmodified verbs programs, as Debian ships them or compiled with Debian's headers, on this library.

mod bench;
mod brokers;
mod c_programs;
mod gids;
mod library;
mod links;
mod memory;
mod network;
mod one_address;
mod ownership;
mod pairs;
mod perftest;
mod pingpong;
mod privileged;
mod symbols;
mod valgrind;

/// The libraries that the tests link.
const LIBRARIES: [&str; 1] = ["ibverbs"];
