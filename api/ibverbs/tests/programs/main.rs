//! Unmodified programs of verbs, as Debian ships them or as its headers compile them, on this library.

mod c_programs;
mod library;
mod links;
mod one_address;
mod pairs;
mod perftest;
mod pingpong;
mod symbols;

/// The libraries that the tests link.
const LIBRARIES: [&str; 1] = ["ibverbs"];
