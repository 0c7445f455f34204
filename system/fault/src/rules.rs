//! Fault rules, as values and as TOML.

use serde::Deserialize;

use crate::occasions::Occasions;
use crate::peer::PeerMatch;
use crate::rules_error::RulesError;
use crate::verbs::{self, VerbRules};

/// The rules of a link. The first rule that matches a frame decides.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "RulesText")]
pub struct Rules {
    /// Seed of all random decisions. The same rules and seed make the same decisions about the same frames.
    pub seed: u64,
    /// Maximum number of frames that may be held (delayed, reordered, duplicated) at the same time per
    /// direction. Further frames pass.
    pub hold: usize,
    /// Rules, in the order of evaluation (`[[rule]]` in TOML).
    pub rules: Vec<Rule>,
    /// Faults of verbs, which a simulated link does not have.
    pub verbs: VerbRules,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { seed: 0, hold: default_hold(), rules: Vec::new(), verbs: VerbRules::default() }
    }
}

/// The rules as in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesText {
    #[serde(default)]
    seed: u64,
    #[serde(default = "default_hold")]
    hold: usize,
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
    #[serde(default, rename = "post")]
    posts: Vec<verbs::VerbRule<verbs::Errno>>,
    #[serde(default, rename = "completion")]
    completions: Vec<verbs::VerbRule<verbs::Failure>>,
    #[serde(default, rename = "registration")]
    registrations: Vec<verbs::RegistrationRule>,
    #[serde(default, rename = "incident")]
    incidents: Vec<verbs::Incident>,
}

impl From<RulesText> for Rules {
    fn from(text: RulesText) -> Rules {
        let RulesText { seed, hold, rules, posts, completions, registrations, incidents } = text;
        Rules { seed, hold, rules, verbs: VerbRules { seed, posts, completions, registrations, incidents } }
    }
}

fn default_hold() -> usize {
    1024
}

/// The direction of a frame, from the point of view of the port. In a simulated world, from that of the node
/// with the lower number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent by this side.
    Send,
    /// Received by this side.
    Receive,
}

/// The directions to which a rule applies.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Directions {
    /// Only frames that are sent.
    #[serde(rename = "out")]
    Send,
    /// Only frames that are received.
    #[serde(rename = "in")]
    Receive,
    /// Both directions, counted separately.
    #[serde(rename = "both")]
    #[default]
    Both,
}

impl Directions {
    /// Returns true if the rule applies to this direction.
    pub fn include(self, direction: Direction) -> bool {
        match self {
            Directions::Send => direction == Direction::Send,
            Directions::Receive => direction == Direction::Receive,
            Directions::Both => true,
        }
    }
}

/// The fault of a rule.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The frame is dropped.
    Drop,
    /// The frame is delivered twice.
    Duplicate,
    /// The frame is held until `frames` later frames of its direction have passed, or for a millisecond if
    /// there are fewer.
    Reorder {
        /// Number of frames that overtake it, at least 1.
        frames: u32,
    },
    /// The frame is delayed by a random time between these bounds.
    Delay {
        /// Shortest delay, in nanoseconds.
        min_ns: u64,
        /// Longest delay, in nanoseconds.
        max_ns: u64,
    },
    /// The frame passes a slow rail: it waits for the frames before it, and arrives after a latency, in
    /// order.
    Slow {
        /// Rate of the rail in bits per second, at least 1.
        bits_per_s: u64,
        /// Shortest latency, in nanoseconds.
        min_ns: u64,
        /// Longest latency, in nanoseconds.
        max_ns: u64,
    },
    /// Changes one byte between the BTH and the end of the ICRC, or of a 1RMA message.
    Corrupt,
}

/// A rule: the frames that it matches, its frequency, and its action.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RuleText")]
pub struct Rule {
    /// Action on a matching frame.
    pub action: Action,
    /// Directions to which the rule applies.
    pub directions: Directions,
    /// Op-codes (first byte of the BTH) that the rule matches; empty matches all. E0 to E7 are the messages
    /// of 1RMA, which have no BTH.
    pub opcodes: Vec<u8>,
    /// Peer that the rule matches; `None` matches all.
    pub peer: Option<PeerMatch>,
    /// The matching frames to which the action is applied, counted separately for each direction.
    pub occasions: Occasions,
}

impl Rule {
    /// Returns a rule that applies an action to each frame with this probability.
    pub fn chance(action: Action, probability: f64) -> Rule {
        let occasions = Occasions { probability, ..Occasions::default() };
        Rule { occasions, ..Rule::new(action) }
    }

    /// Returns a rule that applies an action to every `nth` frame.
    pub fn every(action: Action, nth: u64) -> Rule {
        let occasions = Occasions { every: nth, ..Occasions::default() };
        Rule { occasions, ..Rule::new(action) }
    }

    /// Lets this number of matching frames pass before the rule becomes active.
    pub fn after(mut self, frames: u64) -> Rule {
        self.occasions.after = frames;
        self
    }

    /// Limits the number of actions per direction.
    pub fn at_most(mut self, actions: u64) -> Rule {
        self.occasions.at_most = Some(actions);
        self
    }

    /// Restricts the rule to packets with these op-codes.
    pub fn only(self, opcodes: &[remora_wire::Opcode]) -> Rule {
        Rule { opcodes: opcodes.iter().map(|opcode| opcode.0).collect(), ..self }
    }

    /// Restricts the rule to these directions.
    pub fn towards(self, directions: Directions) -> Rule {
        Rule { directions, ..self }
    }

    /// Returns a rule that applies an action to all frames, which can be restricted.
    pub fn new(action: Action) -> Rule {
        Rule {
            action,
            directions: Directions::Both,
            opcodes: Vec::new(),
            peer: None,
            occasions: Occasions::default(),
        }
    }
}

/// A rule as in the file; [`Rule`] is the validated form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    fault: Kind,
    #[serde(default)]
    direction: Directions,
    #[serde(default)]
    opcodes: Vec<OpcodeText>,
    peer: Option<String>,
    #[serde(default)]
    after: u64,
    every: Option<u64>,
    probability: Option<f64>,
    at_most: Option<u64>,
    delay_us: Option<DelayText>,
    rate_mbps: Option<f64>,
    latency_us: Option<DelayText>,
    by: Option<u32>,
}

/// An op-code: `0x0a` or `"RC WRITE Only"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum OpcodeText {
    Number(u8),
    Name(String),
}

impl OpcodeText {
    fn number(&self) -> Result<u8, RulesError> {
        match self {
            OpcodeText::Number(number) => Ok(*number),
            OpcodeText::Name(name) => (0..=u8::MAX)
                .find(|number| remora_wire::Opcode(*number).to_string().eq_ignore_ascii_case(name))
                .ok_or_else(|| {
                    RulesError(format!(
                        "no op-code is called `{name}`; they are called like \"RC SEND Only\""
                    ))
                }),
        }
    }
}

/// A delay: `300` or `[100, 500]`.
#[derive(Copy, Clone, Deserialize)]
#[serde(untagged)]
enum DelayText {
    Just(u64),
    Between([u64; 2]),
}

#[derive(Copy, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Drop,
    Duplicate,
    Reorder,
    Delay,
    Slow,
    Corrupt,
}

/// Returns the bounds of a time in nanoseconds.
fn bounds(name: &str, text: Option<DelayText>) -> Result<[u64; 2], RulesError> {
    let [least, most] = match text {
        Some(DelayText::Between(both)) => both,
        Some(DelayText::Just(us)) => [us, us],
        None => [0, 0],
    };
    if least > most {
        return Err(RulesError(format!("`{name} = [least, most]`: the first is not the greater")));
    }
    Ok([least, most].map(|us| us.saturating_mul(1000)))
}

impl TryFrom<RuleText> for Rule {
    type Error = RulesError;

    fn try_from(text: RuleText) -> Result<Rule, RulesError> {
        let wrong = |why: &str| Err(RulesError(why.to_owned()));
        if text.delay_us.is_some() != (text.fault == Kind::Delay) {
            return wrong("`delay_us` goes with fault = \"delay\", and only with it");
        }
        if (text.rate_mbps.is_some() || text.latency_us.is_some()) && text.fault != Kind::Slow {
            return wrong("`rate_mbps` and `latency_us` go only with fault = \"slow\"");
        }
        if text.by.is_some() && text.fault != Kind::Reorder {
            return wrong("`by` goes only with fault = \"reorder\"");
        }
        let occasions = Occasions::new(text.after, text.every, text.probability, text.at_most)?;
        if text.by == Some(0) {
            return wrong("`by` is at least 1");
        }
        let action = match text.fault {
            Kind::Drop => Action::Drop,
            Kind::Duplicate => Action::Duplicate,
            Kind::Reorder => Action::Reorder { frames: text.by.unwrap_or(1) },
            Kind::Corrupt => Action::Corrupt,
            Kind::Delay => {
                let [min_ns, max_ns] = bounds("delay_us", text.delay_us)?;
                Action::Delay { min_ns, max_ns }
            }
            Kind::Slow => {
                let [min_ns, max_ns] = bounds("latency_us", text.latency_us)?;
                let rate = text.rate_mbps.unwrap_or(f64::INFINITY);
                if rate.is_nan() || rate < 0.000_001 || rate == f64::INFINITY && max_ns == 0 {
                    return wrong("fault = \"slow\" needs `rate_mbps`, greater than 0, or `latency_us`");
                }
                Action::Slow { bits_per_s: (rate * 1e6) as u64, min_ns, max_ns }
            }
        };
        Ok(Rule {
            action,
            directions: text.direction,
            opcodes: text.opcodes.iter().map(OpcodeText::number).collect::<Result<_, _>>()?,
            peer: text.peer.as_deref().map(str::parse).transpose()?,
            occasions,
        })
    }
}

impl Rules {
    /// Returns these rules with seed 0.
    pub fn of(rules: Vec<Rule>) -> Rules {
        Rules { rules, ..Rules::default() }
    }

    /// Parses rules from TOML. A byte-order mark in front of the text is skipped.
    ///
    /// # Errors
    /// [`RulesError`] with position and description of the error.
    pub fn parse(text: &str) -> Result<Rules, RulesError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        toml::from_str(text).map_err(|error| RulesError(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn every_key_is_read() {
        let rules = Rules::parse(
            r#"
            seed = 99
            hold = 5
            [[rule]]
            fault = "delay"
            direction = "in"
            opcodes = [0x04, "rc rdma write only"]
            peer = "[fd00::2]:4791"
            after = 10
            every = 3
            probability = 0.25
            at_most = 7
            delay_us = [1, 2]
            [[rule]]
            fault = "reorder"
            by = 4
            peer = "10.0.0.2"
            "#,
        )
        .unwrap();
        let address: IpAddr = "fd00::2".parse().unwrap();
        let delay = Rule {
            action: Action::Delay { min_ns: 1000, max_ns: 2000 },
            directions: Directions::Receive,
            opcodes: vec![4, 10],
            peer: Some(PeerMatch { address: address.into(), udp_port: Some(4791) }),
            occasions: Occasions { after: 10, every: 3, probability: 0.25, at_most: Some(7) },
        };
        let reorder =
            Rule { peer: Some("10.0.0.2".parse().unwrap()), ..Rule::new(Action::Reorder { frames: 4 }) };
        assert_eq!(rules.rules, [delay, reorder]);
        assert_eq!((rules.seed, rules.hold, rules.verbs.is_empty()), (99, 5, true));
        assert_eq!(Rules::parse("").unwrap(), Rules::default());
        assert_eq!(Rules::parse("\u{feff}seed = 99").unwrap(), Rules::parse("seed = 99").unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (rule, reason) in [
            ("fault = 'explode'", "explode"),
            ("fault = 'drop'\nprobabilty = 0.1", "probabilty"),
            ("fault = 'drop'\nprobability = 1.5", "from 0 to 1"),
            ("fault = 'drop'\nprobability = nan", "from 0 to 1"),
            ("fault = 'drop'\nevery = 0", "at least 1"),
            ("fault = 'delay'", "delay_us"),
            ("fault = 'delay'\ndelay_us = [2, 1]", "not the greater"),
            ("fault = 'drop'\nby = 2", "reorder"),
            ("fault = 'slow'", "needs `rate_mbps`"),
            ("fault = 'slow'\nrate_mbps = 0", "needs `rate_mbps`"),
            ("fault = 'slow'\nlatency_us = [2, 1]", "not the greater"),
            ("fault = 'drop'\nrate_mbps = 5", "only with fault = \"slow\""),
            ("fault = 'drop'\nopcodes = ['RC FLY']", "no op-code is called `RC FLY`"),
            ("fault = 'drop'\npeer = 'host'", "neither an address"),
            ("fault = 'drop'\nopcodes = [256]", "opcodes"),
        ] {
            let error = Rules::parse(&format!("[[rule]]\n{rule}")).unwrap_err().to_string();
            assert!(error.contains(reason), "{rule}: {error}");
        }
    }
}
