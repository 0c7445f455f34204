//! Bar charts with groups of bars, as SVG.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Drawing, FONT, legend, with_legend};

/// The bars of one colour.
pub struct Series {
    /// Name of the series in the legend.
    pub name: String,
    /// Height of the bar in each group; `None` where a group has no bar of this series.
    pub values: Vec<Option<f64>>,
    /// Range that the paper or a bound states for the bar of each group: lower and upper end.
    pub stated: Vec<Option<(f64, f64)>>,
}

/// A bar chart with groups of bars.
pub struct Bars<'a> {
    /// Title above the chart.
    pub title: &'a str,
    /// Caption of the vertical axis, which begins at 0.
    pub y: &'a str,
    /// Names of the groups, left to right; each dash begins a line.
    pub groups: Vec<&'a str>,
    /// The bars of each group, left to right.
    pub series: Vec<Series>,
    /// Name of the stated ranges in the legend.
    pub stated: &'a str,
}

/// The part of a group's width that its bars occupy.
const WIDTH: f64 = 0.8;

impl Bars<'_> {
    /// Returns the left and right edge of a bar.
    fn edges(&self, group: usize, series: usize) -> (f64, f64) {
        let width = WIDTH / self.series.len().max(1) as f64;
        let left = group as f64 + (1.0 - WIDTH) / 2.0 + series as f64 * width;
        (left, left + width)
    }
}

impl Drawing for Bars<'_> {
    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Box<dyn Error + 'a>> {
        let (field, names) = with_legend(area);
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten());
        let most = values.fold(f64::MIN_POSITIVE, |most, value| most.max(*value));
        let mut chart = ChartBuilder::on(&field)
            .caption(self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..self.groups.len().max(1) as f64, 0.0..most * 1.05)?;
        chart.configure_mesh().disable_x_mesh().max_light_lines(1).x_labels(0).y_desc(self.y).draw()?;
        let black = BLACK.stroke_width(2);
        for (number, series) in self.series.iter().enumerate() {
            let colour = Palette99::pick(number);
            for (group, value) in series.values.iter().enumerate() {
                let (Some(value), (left, right)) = (value, self.edges(group, number)) else { continue };
                chart.draw_series([Rectangle::new([(left, 0.0), (right, *value)], colour.filled())])?;
                let range = series.stated.get(group).copied().flatten();
                for stated in range.into_iter().flat_map(|(low, high)| [low, high]) {
                    chart.draw_series([PathElement::new([(left, stated), (right, stated)], black)])?;
                }
            }
            legend(&names, number, colour.stroke_width(8), &series.name)?;
        }
        if self.series.iter().any(|series| !series.stated.is_empty()) {
            legend(&names, self.series.len(), black, self.stated)?;
        }
        let style = TextStyle::from((FONT, 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let (left, top) = field.get_base_pixel();
            for (line, word) in name.split('-').enumerate() {
                let position = (x - left, y - top + 6 + 14 * line as i32);
                field.draw(&Text::new(word.to_owned(), position, style.clone()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_group_stand_side_by_side_within_it() {
        let series = || Series { name: String::new(), values: vec![Some(1.0)], stated: Vec::new() };
        let bars = Bars {
            title: "",
            y: "",
            groups: vec!["one", "two"],
            series: vec![series(), series()],
            stated: "",
        };
        let edges = [(0, 0), (0, 1), (1, 0)].map(|(group, series)| bars.edges(group, series));
        assert!(edges[0].1 <= edges[1].0 + 1e-9 && edges[1].1 < 1.0 && edges[2].0 > 1.0, "{edges:?}");
    }
}
