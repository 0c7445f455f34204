//! Scenarios: which traffic runs over which simulated network, with which NICs and switches.
//!
//! [`mod@format`] reads and writes Remora's own TOML, which becomes a [`Scenario`]; the crate `remora-import`
//! reads the files of HPCC, ConWeave and htsim. [`workload`] generates flows, [`run`] runs a scenario, and
//! [`record`] turns what happens into output files. This crate works on strings and values only: it opens no
//! files, starts no threads and reads no clock.

pub mod error;
pub mod experiment;
pub mod flow;
pub mod format;
mod hash;
pub mod path;
pub mod record;
pub mod run;
pub mod scenario;
pub mod setup;
pub mod sweep;
pub mod tokens;
pub mod units;
mod window;
pub mod workload;

pub use error::{FILE_MAX, FLOWS_MAX, Read, ScenarioError, Source, Warning};
pub use flow::{After, DATA_CLASS, Dependency, End, Flow, Start, Verb};
pub use scenario::Scenario;
