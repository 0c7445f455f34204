//! Text next to a figure: the paper's numbers, and the parameters that the paper does not give.

use std::error::Error;

use plotters::prelude::*;

use remora_plot::{Area, Drawing, FONT};

/// The lines of text next to a figure.
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Makes the notes: a description of the figure, the paper's numbers beside the measured ones, and the
    /// parameters that the paper does not state.
    pub(crate) fn new(title: &str, numbers: &[String], not_given: &[String]) -> Notes {
        let head = |words: &str| words.to_owned();
        let mut lines = vec![head(title), String::new(), head("The paper's numbers, and these:")];
        lines.extend(numbers.iter().map(|line| format!("  {line}")));
        lines.extend([String::new(), head("Not in the paper, chosen here:")]);
        lines.extend(not_given.iter().map(|line| format!("  {line}")));
        Notes(lines)
    }
}

impl Drawing for Notes {
    fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Box<dyn Error + 'a>> {
        for (number, line) in self.0.iter().enumerate() {
            area.draw(&Text::new(line.clone(), (16, 16 + 16 * number as i32), (FONT, 13)))?;
        }
        Ok(())
    }
}
