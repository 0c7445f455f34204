//! Options that the benchmarks share with the store commands: designs, transports and servers.

pub mod conduct;
pub mod designs;
pub mod transport;
