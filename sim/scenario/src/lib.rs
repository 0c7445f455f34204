//! Scenarios of the fabric: what runs on which network, read from a text.
//!
//! [`mod@format`] reads and writes the files of HPCC, ConWeave and htsim, and our own TOML. [`workload`]
//! makes flows. Every format becomes one [`Scenario`]. Text goes in and values come out: there are no files,
//! threads and clocks here.

mod error;
pub mod experiment;
mod flow;
pub mod format;
mod hash;
pub mod path;
pub mod record;
pub mod run;
pub mod scenario;
pub mod setup;
pub mod sweep;
mod tokens;
pub mod units;
mod window;
pub mod workload;

pub use error::{FILE_MAX, FLOWS_MAX, Read, ScenarioError, Source, Warning};
pub use flow::{After, DATA_CLASS, Dependency, End, Flow, Start, Verb};
pub use scenario::Scenario;
