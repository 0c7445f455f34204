//! Figures 11, 12, 14, 15, 16a and 16b of 1RMA (SIGCOMM '20), simulated with the code of the NIC and of the
//! executor on the network of `remora_fabric::rma`. Each figure shows the paper's numbers and lists the
//! parameters that are chosen here.

mod convergence;
mod figure;
mod isolation;
mod jitter;
mod load;
mod rotation;

use std::path::Path;

use anyhow::Result;

use crate::Row;
use remora_options::output;
use remora_plot::{Drawing, write};

pub(crate) use figure::Length;
use figure::{Figure, cipher, curves, gigabits, notes, row};

/// Runs all experiments and draws them into a folder. Returns the numbers behind them.
pub(crate) fn draw(folder: &Path, length: Length) -> Result<Vec<Row>> {
    output::folder(folder)?;
    let mut rows = Vec::new();
    let experiments: [fn(Length) -> Figure; 5] =
        [load::figure, isolation::figure, rotation::figure, convergence::figure, jitter::figure];
    for experiment in experiments {
        let figure = experiment(length);
        let notes: &dyn Drawing = &figure.notes;
        let drawings: Vec<&dyn Drawing> =
            figure.drawings.iter().map(|drawing| &**drawing).chain([notes]).collect();
        write(&folder.join(format!("1rma-figure-{}.svg", figure.number)), &drawings)?;
        rows.extend(figure.rows);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each figure states that it is simulated, and the parameters that the paper does not give.
    #[test]
    fn each_figure_is_drawn_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let rows = draw(folder.path(), Length::Short).unwrap();
        for number in [11, 12, 14, 15, 16] {
            let svg =
                std::fs::read_to_string(folder.path().join(format!("1rma-figure-{number}.svg"))).unwrap();
            for words in ["Simulated", "Not in the paper", "</svg>"] {
                assert!(svg.contains(words), "figure {number}: {words}");
            }
            let own = format!("simulated/figure-{number}");
            assert!(rows.iter().any(|row| row.case.starts_with(&own)), "{own}");
        }
    }
}
