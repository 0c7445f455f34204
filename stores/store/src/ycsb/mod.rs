//! The Yahoo! Cloud Serving Benchmark (Cooper, Silberstein, Tam, Ramakrishnan, Sears: *Benchmarking Cloud Serving
//! Systems with YCSB*, SoCC 2010): the core workloads A to F as streams of operations, seeded.
//!
//! The same seed gives the same stream, on every machine and in every version. No clock and no store is in here: a
//! [`Workload`] says which operation on which record comes next, [`record`] says which bytes that record has.

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
