//! Deliberate faults: decides which frames are dropped, duplicated, delayed, reordered or corrupted, and
//! which verbs fail. The same rule file applies to a simulated link and to a wrapped port.
//!
//! | file | holds |
//! |---|---|
//! | `rules.rs` | [`Rules`]: the wanted faults, as a value and as TOML |
//! | `policy.rs` | [`Policy`]: the rules and one seed, judging frame after frame; no port, no clock, no I/O |
//! | `verbs.rs` | faults of verbs: calls, completions, registrations, incidents of the device |
//! | `facts.rs` | the properties of a frame that a rule may use, read from its bytes |
//! | `random.rs` | [`Random`]: the numbers of a seed, for rules and for simulations |
//!
//! ```
//! use remora_fault::{Direction, Facts, Policy, Rules, Verdict};
//!
//! let rules = Rules::parse("
//!     seed = 7
//!     [[rule]]
//!     fault = 'drop'
//!     direction = 'out'
//!     opcodes = [0x0a]        # RC WRITE ONLY
//!     every = 2
//! ").unwrap();
//! let mut policy = Policy::new(&rules);
//! let write = Facts { opcode: Some(0x0a), peer: None, len: 96 };
//! assert_eq!(policy.judge(Direction::Send, &write), Verdict::Pass);
//! assert_eq!(policy.judge(Direction::Send, &write), Verdict::Drop);
//! assert_eq!(policy.judge(Direction::Receive, &write), Verdict::Pass);
//! ```
//!
//! `opcodes` are numbers, or names of op-codes such as "RC SEND Only". The messages of 1RMA are `0xe0` to
//! `0xe7`, as in `docs/reference/wire/frames.md`.

mod facts;
mod occasions;
mod peer;
mod policy;
mod random;
mod rules;
mod rules_error;
mod verbs;

pub use facts::Facts;
pub use occasions::Occasions;
pub use peer::PeerMatch;
pub use policy::{Policy, Tally, Verdict};
pub use random::Random;
pub use rules::{Action, Direction, Directions, Rule, Rules};
pub use rules_error::RulesError;
pub use verbs::{
    Errno, Incident, IncidentKind, Occurrence, QueuePairFaults, RegistrationFaults, VerbRules, WorkKind,
};

/// Inverts bit `bit` of a frame. Does nothing if the frame is shorter.
pub fn flip(frame: &mut [u8], bit: u32) {
    if let Some(byte) = frame.get_mut(bit as usize / 8) {
        *byte ^= 1 << (bit % 8);
    }
}
