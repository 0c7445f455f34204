//! The fabric: a simulated world of NICs and links. One seed, virtual time, no threads: a world run twice does the same.

pub mod fault;
mod random;

pub use random::Random;
