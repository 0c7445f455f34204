//! The fault policy of a link: rules say what befalls which frame; the same rule file drives a simulated link and a
//! wrapped port.
//!
//! ```toml
//! [[rule]]
//! fault = "drop"              # drop, duplicate, reorder, delay, corrupt
//! probability = 0.05          # or: every = 20
//!
//! [[rule]]
//! fault = "delay"
//! delay_us = 300
//! every = 100
//! direction = "out"           # left out: both
//! opcodes = ["RC Acknowledge", 0x10]
//! ```

use serde::{Deserialize, Serialize};
use wire::Opcode;
use wire::frame::Start;

use crate::Random;

/// The rules of a link, in order. Every rule is asked about every frame that it is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// In a file: one `[[rule]]` each.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// What befalls which frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// Happens to a frame with this probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Happens to every so many-th frame that the rule is for. Without `probability` and `every` it happens to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Only in this direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Only to packets of these op-codes: numbers, or names as [`Opcode`] displays them; upper case does not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opcodes: Vec<OpcodeName>,
    /// For `delay`: how late the frame is, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// For `reorder`: how many later frames overtake it; 1 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
}

impl Rule {
    /// `fault` with a probability, in both directions, to all op-codes.
    pub fn chance(fault: Fault, probability: f64) -> Rule {
        Rule { probability: Some(probability), ..Rule::always(fault) }
    }

    /// `fault` to every `nth` frame.
    pub fn every(fault: Fault, nth: u64) -> Rule {
        Rule { every: Some(nth), ..Rule::always(fault) }
    }

    /// `fault` to every frame.
    pub fn always(fault: Fault) -> Rule {
        let (probability, every, direction, delay_us, by) = (None, None, None, None, None);
        Rule { fault, probability, every, direction, opcodes: Vec::new(), delay_us, by }
    }

    /// Only to these op-codes.
    pub fn only(self, opcodes: &[Opcode]) -> Rule {
        Rule { opcodes: opcodes.iter().map(|opcode| OpcodeName::Number(opcode.0)).collect(), ..self }
    }

    /// Only in this direction.
    pub fn towards(self, direction: Direction) -> Rule {
        Rule { direction: Some(direction), ..self }
    }
}

/// What may happen to a frame on its way.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// Later ones overtake it.
    Reorder,
    /// It is late; those behind it may overtake it.
    Delay,
    /// One of its bits is turned.
    Corrupt,
}

/// Which way a frame goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a wrapped port to its peers; in a `World`, from the node of the lower number to the other.
    Out,
    /// The other way.
    In,
}

/// An op-code in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OpcodeName {
    /// Its number.
    Number(u8),
    /// Its name.
    Name(String),
}

impl OpcodeName {
    /// The op-code; `None` if no op-code has this name.
    pub fn opcode(&self) -> Option<Opcode> {
        match self {
            OpcodeName::Number(number) => Some(Opcode(*number)),
            OpcodeName::Name(name) => (0..=u8::MAX)
                .map(Opcode)
                .filter(|opcode| opcode.is_known())
                .find(|opcode| opcode.to_string().eq_ignore_ascii_case(name)),
        }
    }
}

/// Why a rule file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// It is no TOML of this form; the parser's words.
    Syntax(String),
    /// No op-code has this name.
    UnknownOpcode(String),
    /// A probability is not between 0 and 1.
    Probability,
    /// `every = 0`.
    Never,
    /// A `delay` without `delay_us`.
    NoDelay,
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RulesError::Syntax(words) => write!(f, "not a rule file: {words}"),
            RulesError::UnknownOpcode(name) => {
                write!(f, "no op-code is called {name:?}; they are called like \"RC SEND Only\"")
            }
            RulesError::Probability => f.write_str("a probability lies between 0 and 1"),
            RulesError::Never => f.write_str("every = 0 would never happen: give 1 or more, or leave it out"),
            RulesError::NoDelay => f.write_str("a delay needs delay_us"),
        }
    }
}

impl std::error::Error for RulesError {}

impl Rules {
    /// Reads a rule file.
    ///
    /// # Errors
    /// See [`RulesError`].
    pub fn from_toml(text: &str) -> Result<Rules, RulesError> {
        let rules: Rules =
            toml::from_str(text).map_err(|error| RulesError::Syntax(error.message().to_owned()))?;
        rules.check()?;
        Ok(rules)
    }

    fn check(&self) -> Result<(), RulesError> {
        for rule in &self.rules {
            for name in &rule.opcodes {
                if let (None, OpcodeName::Name(name)) = (name.opcode(), name) {
                    return Err(RulesError::UnknownOpcode(name.clone()));
                }
            }
            if rule.probability.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
                return Err(RulesError::Probability);
            }
            if rule.every == Some(0) {
                return Err(RulesError::Never);
            }
            if rule.fault == Fault::Delay && rule.delay_us.is_none() {
                return Err(RulesError::NoDelay);
            }
        }
        Ok(())
    }
}

/// What is to happen to one frame. Faults combine, except that a lost frame is only lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It is lost.
    pub lost: bool,
    /// It arrives twice.
    pub twice: bool,
    /// So many later frames overtake it.
    pub overtaken_by: u32,
    /// It is late by so many nanoseconds.
    pub late_ns: u64,
    /// This bit of it is turned (of a duplicated frame: in the first copy only).
    pub flip: Option<u32>,
}

/// How often each fault happened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames judged.
    pub frames: u64,
    /// Lost.
    pub dropped: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Overtaken.
    pub reordered: u64,
    /// Late.
    pub delayed: u64,
    /// With a bit turned.
    pub corrupted: u64,
}

impl Counts {
    /// Adds another link's.
    pub fn add(&mut self, other: &Counts) {
        self.frames += other.frames;
        self.dropped += other.dropped;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
    }
}

/// A rule made ready: op-codes as a set, and how many frames it has seen.
#[derive(Clone, Debug)]
struct Ready {
    rule: Rule,
    /// One bit per op-code; all set if the rule is for any.
    opcodes: [u64; 4],
    seen: u64,
}

/// Rules at work on the frames of one link. One seed, one sequence of frames: the same verdicts.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<Ready>,
    random: Random,
    counts: Counts,
}

impl Faults {
    /// Puts `rules` to work. Op-code names that nothing has match nothing ([`Rules::from_toml`] refuses them).
    pub fn new(rules: &Rules, seed: u64) -> Faults {
        let ready = |rule: &Rule| {
            let mut opcodes = if rule.opcodes.is_empty() { [u64::MAX; 4] } else { [0; 4] };
            for opcode in rule.opcodes.iter().filter_map(OpcodeName::opcode) {
                opcodes[usize::from(opcode.0) / 64] |= 1 << (opcode.0 % 64);
            }
            Ready { rule: rule.clone(), opcodes, seen: 0 }
        };
        Faults {
            rules: rules.rules.iter().map(ready).collect(),
            random: Random::new(seed),
            counts: Counts::default(),
        }
    }

    /// What happens to this frame.
    #[inline]
    pub fn judge(&mut self, direction: Direction, start: Start, frame: &[u8]) -> Verdict {
        self.counts.frames += 1;
        let mut verdict = Verdict::default();
        if self.rules.is_empty() {
            return verdict;
        }
        let opcode = opcode(start, frame).map_or(0xff, |opcode| opcode.0);
        for ready in &mut self.rules {
            let rule = &ready.rule;
            if rule.direction.is_some_and(|only| only != direction)
                || ready.opcodes[usize::from(opcode) / 64] >> (opcode % 64) & 1 == 0
            {
                continue;
            }
            ready.seen += 1;
            if rule.every.is_some_and(|nth| !ready.seen.is_multiple_of(nth))
                || rule.probability.is_some_and(|p| !self.random.chance(p))
            {
                continue;
            }
            match rule.fault {
                Fault::Drop => verdict.lost = true,
                Fault::Duplicate => verdict.twice = true,
                Fault::Reorder => verdict.overtaken_by = rule.by.unwrap_or(1),
                Fault::Delay => verdict.late_ns = rule.delay_us.unwrap_or(0) * 1000,
                Fault::Corrupt => verdict.flip = Some(self.random.below(frame.len() as u64 * 8) as u32),
            }
        }
        self.count(verdict)
    }

    fn count(&mut self, verdict: Verdict) -> Verdict {
        if verdict.lost {
            self.counts.dropped += 1;
            return Verdict { lost: true, ..Verdict::default() };
        }
        self.counts.duplicated += u64::from(verdict.twice);
        self.counts.reordered += u64::from(verdict.overtaken_by > 0);
        self.counts.delayed += u64::from(verdict.late_ns > 0);
        self.counts.corrupted += u64::from(verdict.flip.is_some());
        verdict
    }

    /// Goes on counting where other rules left off.
    pub fn resume(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// The op-code of a frame: the first byte of its BTH. `None` if it is shorter than its headers.
pub fn opcode(start: Start, frame: &[u8]) -> Option<Opcode> {
    let ip = if start == Start::Ethernet { wire::ethernet::LEN } else { 0 };
    let is_ipv4 = start == Start::Bth || frame.get(ip)? >> 4 == 4;
    frame.get(start.overhead(is_ipv4)).map(|byte| Opcode(*byte))
}

/// Turns bit `bit` of a frame.
pub fn flip(frame: &mut [u8], bit: u32) {
    if let Some(byte) = frame.get_mut(bit as usize / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests;
