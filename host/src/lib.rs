//! The `host` room.

pub mod metrics;
