//! Fault injection: drops, duplicates, reorders, delays and corrupts frames by rule.
//!
//! `remora_fault::Policy` decides which fault applies to which frame, so one rule file drives both a
//! simulated link and a real port. This module applies the faults to the frames of a real port. A rule
//! selects frames by the first byte after the UDP header: the op-code of a BTH, or E0 to E7 for messages of
//! 1RMA.
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
/// Faults of verbs, which a port does not have, except that it drops all frames while it is down.
pub mod verbs {
    pub use remora_fault::{
        Errno, Incident, IncidentKind, Occurrence, QueuePairFaults, RegistrationFaults, VerbRules, WorkKind,
    };
}
pub use wrapper::Fault;
