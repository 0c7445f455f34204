//! The occasions at which a rule causes a fault: how often, and how many times.

use crate::Random;
use crate::rules_error::RulesError;

/// The occasions at which a rule causes its fault, among those that it matches.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Occasions {
    /// Number of matching occasions that pass before the rule becomes active.
    pub after: u64,
    /// The rule considers every `every`th matching occasion after that; at least 1.
    pub every: u64,
    /// Probability of the fault on a considered occasion.
    pub probability: f64,
    /// Maximum number of faults; `None` for no limit.
    pub at_most: Option<u64>,
}

impl Default for Occasions {
    fn default() -> Self {
        Occasions { after: 0, every: 1, probability: 1.0, at_most: None }
    }
}

impl Occasions {
    /// Checks the values of a rule file.
    pub(crate) fn new(
        after: u64,
        every: Option<u64>,
        probability: Option<f64>,
        at_most: Option<u64>,
    ) -> Result<Occasions, RulesError> {
        let probability = probability.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&probability) {
            return Err(RulesError::new("`probability` is from 0 to 1"));
        }
        if every == Some(0) {
            return Err(RulesError::new("`every` is at least 1"));
        }
        Ok(Occasions { after, every: every.unwrap_or(1), probability, at_most })
    }

    /// Returns true if no occasion ever causes the fault.
    pub(crate) fn never(&self) -> bool {
        self.probability == 0.0 || self.at_most == Some(0)
    }
}

/// The occasions of a rule so far.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Matching occasions.
    pub matched: u64,
    /// Occasions that caused the fault.
    pub applied: u64,
    pub random: Random,
}

impl Counted {
    pub(crate) fn new(random: Random) -> Counted {
        Counted { matched: 0, applied: 0, random }
    }

    /// Counts a matching occasion. Returns true if it causes the fault.
    pub(crate) fn fires(&mut self, occasions: &Occasions) -> bool {
        self.matched += 1;
        let counted = self.matched.saturating_sub(occasions.after);
        if counted == 0
            || !counted.is_multiple_of(occasions.every.max(1))
            || occasions.at_most.is_some_and(|most| self.applied >= most)
        {
            return false;
        }
        let fires = self.random.chance(occasions.probability);
        self.applied += u64::from(fires);
        fires
    }
}
