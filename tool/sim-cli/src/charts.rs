//! Charts of slowdowns: by flow size, and as a distribution.

use remora_plot::{Line, Plot};

use super::summary::quantile;

/// The flows of one run.
pub(crate) struct Series {
    /// Name in the legend.
    pub name: String,
    /// Size in bytes and slowdown of each flow.
    pub flows: Vec<(u64, f64)>,
}

/// Number of size groups. All groups have about the same number of flows.
const GROUPS: usize = 10;
/// Number of histogram steps per factor of ten of the slowdown.
const STEPS: i32 = 40;
/// Labels of the axis: 1, 2 and 5 in each power of ten. Each pair is a step within the power of ten and the
/// digit there.
const WRITTEN: [(i32, u32); 3] = [(0, 1), (12, 2), (28, 5)];

/// Returns a chart of the median and the 99th percentile of the slowdown, for groups of flows by size. The
/// groups are the same for all runs.
pub(crate) fn by_size(all: &[Series]) -> Plot<'static> {
    let bounds = bounds(all.iter().flat_map(|series| series.flows.iter().map(|(size, _)| *size)).collect());
    let slowdown_quantile = |series: &Series, group: usize, part: f64| {
        let below = group.checked_sub(1).map_or(0, |before| bounds[before]);
        let within = series.flows.iter().filter(|(size, _)| *size > below && *size <= bounds[group]);
        let slowdowns: Vec<f64> = within.map(|(_, slowdown)| *slowdown).collect();
        quantile(&slowdowns, part).unwrap_or(f64::NAN)
    };
    let line = |series: &Series, label: &str, part: f64| Line {
        name: format!("{} {label}", series.name),
        values: (0..bounds.len()).map(|group| slowdown_quantile(series, group, part)).collect(),
    };
    Plot {
        title: "slowdown by size",
        x: "bytes of a flow, up to",
        y: "slowdown",
        labels: bounds.iter().map(|bound| short(*bound)).collect(),
        lines: all.iter().flat_map(|series| [line(series, "p50", 0.5), line(series, "p99", 0.99)]).collect(),
        by_factors: true,
        ..Plot::default()
    }
}

/// Returns a chart of the share of flows up to each slowdown.
pub(crate) fn distribution(all: &[Series]) -> Plot<'static> {
    let slowdowns = || all.iter().flat_map(|series| series.flows.iter().map(|(_, slowdown)| *slowdown));
    let step = |slowdown: f64| (slowdown.log10() * f64::from(STEPS)).ceil() as i32;
    let first = slowdowns().map(|slowdown| step(slowdown) - 1).fold(0, i32::min).max(-STEPS);
    let last = slowdowns().map(step).fold(1, i32::max).min(6 * STEPS);
    let share = |series: &Series, step: i32| {
        let value = 10_f64.powf(f64::from(step) / f64::from(STEPS));
        let below = series.flows.iter().filter(|(_, slowdown)| *slowdown <= value).count();
        below as f64 / series.flows.len().max(1) as f64
    };
    let label = |step: i32| {
        let digit = WRITTEN.iter().find(|(remainder, _)| *remainder == step.rem_euclid(STEPS));
        digit.map_or_else(String::new, |(_, digit)| {
            format!("{}", f64::from(*digit) * 10_f64.powi(step.div_euclid(STEPS)))
        })
    };
    let line = |series: &Series| Line {
        name: series.name.clone(),
        values: (first..=last).map(|step| share(series, step)).collect(),
    };
    Plot {
        title: "CDF of the slowdown",
        x: "slowdown",
        y: "share of flows",
        labels: (first..=last).map(label).collect(),
        lines: all.iter().map(line).collect(),
        ..Plot::default()
    }
}

/// Returns the largest size in each group.
fn bounds(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.sort_unstable();
    let count = sizes.len();
    let bound = |group: usize| sizes[(group * count).div_ceil(GROUPS) - 1];
    let mut bounds: Vec<u64> =
        (1..=GROUPS.min(count)).map(|group| bound(group * GROUPS / GROUPS.min(count))).collect();
    bounds.dedup();
    bounds
}

/// Formats a number of bytes with at most a few characters, such as 12K.
fn short(bytes: u64) -> String {
    let (number, unit) = match bytes {
        0..1_000 => (bytes as f64, ""),
        1_000..1_000_000 => (bytes as f64 / 1e3, "K"),
        1_000_000..1_000_000_000 => (bytes as f64 / 1e6, "M"),
        _ => (bytes as f64 / 1e9, "G"),
    };
    let digits = usize::from(number < 10.0 && number.fract() > 0.0);
    format!("{number:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, flows: &[(u64, f64)]) -> Series {
        Series { name: name.to_owned(), flows: flows.to_vec() }
    }

    #[test]
    fn groups_of_sizes_have_as_many_flows_each_and_no_size_is_in_two() {
        assert_eq!(bounds((1..=100).collect()), [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        assert_eq!(bounds(vec![5; 32]), [5]);
        assert_eq!(bounds(vec![3, 1, 2]), [1, 2, 3]);
        assert!(bounds(Vec::new()).is_empty());
        assert_eq!(["7", "1.5K", "12K", "2M", "3G"], [7, 1_500, 12_345, 2_000_000, 3_000_000_000].map(short));
    }

    #[test]
    fn a_group_shows_its_own_flows_and_a_run_without_any_has_a_gap() {
        let all = [series("a", &[(10, 1.0), (10, 3.0), (1_000, 8.0)]), series("b", &[(10, 5.0)])];
        let plot = by_size(&all);
        assert_eq!(plot.labels, ["10", "1K"]);
        assert_eq!(plot.lines[0].values, [2.0, 8.0]);
        assert_eq!((plot.lines[2].name.as_str(), plot.lines[2].values[0]), ("b p50", 5.0));
        assert!(plot.lines[2].values[1].is_nan());
    }

    #[test]
    fn the_distribution_rises_to_one_and_has_its_values_below() {
        let plot = distribution(&[series("a", &[(1, 0.97), (1, 1.0), (1, 2.0), (1, 90.0)])]);
        let values = &plot.lines[0].values;
        assert!(values.is_sorted() && values.last() == Some(&1.0) && values[0] == 0.0, "{values:?}");
        let index = plot.labels.iter().position(|label| label == "10").unwrap();
        assert_eq!(values[index], 0.75);
        let named: Vec<&String> = plot.labels.iter().filter(|label| !label.is_empty()).collect();
        assert_eq!(named, ["1", "2", "5", "10", "20", "50"]);
    }
}
