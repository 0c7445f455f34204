//! 1RMA in simulated worlds: what it does, and what nobody can make it do.

mod attack;
mod bed;
mod bounds;
mod operations;
mod random;
#[path = "../seeds/mod.rs"]
mod seeds;
