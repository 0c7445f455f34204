//! A measured number of a paper, with the model's prediction.

/// The unit of a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Latency in nanoseconds.
    Nanoseconds,
    /// Events per second.
    PerSecond,
    /// Bytes per second.
    Bandwidth,
    /// Ratio without a unit.
    Ratio,
}

/// The role of a number in the comparison.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Constants of the model were derived from the number, so agreement is no evidence.
    Source,
    /// The paper's own system, a prediction.
    Predicted,
    /// The system that the paper compares with, also a prediction.
    Baseline,
}

/// Maximum error of a prediction, in thousandths of the measured value.
pub const MOST_OFF: i64 = 200;

/// A measured number and its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Name of the figure or table in the paper.
    pub figure: &'static str,
    /// Name of the curve or row.
    pub curve: &'static str,
    /// Position on the curve.
    pub at: String,
    /// Unit of both values.
    pub unit: Unit,
    /// Role of the number.
    pub part: Part,
    /// Measured value; `None` if the paper does not state it.
    pub measured: Option<f64>,
    /// Value predicted from the primitives.
    pub modelled: f64,
}

impl Number {
    /// Returns the error of the model in thousandths of the measured value, negative if the prediction is too
    /// low. `None` without a measured value.
    pub fn residual(&self) -> Option<i64> {
        self.measured.map(|measured| ((self.modelled / measured - 1.0) * 1000.0).round() as i64)
    }

    /// Returns true if the error is within [`MOST_OFF`]; `None` if the number is not a prediction.
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
            let figure = "Figure 1";
            let curve = "curve";
            let point = String::new();
            let unit = Unit::Ratio;
            Number { figure, curve, at: point, unit, part, measured, modelled }
        };
        let met = number(Part::Predicted, Some(10.0), 12.0);
        assert_eq!((met.residual(), met.holds()), (Some(200), Some(true)));
        assert_eq!(number(Part::Predicted, Some(10.0), 7.9).holds(), Some(false));
        assert_eq!(number(Part::Baseline, Some(10.0), 7.9).holds(), None);
        assert_eq!(number(Part::Predicted, None, 7.9).residual(), None);
    }
}
