//! Plots as SVG: lines over named places, and several drawings side by side in one file.

pub mod bars;

use std::error::Error;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use remora_options::output;

/// A line of a plot.
pub struct Line {
    /// Name of the line in the legend.
    pub name: String,
    /// Value at each label, left to right.
    pub values: Vec<f64>,
}

/// A published or required value, marked at one place of the horizontal axis.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Mark {
    /// Number of the line whose colour the mark has; `None` draws it black.
    pub line: Option<usize>,
    /// Number of the place on the horizontal axis, from 0 on.
    pub place: usize,
    /// The marked value.
    pub value: f64,
}

/// A line plot over named places.
#[derive(Default)]
pub struct Plot<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// Caption of the horizontal axis.
    pub x: &'a str,
    /// Caption of the vertical axis, which begins at 0 unless `by_factors` is set.
    pub y: &'a str,
    /// Names of the places, left to right. An empty name is not shown.
    pub labels: Vec<String>,
    /// The lines of the plot.
    pub lines: Vec<Line>,
    /// True if the vertical axis is logarithmic and begins near the least value.
    pub by_factors: bool,
    /// Name of the marked values in the legend, and the marks.
    pub stated: Option<(&'a str, Vec<Mark>)>,
}

/// Part of an SVG image into which a drawing is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A chart that can be placed in an [`Area`].
pub trait Drawing {
    /// Draws the chart so that it fills the area.
    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Box<dyn Error + 'a>>;
}

const SIZE: (u32, u32) = (760, 440);
/// Width of the legend, to the right of the chart.
const LEGEND: u32 = 170;
/// Font of all texts in a plot.
pub const FONT: &str = "sans-serif";

/// Writes drawings side by side into one file.
pub fn write(path: &Path, drawings: &[&dyn Drawing]) -> Result<()> {
    // The errors refer to the drawing, so only their texts can be returned.
    let svg = svg(drawings).map_err(|error| anyhow!("{error}")).context("drawing a plot")?;
    output::write(path, svg.as_bytes())
}

/// Returns the text of an SVG file with the drawings side by side. The error names the reason for which a
/// drawing failed.
pub fn svg(drawings: &[&dyn Drawing]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let size = (SIZE.0 * drawings.len().max(1) as u32, SIZE.1);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        for (area, drawing) in root.split_evenly((1, drawings.len())).iter().zip(drawings) {
            drawing.draw(area).map_err(|error| error.to_string())?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

/// Splits an area into those of the chart and of the legend.
pub fn with_legend<'a>(area: &Area<'a>) -> (Area<'a>, Area<'a>) {
    area.split_horizontally(SIZE.0 - LEGEND)
}

/// Draws entry `number` of a legend, counted from 0.
pub fn legend<'a>(
    area: &Area<'a>,
    number: usize,
    style: ShapeStyle,
    name: &str,
) -> Result<(), Box<dyn Error + 'a>> {
    let y = 50 + 20 * number as i32;
    area.draw(&PathElement::new([(4, y), (22, y)], style))?;
    area.draw(&Text::new(name.to_owned(), (28, y - 7), (FONT, 13)))?;
    Ok(())
}

impl Plot<'_> {
    /// Writes the plot to an SVG file.
    pub fn write(&self, path: &Path) -> Result<()> {
        write(path, &[self])
    }

    fn chart<'a, Y>(&self, area: &Area<'a>, y: Y) -> Result<(), Box<dyn Error + 'a>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let (chart, names) = with_legend(area);
        let last = self.labels.len().saturating_sub(1) as f64;
        let mut chart = ChartBuilder::on(&chart)
            .caption(self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..last.max(1.0), y)?;
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
        // With many values, the line alone is sufficient.
        let dot = if self.labels.len() > 20 { 0 } else { 3 };
        for (number, line) in self.lines.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            let points = line.values.iter().enumerate().map(|(place, value)| (place as f64, *value));
            let points = points.filter(|(_, value)| value.is_finite());
            chart.draw_series(LineSeries::new(points, style).point_size(dot))?;
            legend(&names, number, style, &line.name)?;
        }
        if let Some((name, marks)) = &self.stated {
            let black = BLACK.stroke_width(2);
            let style = |mark: &Mark| match mark.line {
                Some(line) => Palette99::pick(line).stroke_width(2),
                None => black,
            };
            let cross = |mark: &Mark| Cross::new((mark.place as f64, mark.value), 6, style(mark));
            chart.draw_series(marks.iter().map(cross))?;
            legend(&names, self.lines.len(), black, name)?;
        }
        Ok(())
    }

    /// Returns the least and the greatest value of the lines and of the published values.
    fn extent(&self) -> (f64, f64) {
        let marks = || self.stated.iter().flat_map(|(_, marks)| marks).map(|mark| mark.value);
        let values = || self.lines.iter().flat_map(|line| &line.values).copied().chain(marks());
        let most = values().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        (values().fold(most, f64::min).max(f64::MIN_POSITIVE), most)
    }
}

impl Drawing for Plot<'_> {
    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Box<dyn Error + 'a>> {
        let (least, most) = self.extent();
        if self.by_factors {
            self.chart(area, (least / 1.2..most * 1.2).log_scale())
        } else {
            self.chart(area, 0.0..most * 1.05)
        }
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
            ..Plot::default()
        };
        let svg = super::svg(&[&plot]).unwrap();
        for word in
            ["<svg", "Title", "places", "values", "here", "there", "beyond", "first", "second", "</svg>"]
        {
            assert!(svg.contains(word), "no {word} in {svg}");
        }
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        // An empty plot is not an error.
        let empty = Plot { labels: Vec::new(), lines: Vec::new(), ..plot };
        super::svg(&[&empty]).unwrap();
        super::svg(&[&Plot { by_factors: true, ..empty }]).unwrap();
    }

    #[test]
    fn what_is_stated_is_marked_and_drawings_stand_side_by_side() {
        let line = Line { name: "measured".to_owned(), values: vec![1.0, 100.0] };
        let labels = vec!["near".to_owned(), "far".to_owned()];
        let plot = Plot { labels, lines: vec![line], by_factors: true, ..Plot::default() };
        let plain = super::svg(&[&plot]).unwrap();
        let marked =
            Plot { stated: Some(("stated", vec![Mark { line: None, place: 1, value: 500.0 }])), ..plot };
        let both = super::svg(&[&marked, &marked]).unwrap();
        assert!(!plain.contains("stated") && both.matches("stated").count() == 2, "{both}");
        assert_eq!(marked.extent(), (1.0, 500.0), "the axis includes the published values");
        assert!(both.contains("width=\"1520\"") && plain.contains("width=\"760\""), "{both}");
    }
}
