//! The paper's figures: in model time with the numbers of its text, and with the measurements over each
//! port.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum as _;
use remora_cost::number::Number;

use super::model;
use crate::Row;
use crate::curves::Saved;
use crate::numbers::{self, Drawn, distinct};
use remora_options::device::PortName;
use remora_plot::{Line, Plot};

/// The figures to draw: the captions of their axes, and true if values grow by factors.
const DRAWN: [Drawn; 12] = [
    ("Figure 5a", "bytes, at 10 Gb/s", "latency, us", false),
    ("Figure 5b", "bytes, at 10 Gb/s", "goodput, Gb/s", false),
    ("Figure 5c", "bytes, at 10 Gb/s", "million messages a second", true),
    ("Figure 7", "elements of a list", "latency, us", true),
    ("Figure 8", "bytes of a value", "latency, us", false),
    ("Figure 9", "bytes of an object", "latency, us", false),
    ("Figure 10", "per cent of reads that fail", "latency, us", false),
    ("Figure 11", "bytes that are shuffled", "time, us", true),
    ("Figure 12a", "bytes, at 100 Gb/s", "latency, us", false),
    ("Figure 12b", "bytes, at 100 Gb/s", "goodput, Gb/s", false),
    ("Figure 12c", "bytes, at 100 Gb/s", "million messages a second", true),
    ("Figure 13", "bytes of a WRITE, at 100 Gb/s", "goodput, Gb/s", false),
];

/// The figure of each task, with the measured quantity and the unit of the axis.
const MEASURED: [(&str, &str, &str, f64); 6] = [
    ("Figure 7", "walk", "latency_p50", 1e3),
    ("Figure 8", "get", "latency_p50", 1e3),
    ("Figure 9", "check", "latency_p50", 1e3),
    ("Figure 10", "check", "latency_mean", 1e3),
    ("Figure 11", "shuffle", "time", 1e3),
    ("Figure 13", "count", "bandwidth", 1e9 / 8.0),
];

/// A figure measured over a port.
struct Real {
    figure: &'static str,
    title: String,
    labels: Vec<String>,
    lines: Vec<(String, Vec<f64>)>,
}

/// A point of a curve: its place, its curve, its value.
type Point = (String, String, f64);

/// Draws all figures into a folder. Rows of other benchmarks and of models are ignored.
pub(crate) fn draw(folder: &Path, [ten, hundred]: &[Vec<Number>; 2], rows: &[Saved]) -> Result<()> {
    let real: Vec<Real> = PortName::value_variants().iter().flat_map(|port| measured(*port, rows)).collect();
    let beside: Vec<(&str, Plot<'_>)> = real.iter().map(|real| (real.figure, real.plot())).collect();
    let numbers: Vec<Number> =
        ten.iter().chain(hundred).filter(|number| is_of_curve(number)).cloned().collect();
    numbers::draw_beside(folder, "strom", "model time", &DRAWN, &numbers, &beside)
}

/// Draws the figures from saved rows and current predictions of the models. Returns the rows of the models.
pub(crate) fn draw_rows(folder: &Path, rows: &[Saved]) -> Result<Vec<Row>> {
    let modelled = model::both();
    draw(folder, &modelled, rows)?;
    Ok(model::rows(&modelled))
}

/// Differences and quotients of two curves have a row and no curve.
fn is_of_curve(number: &Number) -> bool {
    !["saved by", "more than", "over"].iter().any(|word| number.curve.contains(word))
}

/// Returns the figures for which a port has rows.
fn measured(port: PortName, rows: &[Saved]) -> Vec<Real> {
    let figure = |(figure, task, metric, unit): (&'static str, &str, &str, f64)| {
        let rows = rows.iter().filter(|row| row.bench == "strom" && row.metric == metric);
        let points: Vec<Point> = rows.flat_map(|row| points(port, task, row)).collect();
        let labels = distinct(points.iter().map(|(place, ..)| place.as_str()));
        let lines = distinct(points.iter().map(|(_, curve, _)| curve.as_str())).into_iter().map(|name| {
            let point_value = |label: &&str| {
                let point = points.iter().find(|(place, curve, _)| place == label && curve == name);
                point.map_or(f64::NAN, |(_, _, value)| value / unit)
            };
            (name.to_owned(), labels.iter().map(point_value).collect())
        });
        let lines: Vec<(String, Vec<f64>)> = lines.collect();
        let labels: Vec<String> = labels.into_iter().map(str::to_owned).collect();
        let title = format!("{figure} in this software over {}", port.name());
        (!lines.is_empty()).then_some(Real { figure, title, labels, lines })
    };
    MEASURED.into_iter().filter_map(figure).collect()
}

/// Returns the points in a task's row: that of its own way and that of the baseline. A case is named
/// `port/task/size/way`, with the share of failing reads before the way.
fn points(port: PortName, task: &str, row: &Saved) -> Vec<Point> {
    let words: Vec<&str> = row.case.split('/').collect();
    let (place, way, suffix) = match words.as_slice() {
        [on, case_task, size, way] if (*on, *case_task) == (port.name(), task) => {
            (*size, *way, String::new())
        }
        [on, case_task, size, share, way] if (*on, *case_task) == (port.name(), task) => {
            (share.trim_start_matches("failing-").trim_end_matches('%'), *way, format!(", {size} B"))
        }
        _ => return Vec::new(),
    };
    let point = |way: &str, value| (place.to_owned(), format!("{way}{suffix}"), value);
    // The baselines of the WebAssembly kernel have their own rows.
    let other = row.baseline.as_deref().filter(|way| !way.starts_with("the native"));
    let other = other.zip(row.baseline_value).map(|(way, value)| point(way, value));
    std::iter::once(point(way, row.value)).chain(other).collect()
}

impl Real {
    fn plot(&self) -> Plot<'_> {
        let entry = DRAWN.iter().find(|(name, ..)| *name == self.figure);
        let (_, x, y, by_factors) = entry.copied().unwrap_or_default();
        let x = x.split(", at").next().unwrap_or_default();
        let line = |(name, values): &(String, Vec<f64>)| Line { name: name.clone(), values: values.clone() };
        let lines = self.lines.iter().map(line).collect();
        Plot { title: &self.title, x, y, labels: self.labels.clone(), lines, by_factors, ..Plot::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, metric: &str, value: f64, beside: Option<(&str, f64)>) -> Saved {
        let (baseline, baseline_value) = beside.map(|(name, value)| (name.to_owned(), value)).unzip();
        Saved { baseline, baseline_value, ..Saved::alone(["strom", case, metric], value) }
    }

    #[test]
    fn what_was_measured_is_curves_of_a_port_by_their_ways() {
        let rows = [
            row("shm/walk/4/strom", "latency_p50", 1000.0, Some(("reads", 3000.0))),
            row("shm/walk/4/strom", "latency_p50", 1000.0, Some(("tcp-rpc", 9000.0))),
            row("shm/walk/8/strom", "latency_p50", 2000.0, Some(("reads", 5000.0))),
            row("udp/walk/8/strom", "latency_p50", 7000.0, None),
            row("shm/walk/8/strom", "latency_p99", 8000.0, None),
            row("shm/check/64/failing-10%/strom", "latency_mean", 500.0, Some(("read+crc64", 600.0))),
            row("shm/count/1048576/strom", "bandwidth", 5e9, Some(("write", 6e9))),
            Saved { bench: "kv".to_owned(), ..row("shm/walk/16/strom", "latency_p50", 1.0, None) },
        ];
        let figures = measured(PortName::Shm, &rows);
        let names: Vec<&str> = figures.iter().map(|real| real.figure).collect();
        assert_eq!(names, ["Figure 7", "Figure 10", "Figure 13"]);
        assert_eq!(figures[0].labels, ["4", "8"]);
        let line = |name: &str, values: &[f64]| (name.to_owned(), values.to_vec());
        assert_eq!(figures[0].lines[..2], [line("strom", &[1.0, 2.0]), line("reads", &[3.0, 5.0])]);
        assert!(figures[0].lines[2].1[1].is_nan(), "a list of 8 has no call");
        assert_eq!(figures[1].labels, ["10"]);
        assert_eq!(figures[1].lines, [line("strom, 64 B", &[0.5]), line("read+crc64, 64 B", &[0.6])]);
        assert_eq!(figures[2].lines[0], line("strom", &[40.0]), "Gb/s");
    }

    #[test]
    fn a_difference_of_two_curves_is_none() {
        let model = model::both();
        let curves = |figure: &str| {
            let points =
                model.iter().flatten().filter(|number| number.figure == figure && is_of_curve(number));
            distinct(points.map(|number| number.curve)).len()
        };
        let wanted = DRAWN.map(|(figure, ..)| if figure == "Figure 10" { 4 } else { 2 });
        assert_eq!(DRAWN.map(|(figure, ..)| curves(figure)), wanted);
    }
}
