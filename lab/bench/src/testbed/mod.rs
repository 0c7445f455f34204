//! The peer process of a benchmark, and what the benchmark tells it.
//!
//! | module | holds |
//! |---|---|
//! | [`pair`], [`protocol`], [`page`] | a peer process with NICs, and the messages to it |
//! | [`local`] | two NICs of this process |

pub(crate) mod local;
pub(crate) mod page;
pub(crate) mod pair;
pub(crate) mod protocol;

pub(crate) use remora_store_cli::measure::testbed::{Network, Testbed, process, veth};
