//! Faults on purpose: drop, duplicate, reorder, delay and corrupt frames by rule.
//!
//! What befalls which frame is decided by `remora_fault::Policy`, so that one rule file drives a
//! simulated link and a real port; how it befalls a frame of a real port is here.
//!
//! | file | holds |
//! |---|---|
//! | `held.rs` | frames that were taken out and will be put back |
//! | `wrapper.rs` | [`Fault`]: a port with a policy |

mod held;
mod wrapper;

pub use remora_fault::{
    Action, Direction, Directions, Facts, PeerMatch, Policy, Rule, Rules, RulesError, Tally, Verdict,
};
pub use wrapper::Fault;
