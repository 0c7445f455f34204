//! The Yahoo! Cloud Serving Benchmark: the core workloads A to F as streams of operations, seeded. The paper
//! is Cooper, Silberstein, Tam, Ramakrishnan, Sears: *Benchmarking Cloud Serving Systems with YCSB*, SoCC
//! 2010.
//!
//! The same seed gives the same stream, on every machine and in every version. There is no clock and no store
//! in here. A [`Workload`] says which operation on which record comes next, [`record`] says which bytes that
//! record has.

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
