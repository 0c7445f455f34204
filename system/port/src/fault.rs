//! Deliberate faults: drop, duplicate, reorder, delay and corrupt frames by rule.
//!
//! `remora_fault::Policy` decides which fault befalls which frame, so one rule file drives a simulated link
//! and a real port. This module carries the fault out on the frames of a real port. A rule names frames by
//! their first byte behind UDP: the op-code of a BTH, or E0 to E7, the messages of 1RMA.
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
