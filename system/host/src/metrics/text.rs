//! The Prometheus text format, version 0.0.4.

use std::fmt::Write;

/// Media type of the text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The behaviour of a family's values.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only increases, except when the program restarts.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts by upper bounds, which only increase.
    Histogram,
}

/// The value of a sample. Integers are printed exactly, so that a large counter loses no digit.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer count.
    Whole(u64),
    /// A measured value with a fraction.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

#[derive(Clone, Debug)]
struct Sample {
    /// Suffix that is appended to the family's name.
    suffix: &'static str,
    /// The label pairs as printed, including braces; empty without labels.
    labels: String,
    value: Value,
}

/// A metric: its name, its help text, and its samples.
#[derive(Clone, Debug)]
pub struct Family {
    name: String,
    help: String,
    kind: Kind,
    samples: Vec<Sample>,
}

impl Family {
    /// Creates a family of counters. `_total` is appended to the name, as the format requires. Characters
    /// that are not allowed in a name become `_`.
    pub fn counter(name: &str, help: &str) -> Self {
        let mut name = clean(name);
        if !name.ends_with("_total") {
            name.push_str("_total");
        }
        Family { name, help: help.to_owned(), kind: Kind::Counter, samples: Vec::new() }
    }

    /// Creates a family of gauges.
    pub fn gauge(name: &str, help: &str) -> Self {
        Family { name: clean(name), help: help.to_owned(), kind: Kind::Gauge, samples: Vec::new() }
    }

    /// Creates a family of histograms.
    pub fn histogram(name: &str, help: &str) -> Self {
        Family { name: clean(name), help: help.to_owned(), kind: Kind::Histogram, samples: Vec::new() }
    }

    /// Adds a histogram: each upper bound with the number of values not above it, the sum of all values,
    /// and their number.
    #[must_use]
    pub fn buckets(
        mut self,
        labels: &[(&str, &str)],
        cumulative: impl Iterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) -> Self {
        for (bound, below) in cumulative.chain([(f64::INFINITY, count)]) {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self = self.suffixed("_bucket", &labels, below);
        }
        self.suffixed("_sum", labels, sum).suffixed("_count", labels, count)
    }

    /// Adds a sample.
    #[must_use]
    pub fn sample(self, labels: &[(&str, &str)], value: impl Into<Value>) -> Self {
        self.suffixed("", labels, value)
    }

    fn suffixed(mut self, suffix: &'static str, labels: &[(&str, &str)], value: impl Into<Value>) -> Self {
        let mut text = String::new();
        for (index, (name, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            text.push_str(&clean(name).replace(':', "_"));
            text.push_str("=\"");
            escape(&mut text, value, true);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        self.samples.push(Sample { suffix, labels: text, value: value.into() });
        self
    }
}

/// Returns the families in the text format. Families without samples are left out.
pub fn write(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let name = &family.name;
        text.push_str("# HELP ");
        text.push_str(name);
        text.push(' ');
        escape(&mut text, &family.help, false);
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(text, "\n# TYPE {name} {kind}");
        for Sample { suffix, labels, value } in &family.samples {
            text.push_str(name);
            let _ = match value {
                Value::Whole(value) => writeln!(text, "{suffix}{labels} {value}"),
                Value::Real(value) if value.is_infinite() => {
                    writeln!(text, "{suffix}{labels} {}Inf", if *value > 0.0 { '+' } else { '-' })
                }
                Value::Real(value) => writeln!(text, "{suffix}{labels} {value}"),
            };
        }
    }
    text
}

/// Replaces characters that are not allowed in a name, and adds a `_` before a leading digit.
fn clean(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut cleaned: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if cleaned.is_empty() || cleaned.starts_with(|c: char| c.is_ascii_digit()) {
        cleaned.insert(0, '_');
    }
    cleaned
}

fn escape(text: &mut String, raw: &str, in_quotes: bool) {
    for character in raw.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if in_quotes => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_help_type_and_samples_in_that_order() {
        let families = [
            Family::counter("remora_sent_packets", "Packets transmitted.")
                .sample(&[("engine", "0"), ("port", "shm")], u64::MAX)
                .sample(&[], 0),
            Family::gauge("remora_queue_pairs", "Queue pairs.").sample(&[], 2.5),
        ];
        let expected = "# HELP remora_sent_packets_total Packets transmitted.\n\
             # TYPE remora_sent_packets_total counter\n\
             remora_sent_packets_total{engine=\"0\",port=\"shm\"} 18446744073709551615\n\
             remora_sent_packets_total 0\n\
             # HELP remora_queue_pairs Queue pairs.\n# TYPE remora_queue_pairs gauge\nremora_queue_pairs 2.5\n";
        assert_eq!(write(&families), expected);
    }

    #[test]
    fn a_histogram_has_a_line_for_each_bound_and_sum_and_count() {
        let family = Family::histogram("remora_delay_seconds", "Delays.").buckets(
            &[("engine", "0")],
            [(0.000_001_024, 3), (0.002, 5)].into_iter(),
            0.25,
            6,
        );
        let expected = "# HELP remora_delay_seconds Delays.\n# TYPE remora_delay_seconds histogram\n\
             remora_delay_seconds_bucket{engine=\"0\",le=\"0.000001024\"} 3\n\
             remora_delay_seconds_bucket{engine=\"0\",le=\"0.002\"} 5\n\
             remora_delay_seconds_bucket{engine=\"0\",le=\"+Inf\"} 6\n\
             remora_delay_seconds_sum{engine=\"0\"} 0.25\nremora_delay_seconds_count{engine=\"0\"} 6\n";
        assert_eq!(write(&[family]), expected);
    }

    #[test]
    fn what_would_break_a_line_is_escaped() {
        let family = Family::gauge("a", "one\\\ntwo \"three\"").sample(&[("path", "C:\\\"x\"\n")], 1);
        assert_eq!(
            write(&[family]),
            "# HELP a one\\\\\\ntwo \"three\"\n# TYPE a gauge\na{path=\"C:\\\\\\\"x\\\"\\n\"} 1\n"
        );
    }

    #[test]
    fn names_are_made_legal_and_counters_end_in_total() {
        let text = write(&[Family::counter("9 lives-total", "x").sample(&[("0:b", "c")], 1)]);
        assert!(text.contains("\n_9_lives_total{_0_b=\"c\"} 1\n"), "{text}");
        let text = write(&[Family::counter("a_total", "x").sample(&[], 1)]);
        assert!(text.ends_with("\na_total 1\n"), "{text}");
    }

    #[test]
    fn numbers_that_are_none_have_their_names_and_empty_families_are_left_out() {
        let values = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let family =
            values.into_iter().fold(Family::gauge("a", "x"), |family, value| family.sample(&[], value));
        assert!(write(&[family]).ends_with("a +Inf\na -Inf\na NaN\n"));
        assert_eq!(write(&[Family::gauge("b", "x")]), "");
    }
}
