//! A result of a benchmark: a line of JSON for tools, or a line of a table for people.

use serde::Serialize;

use remora_options::{print, print_table};

/// A measured figure with the values of all rounds and its baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Path of the case: port, operation or system, size, variants.
    pub case: String,
    /// Name of the measured quantity, for example `latency_p50`.
    pub metric: &'static str,
    /// Unit of `value` and `rounds`.
    pub unit: &'static str,
    /// Median of the rounds.
    pub value: f64,
    /// Name of the baseline that ran interleaved in the same run; `None` if the row has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Median of the baseline's rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_value: Option<f64>,
    /// `value / baseline_value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Largest value allowed for `ratio`, or for `value` if there is no baseline; `None` if unbounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Least value allowed for `ratio`; `None` if unbounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// True if the figure is within `limit` and `least`; `None` if it has no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Deviation of a model's prediction from the measured value, in percent; negative if the prediction is
    /// lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// Cause of the deviation, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Values of all rounds.
    pub rounds: Vec<f64>,
}

impl Row {
    /// Creates a row without a baseline.
    pub fn new(
        bench: &'static str,
        case: impl Into<String>,
        metric: &'static str,
        unit: &'static str,
        rounds: &[f64],
    ) -> Row {
        Row {
            bench,
            case: case.into(),
            metric,
            unit,
            value: median(rounds),
            baseline: None,
            baseline_value: None,
            ratio: None,
            limit: None,
            least: None,
            holds: None,
            residual: None,
            reason: None,
            rounds: rounds.to_vec(),
        }
    }

    /// Adds a baseline whose rounds were interleaved with the row's.
    pub fn against(mut self, baseline: &str, rounds: &[f64]) -> Row {
        let value = median(rounds);
        self.baseline = Some(baseline.to_owned());
        self.baseline_value = Some(value);
        self.ratio = Some(self.value / value);
        self
    }

    /// Sets the largest allowed ratio to the baseline.
    pub fn within(mut self, limit: f64) -> Row {
        self.limit = Some(limit);
        self.holds = self.ratio.map(|ratio| ratio <= limit);
        self
    }

    /// Sets the least allowed ratio to the baseline.
    pub fn at_least(mut self, least: f64) -> Row {
        self.least = Some(least);
        self.holds = self.ratio.map(|ratio| ratio >= least);
        self
    }

    /// Sets both bounds of the ratio to the baseline.
    pub fn between(mut self, least: f64, limit: f64) -> Row {
        (self.least, self.limit) = (Some(least), Some(limit));
        self.holds = self.ratio.map(|ratio| (least..=limit).contains(&ratio));
        self
    }

    /// Sets the largest allowed value.
    pub fn at_most(mut self, limit: f64) -> Row {
        self.limit = Some(limit);
        self.holds = Some(self.value <= limit);
        self
    }

    fn verdict(&self) -> String {
        let bound = match (self.limit, self.least, self.ratio) {
            (Some(limit), Some(least), _) => format!("{least} to {limit}x"),
            (Some(limit), None, Some(_)) => format!("<= {limit}x"),
            (Some(limit), None, None) => format!("<= {limit} {}", self.unit),
            (None, Some(least), _) => format!(">= {least}x"),
            (None, None, _) => String::new(),
        };
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}x"));
        let residual = self.residual.map(|percent| format!("{percent:+.1} %"));
        let judged = match self.holds {
            _ if bound.is_empty() => None,
            Some(true) => Some(format!("holds: {bound}")),
            _ => Some(format!("MISSED: {bound}")),
        };
        let reason = self.reason.map(str::to_owned);
        [ratio, residual, judged, reason].into_iter().flatten().collect::<Vec<String>>().join(", ")
    }

    fn cells(&self) -> [String; 6] {
        let (low, high) =
            self.rounds.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        [
            self.case.clone(),
            self.metric.to_owned(),
            format!("{} {}", short(self.value), self.unit),
            format!("{} .. {}", short(low), short(high)),
            self.baseline
                .as_ref()
                .zip(self.baseline_value)
                .map_or(String::new(), |(name, value)| format!("{} {name}", short(value))),
            self.verdict(),
        ]
    }
}

/// Returns the median of the rounds; NaN without rounds.
pub fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Formats a number with three significant digits, and with k, M or G where that is shorter.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    match scaled.abs() {
        v if v >= 100.0 => format!("{scaled:.0}{unit}"),
        v if v >= 10.0 => format!("{scaled:.1}{unit}"),
        _ => format!("{scaled:.2}{unit}"),
    }
}

/// A collection of rows. It prints JSON at once, or one table at the end.
pub struct Report {
    json: bool,
    rows: Vec<Row>,
}

impl Report {
    /// Creates a report that prints JSON if `json` is set, otherwise a table.
    pub fn new(json: bool) -> Report {
        Report { json, rows: Vec::new() }
    }

    /// Adds a result and, with `--json`, prints it.
    pub fn add(&mut self, row: Row) {
        if self.json {
            print::line(serde_json::to_string(&row).expect("a row is plain data"));
        }
        self.rows.push(row);
    }

    /// Returns the results so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns whether no row has been added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the table, unless JSON is printed.
    pub fn finish(&self) {
        if !self.json {
            print_table(
                ["case", "metric", "median", "rounds", "baseline", "ratio"],
                self.rows.iter().map(Row::cells),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_ratio_are_of_the_rounds() {
        let row = Row::new("verbs", "udp/read/64", "latency_p50", "ns", &[30.0, 10.0, 20.0])
            .against("floor", &[5.0, 15.0]);
        assert_eq!((row.value, row.baseline_value, row.ratio), (20.0, Some(10.0), Some(2.0)));
        let json: serde_json::Value = serde_json::to_value(&row).unwrap();
        assert_eq!(json["rounds"], serde_json::json!([30.0, 10.0, 20.0]));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_judged_ratio_says_whether_it_holds() {
        let row =
            |value, limit| Row::new("kv", "c", "m", "ns", &[value]).against("b", &[100.0]).within(limit);
        let good = row(115.0, 1.15);
        let bad = row(116.0, 1.15);
        assert_eq!((good.holds, good.verdict().as_str()), (Some(true), "1.15x, holds: <= 1.15x"));
        assert_eq!((bad.holds, bad.verdict().as_str()), (Some(false), "1.16x, MISSED: <= 1.15x"));
        let json: serde_json::Value = serde_json::to_value(&bad).unwrap();
        assert_eq!((&json["limit"], &json["holds"]), (&serde_json::json!(1.15), &serde_json::json!(false)));
        let from_below =
            |value| Row::new("loss", "c", "m", "b/s", &[value]).against("b", &[100.0]).at_least(1.25);
        assert_eq!(from_below(125.0).verdict(), "1.25x, holds: >= 1.25x");
        assert_eq!(from_below(124.0).verdict(), "1.24x, MISSED: >= 1.25x");
        let own = |value| Row::new("xdp", "c", "m", "ns", &[value]).at_most(500.0);
        assert_eq!(own(500.0).verdict(), "holds: <= 500 ns");
        assert_eq!((own(501.0).verdict().as_str(), own(501.0).holds), ("MISSED: <= 500 ns", Some(false)));
        let met =
            |value| Row::new("prism", "c", "m", "ns", &[value]).against("b", &[100.0]).between(0.8, 1.2);
        assert_eq!((met(80.0).holds, met(120.0).holds), (Some(true), Some(true)));
        assert_eq!(
            (met(79.0).verdict(), met(121.0).holds),
            ("0.79x, MISSED: 0.8 to 1.2x".to_owned(), Some(false))
        );
        let plain = Row::new("kv", "c", "m", "ns", &[1.0]).against("b", &[2.0]);
        assert_eq!(plain.verdict(), "0.50x");
        assert!(serde_json::to_value(&plain).unwrap().get("holds").is_none());
    }

    #[test]
    fn numbers_are_short() {
        let cases =
            [(3.16159, "3.16"), (316.2, "316"), (12_345.0, "12.3 k"), (8_250_000.0, "8.25 M"), (0.0, "0.00")];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
    }
}
