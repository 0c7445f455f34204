//! Evaluations of papers as scenarios, and what their runs come to.

pub mod irn;
