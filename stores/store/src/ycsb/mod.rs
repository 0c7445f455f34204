//! The Yahoo! Cloud Serving Benchmark: the core workloads A to F as seeded streams of operations. The paper
//! is Cooper, Silberstein, Tam, Ramakrishnan, Sears: *Benchmarking Cloud Serving Systems with YCSB*, SoCC
//! 2010.
//!
//! A seed gives the same stream on every machine and in every version. The module uses no clock and no
//! store. A [`Workload`] chooses the next operation and its record; [`record`] defines the bytes of the
//! record.

mod properties;
pub mod record;
mod skewed;
mod workload;
mod zipfian;

pub use properties::{Properties, PropertyError};
pub use record::{Record, Values};
pub use skewed::Skewed;
pub use workload::{Distribution, Mix, Operation, Stripe, Workload};
pub use zipfian::{Latest, ScrambledZipfian, Zipfian, fnv, zeta};
