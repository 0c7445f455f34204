//! Seeds that differ between runs.

/// Returns a random number. It seeds the key hash of a server, so nobody can prepare collisions.
pub fn fresh() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
