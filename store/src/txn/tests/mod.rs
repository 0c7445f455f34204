//! The machines over an executor of their operations.

mod executor;
mod machine;
mod rules;
mod small_world;
