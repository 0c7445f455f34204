//! Numbers that differ between runs.

/// A random number. Keys hash differently in each server, so nobody can prepare collisions.
pub fn fresh() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
