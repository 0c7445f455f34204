//! The peer process of a benchmark, and what the benchmark tells it.
//!
//! | module | holds |
//! |---|---|
//! | [`pair`], [`protocol`], [`page`] | a peer process with NICs, and the messages to it |
//! | [`local`] | two NICs of this process |

pub mod local;
pub mod page;
pub mod pair;
pub mod protocol;

pub use remora_store_cli::measure::testbed::{Network, Testbed, process, veth};
