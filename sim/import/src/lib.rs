//! The files of other simulators, translated into scenarios of Remora: HPCC's and ConWeave's ns-3 programs,
//! and htsim.
//!
//! | module | holds |
//! |---|---|
//! | [`hpcc`], [`htsim`] | configurations, topologies and flows of each simulator |
//! | [`mod@paths`] | tables of the paths that flows took there |
//! | `supply` | the contents of files that a scenario names |

pub mod hpcc;
pub mod htsim;
pub mod paths;
mod supply;
mod table;

pub use supply::{Need, files, supply};
