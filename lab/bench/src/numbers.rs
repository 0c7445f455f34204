//! Numbers of papers and of models, as rows and as plots, with the authors' values in the colours of their
//! curves.

use std::path::Path;

use anyhow::Result;
use remora_cost::number::{MOST_OFF, Number, Part, Unit};

use super::Row;
use remora_options::output;
use remora_plot::{Drawing, Line, Mark, Plot, write};

/// Converts a name to a part of a path, without spaces and commas.
fn word(name: &str) -> String {
    let words = name.split([' ', ',']).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<String>>().join("-")
}

/// Returns a row for each number of a model. Only predictions of measured values have bounds; constants'
/// sources and rivals do not.
pub(crate) fn rows(bench: &'static str, model: &str, numbers: &[Number]) -> Vec<Row> {
    numbers.iter().map(|number| row(bench, model, number)).collect()
}

fn row(bench: &'static str, model: &str, number: &Number) -> Row {
    let Number { figure, curve, at: point, .. } = number;
    let case = format!("model:{model}/{}/{}/{}", word(figure), word(curve), word(point));
    let (metric, unit) = match number.unit {
        Unit::Nanoseconds => ("latency_mean", "ns"),
        Unit::PerSecond => ("rate", "1/s"),
        Unit::Bandwidth => ("bandwidth", "B/s"),
        Unit::Ratio => ("ratio", ""),
    };
    let row = Row::new(bench, case, metric, unit, &[number.modelled]);
    let Some(measured) = number.measured else { return row };
    let origin = match number.part {
        Part::Source => ", where constants were read",
        Part::Predicted => "",
        Part::Baseline => ", a rival's",
    };
    let mut row = row.against(&format!("paper, {figure}{origin}"), &[measured]);
    row.residual = number.residual().map(|thousandths| thousandths as f64 / 10.0);
    let most = MOST_OFF as f64 / 1000.0;
    if number.part == Part::Predicted { row.between(1.0 - most, 1.0 + most) } else { row }
}

/// A figure or table: its name, the captions of its axes, and true if values grow by factors.
pub(crate) type Drawn = (&'static str, &'static str, &'static str, bool);

/// Writes the figures for which numbers exist into the folder, in model time or in real time.
pub(crate) fn draw(
    folder: &Path,
    bench: &str,
    time: &str,
    drawn: &[Drawn],
    numbers: &[Number],
) -> Result<()> {
    draw_beside(folder, bench, time, drawn, numbers, &[])
}

/// Writes like [`draw`], with the additional drawings in `beside` for a figure.
pub(crate) fn draw_beside(
    folder: &Path,
    bench: &str,
    time: &str,
    drawn: &[Drawn],
    numbers: &[Number],
    beside: &[(&str, Plot<'_>)],
) -> Result<()> {
    output::folder(folder)?;
    for (figure, x, y, by_factors) in drawn {
        let points: Vec<&Number> = numbers.iter().filter(|number| number.figure == *figure).collect();
        if points.is_empty() {
            continue;
        }
        let title = format!("{figure} in {time}");
        let plot = plot(&points, Plot { title: &title, x, y, by_factors: *by_factors, ..Plot::default() });
        let others = beside.iter().filter(|(name, _)| name == figure).map(|(_, plot)| plot as &dyn Drawing);
        let all: Vec<&dyn Drawing> = std::iter::once(&plot as &dyn Drawing).chain(others).collect();
        write(&folder.join(format!("{bench}-{}.svg", word(figure))), &all)?;
    }
    Ok(())
}

/// Returns the value in the unit of the axes: microseconds, millions, or Gb/s.
fn shown(unit: Unit, value: f64) -> f64 {
    match unit {
        Unit::Nanoseconds => value / 1e3,
        Unit::PerSecond => value / 1e6,
        Unit::Bandwidth => value * 8.0 / 1e9,
        Unit::Ratio => value,
    }
}

/// Returns the distinct values in the order of their first occurrence.
pub(crate) fn distinct<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}

fn plot<'n>(numbers: &[&'n Number], plot: Plot<'n>) -> Plot<'n> {
    let places = distinct(numbers.iter().map(|number| number.at.as_str()));
    let curves = distinct(numbers.iter().map(|number| number.curve));
    let mut marks = Vec::new();
    let lines = curves.iter().enumerate().map(|(line, curve)| {
        let mut values = vec![f64::NAN; places.len()];
        for number in numbers.iter().filter(|number| number.curve == *curve) {
            let Some(place) = places.iter().position(|label| *label == number.at) else { continue };
            values[place] = shown(number.unit, number.modelled);
            let mark = |measured| Mark { line: Some(line), place, value: shown(number.unit, measured) };
            marks.extend(number.measured.map(mark));
        }
        Line { name: (*curve).to_owned(), values }
    });
    let lines = lines.collect();
    let labels = places.into_iter().map(str::to_owned).collect();
    Plot { labels, lines, stated: Some(("crosses: the authors'", marks)), ..plot }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(curve: &'static str, point: &str, measured: Option<f64>, modelled: f64) -> Number {
        let figure = "Figure 10";
        let unit = Unit::Nanoseconds;
        let part = Part::Predicted;
        Number { figure, curve, at: point.to_owned(), unit, part, measured, modelled }
    }

    #[test]
    fn rows_name_figure_curve_and_place_and_only_predictions_of_what_was_measured_are_judged() {
        let numbers = [
            number("RedN, one port", "64", Some(1e3), 1.1e3),
            Number { part: Part::Baseline, ..number("one-sided", "64", Some(1e3), 5e3) },
            Number { unit: Unit::PerSecond, ..number("rate", "64", None, 5e3) },
        ];
        let rows = rows("redn", "ConnectX5", &numbers);
        assert_eq!(rows[0].case, "model:ConnectX5/figure-10/redn-one-port/64");
        assert_eq!((rows[0].metric, rows[0].baseline_value), ("latency_mean", Some(1e3)));
        assert_eq!(rows.iter().map(|row| row.holds).collect::<Vec<_>>(), [Some(true), None, None]);
        assert_eq!((rows[2].metric, rows[2].baseline_value), ("rate", None));
        assert_eq!(rows.iter().map(|row| row.residual).collect::<Vec<_>>(), [Some(10.0), Some(400.0), None]);
    }

    #[test]
    fn each_curve_has_a_line_of_the_models_and_marks_of_the_authors() {
        let numbers = [
            number("a", "64", Some(1e3), 2e3),
            number("a", "1024", None, 4e3),
            number("b", "1024", Some(5e3), 6e3),
        ];
        let plot = plot(&numbers.iter().collect::<Vec<_>>(), Plot::default());
        assert_eq!(plot.labels, ["64", "1024"]);
        assert_eq!(plot.lines[0].values, [2.0, 4.0]);
        assert!(plot.lines[1].values[0].is_nan() && plot.lines[1].values[1] == 6.0);
        let marks = plot.stated.expect("marks").1;
        let mark = |line, place, value| Mark { line: Some(line), place, value };
        assert_eq!(marks, [mark(0, 0, 1.0), mark(1, 1, 5.0)]);
    }
}
