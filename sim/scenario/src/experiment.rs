//! The evaluations of papers as scenarios, and the measurement of their runs.

pub mod irn;
