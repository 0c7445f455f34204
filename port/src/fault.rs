//! Faults on purpose: drop, duplicate, reorder, delay and corrupt frames by rule.
//!
//! | file | holds |
//! |---|---|
//! | `rules.rs` | [`Rules`]: what shall go wrong, as a value and as TOML |
//! | `policy.rs` | [`Policy`]: the rules and one seed, judging frame after frame; no port, no clock, no I/O |
//! | `random.rs` | the random numbers: the same for ever, whatever crates do |
//! | `held.rs` | frames that were taken out and will be put back |
//! | `facts.rs` | what a rule may ask about a frame, read from its bytes |
//! | `wrapper.rs` | [`Fault`]: a port with a policy |
//!
//! The policy knows no port, clock or I/O. Rule files are written as for the simulated fabric (`fabric/src/fault.rs`),
//! so one file drives both. A port knows three more keys of a rule: `after` (so many matching frames pass first),
//! `at_most` (then the rule is over) and `peer`; and `delay_us` may be a range, `[least, most]`. Here the first rule
//! that wants a frame has it, in the fabric the faults of several rules combine.
//!
//! ```
//! use remora_port::fault::{Direction, Facts, Policy, Rules, Verdict};
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

mod facts;
mod held;
mod policy;
mod random;
mod rules;
mod wrapper;

pub use facts::Facts;
pub use policy::{Policy, Tally, Verdict};
pub use random::Random;
pub use rules::{Action, Direction, Directions, PeerMatch, Rule, Rules, RulesError};
pub use wrapper::Fault;
