//! Tests of the PRISM-TX machines over an executor of their operations.

pub(crate) mod executor;
mod machine;
mod rules;
mod small_world;
