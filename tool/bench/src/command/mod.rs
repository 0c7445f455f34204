//! What the benchmarks share with the command: ports, designs, output, signals.

pub mod conduct;
pub mod designs;
pub mod device;
pub mod ending;
pub mod number;
pub mod output;
pub mod print;
pub mod transport;
