//! A number of a paper's, and the model's.

/// What a number counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Latency.
    Nanoseconds,
    /// How often.
    PerSecond,
    /// Bytes in a second.
    Bandwidth,
    /// Part of a whole, or of something else.
    Ratio,
}

/// What a number of the paper is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Constants were read from it: that it is met says that they were read well.
    Source,
    /// The paper's own system: a prediction.
    Predicted,
    /// What it is compared to: a prediction too.
    Baseline,
}

/// How far a prediction may be off, in thousandths of what was measured.
pub const MOST_OFF: i64 = 200;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Which figure or table, by its name in the paper.
    pub figure: &'static str,
    /// Which curve or row.
    pub curve: &'static str,
    /// Where on it.
    pub at: String,
    /// Of both.
    pub unit: Unit,
    /// What it is for.
    pub part: Part,
    /// What the authors measured, where they say it.
    pub measured: Option<f64>,
    /// What follows from the primitives.
    pub modelled: f64,
}

impl Number {
    /// How far the model is off, in thousandths of what was measured; negative if it says less.
    pub fn residual(&self) -> Option<i64> {
        self.measured.map(|measured| ((self.modelled / measured - 1.0) * 1000.0).round() as i64)
    }

    /// Is it as near as it shall be? None: it is not judged.
    pub fn holds(&self) -> Option<bool> {
        let residual = self.residual().filter(|_| self.part == Part::Predicted);
        residual.map(|residual| residual.abs() <= MOST_OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_predictions_of_what_was_measured_are_judged() {
        let number = |part, measured, modelled| {
            let (figure, curve, at, unit) = ("Figure 1", "curve", String::new(), Unit::Ratio);
            Number { figure, curve, at, unit, part, measured, modelled }
        };
        let met = number(Part::Predicted, Some(10.0), 12.0);
        assert_eq!((met.residual(), met.holds()), (Some(200), Some(true)));
        assert_eq!(number(Part::Predicted, Some(10.0), 7.9).holds(), Some(false));
        assert_eq!(number(Part::Baseline, Some(10.0), 7.9).holds(), None);
        assert_eq!(number(Part::Predicted, None, 7.9).residual(), None);
    }
}
