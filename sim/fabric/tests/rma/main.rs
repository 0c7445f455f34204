//! 1RMA in simulated worlds: its operations, and its resistance to attacks.

mod attack;
mod bed;
mod bounds;
mod delays;
mod figures;
mod operations;
mod random;
#[path = "../seeds/mod.rs"]
#[allow(dead_code, reason = "other bodies count the retries of reliable connections, too")]
mod seeds;
mod tenants;
