//! Options that benchmarks share with the commands of the stores: designs, transports, servers.

pub mod conduct;
pub mod designs;
pub mod transport;
