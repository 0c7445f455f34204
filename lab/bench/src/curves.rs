//! Plots of latency over throughput, as SVG, and the search for their curves in saved rows.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;

use super::Row;
use remora_plot::{Area, Drawing, FONT, legend, with_legend};

/// A curve of a plot of latency over throughput.
pub(crate) struct Curve {
    /// Name of the curve in the legend.
    pub name: String,
    /// Points of the curve: throughput and the latency at that throughput.
    pub points: Vec<(f64, f64)>,
}

/// A published value to compare with: a throughput, a latency, or both.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Stated {
    /// Number of the curve to which the value belongs; its colour is used.
    pub curve: usize,
    /// Published throughput, in the unit of the horizontal axis.
    pub x: Option<f64>,
    /// Published latency, in the unit of the vertical axis.
    pub y: Option<f64>,
}

/// A plot of latency over throughput.
#[derive(Default)]
pub(crate) struct Curves<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// Caption of the horizontal axis, which begins at 0.
    pub x: &'a str,
    /// Caption of the vertical axis.
    pub y: &'a str,
    /// The curves of the plot.
    pub curves: Vec<Curve>,
    /// True if the vertical axis is logarithmic; otherwise the axis begins at 0.
    pub by_factors: bool,
    /// Published values. A latency alone is marked at the left edge, a throughput alone at the lower edge.
    pub stated: Vec<Stated>,
}

/// A line of the mark of a published value.
type Mark = PathElement<(f64, f64)>;

impl Curves<'_> {
    /// Returns the greatest and the least value of the curves and of the published values.
    fn extent(&self) -> ((f64, f64), f64) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let x = points().map(|(x, _)| *x).chain(self.stated.iter().filter_map(|stated| stated.x));
        let y = || points().map(|(_, y)| *y).chain(self.stated.iter().filter_map(|stated| stated.y));
        let most = y().fold(f64::MIN_POSITIVE, f64::max);
        ((y().fold(most, f64::min), most), x.fold(f64::MIN_POSITIVE, f64::max))
    }

    /// Returns the lines of a mark: one across the axis of a single value, or a cross for two values.
    fn mark(&self, stated: Stated, low: f64, width: f64, height: f64) -> Vec<Mark> {
        let style = Palette99::pick(stated.curve).stroke_width(3);
        let flat = |x: f64, y| PathElement::new([((x - width).max(0.0), y), (x + width, y)], style);
        let tall = |x, y: f64| PathElement::new([(x, y / height), (x, y * height)], style);
        match (stated.x, stated.y) {
            (None, None) => Vec::new(),
            (None, Some(y)) => vec![flat(width, y)],
            (Some(x), None) => vec![tall(x, low)],
            (Some(x), Some(y)) => vec![flat(x, y), tall(x, y)],
        }
    }

    fn chart<'a, Y>(&self, area: &Area<'a>, y: Y, low: f64, most: f64) -> Result<(), Box<dyn Error + 'a>>
    where
        Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let (chart, names): (DrawingArea<_, Shift>, _) = with_legend(area);
        let mut chart = ChartBuilder::on(&chart)
            .caption(self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..most * 1.05, y)?;
        // The steps of a logarithmic axis are products of floating-point numbers.
        let plain = |value: &f64| format!("{}", (value * 1e6).round() / 1e6);
        chart
            .configure_mesh()
            .max_light_lines(1)
            .y_label_formatter(&plain)
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        for (number, curve) in self.curves.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), style).point_size(3))?;
            legend(&names, number, style, &curve.name)?;
        }
        for stated in &self.stated {
            chart.draw_series(self.mark(*stated, low, most / 50.0, 1.06))?;
        }
        if !self.stated.is_empty() {
            legend(&names, self.curves.len(), BLACK.stroke_width(3), "bars: as the paper states")?;
        }
        Ok(())
    }
}

impl Drawing for Curves<'_> {
    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Box<dyn Error + 'a>> {
        let ((least, highest), most) = self.extent();
        if self.by_factors {
            let low = least / 1.2;
            self.chart(area, (low..highest * 1.2).log_scale(), low * 1.06, most)
        } else {
            self.chart(area, 0.0..highest * 1.05, highest / 50.0, most)
        }
    }
}

/// A row as a benchmark printed it, read back from JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Saved {
    /// Name of the benchmark.
    pub bench: String,
    /// Path of the case: port, operation or system, size, variants.
    pub case: String,
    /// Name of the measured quantity.
    pub metric: String,
    /// Median of the rounds.
    pub value: f64,
    /// Name of the baseline; `None` if the row has none.
    #[serde(default)]
    pub baseline: Option<String>,
    /// Median of the baseline's rounds.
    #[serde(default)]
    pub baseline_value: Option<f64>,
}

impl From<&Row> for Saved {
    fn from(row: &Row) -> Saved {
        let Row { bench, case, metric, value, baseline, baseline_value, .. } = row.clone();
        Saved { bench: bench.into(), case, metric: metric.into(), value, baseline, baseline_value }
    }
}

#[cfg(test)]
impl Saved {
    /// Makes a row without a baseline from the names of a benchmark, a case and a metric.
    pub fn alone(names: [&str; 3], value: f64) -> Saved {
        let [bench, case, metric] = names.map(str::to_owned);
        Saved { bench, case, metric, value, baseline: None, baseline_value: None }
    }
}

/// Reads the rows from a file of JSON lines, as a benchmark prints them with `--json`.
///
/// # Errors
/// Fails if the file does not exist or a line is not a row; the error names the line.
pub(crate) fn saved(path: &Path) -> Result<Vec<Saved>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("opening {}", path.display()))?;
    let rows = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let rows = rows.map(|(index, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), index + 1))
    });
    let rows: Vec<Saved> = rows.collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "{} has no rows: write them with `remora bench NAME --json`", path.display());
    Ok(rows)
}

/// Divisors of the two axes of the curves.
#[derive(Copy, Clone)]
pub(crate) struct Units {
    /// Operations per second that make one unit of the throughput axis.
    pub rate: f64,
    /// Nanoseconds that make one unit of the latency axis.
    pub latency: f64,
}

/// Extracts the curves of a benchmark from its rows. The rows of a curve have cases with a common prefix,
/// which names the curve, and end in `/window-N`. Points are ordered by window; `latency` names the metric of
/// the vertical axis.
pub(crate) fn curves_of(rows: &[Saved], bench: &str, latency: &str, units: Units) -> Vec<Curve> {
    let mut curves: BTreeMap<String, BTreeMap<u32, [Option<f64>; 2]>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.bench == bench) {
        let Some((name, window)) = row.case.rsplit_once("/window-") else { continue };
        let (Ok(window), Some(column)) =
            (window.parse(), ["rate", latency].iter().position(|m| **m == row.metric))
        else {
            continue;
        };
        curves.entry(name.to_owned()).or_default().entry(window).or_default()[column] = Some(row.value);
    }
    let points = |windows: BTreeMap<u32, [Option<f64>; 2]>| {
        windows
            .into_values()
            .filter_map(|[rate, latency]| Some((rate? / units.rate, latency? / units.latency)))
            .collect()
    };
    curves.into_iter().map(|(name, windows)| Curve { name, points: points(windows) }).collect()
}

/// Returns the exponent that `uniform` or `zipf-E` in the path of a case names.
pub(crate) fn skew(keys: &str) -> Option<f64> {
    match keys {
        "uniform" => Some(0.0),
        _ => keys.strip_prefix("zipf-")?.parse().ok(),
    }
}

/// Returns curves of named points, ordered by their x. A result that is compared to several others has
/// several rows, of which the first counts.
pub(crate) fn by_name(points: impl Iterator<Item = (String, (f64, f64))>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (name, point) in points {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) if curve.points.iter().any(|(known, _)| *known == point.0) => {}
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name, points: vec![point] }),
        }
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, metric: &str, value: f64) -> Saved {
        Saved::alone(["kv", case, metric], value)
    }

    #[test]
    fn a_curve_is_the_windows_of_one_case_in_their_order() {
        let rows = [
            row("shm/prism/window-16", "rate", 4e6),
            row("shm/prism/window-2", "rate", 2e6),
            row("shm/prism/window-16", "latency_mean", 8000.0),
            row("shm/prism/window-2", "latency_mean", 1000.0),
            row("shm/prism/window-2", "latency_p99", 9000.0),
            row("shm/prism/window-4", "rate", 3e6),
            row("shm/prism", "rate", 1.0),
            row("shm/farm/window-1", "rate", 1e6),
            row("shm/farm/window-1", "latency_mean", 1500.0),
            Saved { bench: "txn".to_owned(), ..row("shm/prism/window-8", "rate", 5.0) },
        ];
        let curves = curves_of(&rows, "kv", "latency_mean", Units { rate: 1e6, latency: 1e3 });
        let seen: Vec<(&str, &[(f64, f64)])> =
            curves.iter().map(|curve| (curve.name.as_str(), curve.points.as_slice())).collect();
        assert_eq!(seen, [("shm/farm", &[(1.0, 1.5)][..]), ("shm/prism", &[(2.0, 1.0), (4.0, 8.0)][..])]);
    }

    #[test]
    fn what_is_stated_is_within_the_drawing() {
        let curve = Curve { name: "one".to_owned(), points: vec![(1.0, 5.0), (2.0, 9.0)] };
        let stated = |x, y| Stated { curve: 0, x, y };
        let mut curves = Curves { curves: vec![curve], ..Curves::default() };
        assert_eq!(curves.extent(), ((5.0, 9.0), 2.0));
        curves.stated = vec![stated(Some(4.0), None), stated(None, Some(2.0))];
        assert_eq!(curves.extent(), ((2.0, 9.0), 4.0));
        let lines = |stated| curves.mark(stated, 1.0, 0.1, 1.1).len();
        assert_eq!([lines(stated(Some(1.0), Some(1.0))), lines(stated(None, Some(1.0)))], [2, 1]);
        assert_eq!([lines(stated(Some(1.0), None)), lines(stated(None, None))], [1, 0]);
    }
}
