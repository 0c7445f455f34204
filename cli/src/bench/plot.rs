//! A plot with a few lines over named places, as SVG.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

/// One line.
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// One value for each label.
    pub values: Vec<f64>,
}

/// What is drawn.
pub struct Plot<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below it.
    pub x: &'a str,
    /// Beside it, from 0 on.
    pub y: &'a str,
    /// Names of the places, left to right; an empty one stands for itself.
    pub labels: Vec<String>,
    /// The lines.
    pub lines: Vec<Line>,
}

const SIZE: (u32, u32) = (760, 440);
/// Width of the legend, to the right of the chart.
const LEGEND: u32 = 170;
const FONT: &str = "sans-serif";

impl Plot<'_> {
    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut svg = String::new();
        // Its errors hold the drawing: only their words can leave.
        self.draw(&mut svg).map_err(|error| anyhow!("{error}")).context("drawing a plot")?;
        std::fs::write(path, svg).with_context(|| path.display().to_string())
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (chart, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        let most =
            self.lines.iter().flat_map(|line| &line.values).fold(0.0, |most: f64, value| most.max(*value));
        let last = self.labels.len().saturating_sub(1) as f64;
        let mut chart = ChartBuilder::on(&chart)
            .caption(self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..last.max(1.0), 0.0..most.max(f64::MIN_POSITIVE) * 1.05)?;
        let label = |place: &f64| match place.fract() {
            0.0 => self.labels.get(*place as usize).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(1)
            .x_labels(self.labels.len())
            .x_label_formatter(&label)
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        // Among many values the line is enough.
        let dot = if self.labels.len() > 20 { 0 } else { 3 };
        for (number, line) in self.lines.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            let points = line.values.iter().enumerate().map(|(place, value)| (place as f64, *value));
            chart.draw_series(LineSeries::new(points, style).point_size(dot))?;
            let y = 50 + 20 * number as i32;
            legend.draw(&PathElement::new([(4, y), (22, y)], style))?;
            legend.draw(&Text::new(line.name.as_str(), (28, y - 7), (FONT, 13)))?;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_its_words_and_a_line_for_each_name() {
        let line = |name: &str, values: &[f64]| Line { name: name.to_owned(), values: values.to_vec() };
        let plot = Plot {
            title: "Title",
            x: "places",
            y: "values",
            labels: ["here", "there", "beyond"].map(str::to_owned).to_vec(),
            lines: vec![line("first", &[3.0, 2.0, 1.0]), line("second", &[1.0, 0.0, 2.0])],
        };
        let mut svg = String::new();
        plot.draw(&mut svg).unwrap();
        for word in
            ["<svg", "Title", "places", "values", "here", "there", "beyond", "first", "second", "</svg>"]
        {
            assert!(svg.contains(word), "no {word} in {svg}");
        }
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        // Nothing to show is no reason to fail.
        let empty = Plot { labels: Vec::new(), lines: Vec::new(), ..plot };
        empty.draw(&mut String::new()).unwrap();
    }
}
