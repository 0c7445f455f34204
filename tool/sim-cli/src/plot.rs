//! `remora sim plot`: draws the results of runs and sweeps as SVG.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use remora_options::print;
use remora_plot::{self as plot, Line, Plot};

use super::charts::{self, Series};
use super::load;
use super::saved::Saved;
use super::sweep::TABLE;

/// Arguments of `remora sim plot`.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim plot irn\n  remora sim plot irn roce --out irn-and-roce.svg\n  remora sim plot report/latest/load --axis workload.0.traffic.load\n\nRuns are drawn into one file: slowdown by size, and its CDF. A sweep is drawn over one axis with a line for each\ncombination of the others, seeds averaged."
)]
pub(crate) struct Args {
    /// Folders of runs, or the folder of one sweep
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Axis of a sweep for the horizontal axis [default: the axis with the most numeric values, except the
    /// seed]
    #[arg(long, value_name = "KEY")]
    axis: Option<String>,

    /// File to write [default: plot.svg in the first folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Draws the results and prints the name of the file.
pub(crate) fn run(args: &Args) -> Result<()> {
    let path = args.out.clone().unwrap_or_else(|| args.folders[0].join("plot.svg"));
    let sweeps = args.folders.iter().filter(|folder| folder.join(TABLE).is_file()).count();
    match (sweeps, &args.axis) {
        (0, Some(axis)) => bail!("--axis {axis} is only for sweeps, and these are runs: leave it out"),
        (0, None) => draw_runs(&args.folders, &path)?,
        (1, axis) if args.folders.len() == 1 => draw_sweep(&args.folders[0], axis.as_deref(), &path)?,
        _ => bail!("a sweep is drawn by itself: give either one folder of a sweep, or folders of runs"),
    }
    print::line(path.display());
    Ok(())
}

fn draw_runs(folders: &[PathBuf], path: &Path) -> Result<()> {
    let all: Vec<Series> = folders.iter().map(|folder| flows_of(folder)).collect::<Result<_>>()?;
    if all.iter().all(|series| series.flows.is_empty()) {
        bail!("nothing to draw: no flow of {} has finished", folders[0].display());
    }
    plot::write(path, &[&charts::by_size(&all), &charts::distribution(&all)])
}

/// Returns the size and slowdown of each flow in the folder of a run.
fn flows_of(folder: &Path) -> Result<Series> {
    Saved::read(folder)?;
    let path = folder.join("flows.csv");
    let text = load::read(&path)?;
    let shown = path.display();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let index = head.iter().position(|column| *column == name);
        index.with_context(|| format!("{shown} has no column {name}: run the scenario again"))
    };
    let [bytes, slowdown] = [column("bytes")?, column("slowdown")?];
    let flow = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        Some((words.get(bytes)?.parse().ok()?, words.get(slowdown)?.parse().ok()?))
    };
    let flows = (2..).zip(lines).map(|(number, line)| {
        flow(line).with_context(|| format!("{shown}:{number}: not a flow: run the scenario again"))
    });
    let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    Ok(Series { name, flows: flows.collect::<Result<_>>()? })
}

/// The table of a sweep.
struct Table {
    /// Keys of the axes.
    axes: Vec<String>,
    /// Values of the axes, and the mean and 99th percentile of the slowdown.
    rows: Vec<(Vec<String>, [f64; 2])>,
}

fn draw_sweep(folder: &Path, axis: Option<&str>, path: &Path) -> Result<()> {
    let table = Table::read(&folder.join(TABLE))?;
    let over = match axis {
        Some(axis) => table.axes.iter().position(|key| key == axis).with_context(|| {
            format!("the sweep has no axis {axis}: choose one of {}", table.axes.join(", "))
        })?,
        None => table.longest(),
    };
    let [mean, p99] = ["mean slowdown", "99th percentile of the slowdown"];
    plot::write(path, &[&table.plot(over, mean, 0), &table.plot(over, p99, 1)])
}

impl Table {
    fn read(path: &Path) -> Result<Table> {
        let text = load::read(path)?;
        let shown = path.display();
        let mut rows = text.lines().map(cells);
        let head = rows.next().unwrap_or_default();
        let column = |name: &str| {
            let index = head.iter().position(|column| column == name);
            index.with_context(|| format!("{shown} has no column {name}: run the sweep again"))
        };
        let count = column("run")?;
        let mean = column("slowdown_mean")?;
        let p99 = column("slowdown_p99")?;
        let row = |cells: &Vec<String>| {
            let number = |index: usize| cells.get(index)?.parse().ok();
            Some((cells.get(..count)?.to_vec(), [number(mean)?, number(p99)?]))
        };
        let read = (2..).zip(rows).map(|(number, cells)| {
            row(&cells).with_context(|| format!("{shown}:{number}: not a run: run the sweep again"))
        });
        let rows: Vec<_> = read.collect::<Result<_>>()?;
        if rows.is_empty() || count == 0 {
            bail!("{shown} has no runs: run the sweep first");
        }
        Ok(Table { axes: head[..count].to_vec(), rows })
    }

    /// Returns the values of an axis in the order of the table.
    fn values(&self, axis: usize) -> Vec<String> {
        let mut values = Vec::new();
        for (cells, _) in &self.rows {
            if !values.contains(&cells[axis]) {
                values.push(cells[axis].clone());
            }
        }
        values
    }

    /// Returns the axis with the most numeric values, or the first axis if none has any. Seeds do not
    /// count.
    fn longest(&self) -> usize {
        let numbers = |axis: &usize| {
            let values = self.values(*axis);
            let all = self.axes[*axis] != "seed" && values.iter().all(|value| value.parse::<f64>().is_ok());
            if all { values.len() } else { 0 }
        };
        // max_by_key returns the last of equal elements, so the axes are reversed to prefer the first one.
        (0..self.axes.len()).rev().max_by_key(numbers).unwrap_or(0)
    }

    /// Returns a chart over one axis, with one line for each combination of the other axes. Values of
    /// different seeds are averaged.
    fn plot<'a>(&'a self, over: usize, title: &'a str, column: usize) -> Plot<'a> {
        let labels = self.values(over);
        let mut sums: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (cells, numbers) in &self.rows {
            let varies = |index: &usize| {
                *index != over && self.axes[*index] != "seed" && self.values(*index).len() > 1
            };
            let others = (0..cells.len()).filter(varies);
            let name: Vec<&str> = others.map(|index| cells[index].as_str()).collect();
            let name = if name.is_empty() { "all runs".to_owned() } else { name.join(" ") };
            let place = labels.iter().position(|label| *label == cells[over]).unwrap_or(0);
            let sums = sums.entry(name).or_insert_with(|| vec![(0.0, 0.0); labels.len()]);
            sums[place].0 += numbers[column];
            sums[place].1 += 1.0;
        }
        let mean = |(sum, count): (f64, f64)| sum / count;
        let lines = sums.into_iter();
        let lines = lines.map(|(name, sums)| Line { name, values: sums.into_iter().map(mean).collect() });
        Plot { title, x: &self.axes[over], y: "slowdown", lines: lines.collect(), labels, ..Plot::default() }
    }
}

/// Returns the cells of a line of CSV (RFC 4180, without line breaks in cells).
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cell.push(letter),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(axes: &[&str], rows: &[(&[&str], [f64; 2])]) -> Table {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        Table {
            axes: owned(axes),
            rows: rows.iter().map(|(cells, numbers)| (owned(cells), *numbers)).collect(),
        }
    }

    #[test]
    fn a_sweep_has_a_line_for_each_transport_and_seeds_are_averaged() {
        let table = table(
            &["transport.name", "load", "seed"],
            &[
                (&["roce", "0.3", "1"], [2.0, 9.0]),
                (&["roce", "0.3", "2"], [4.0, 11.0]),
                (&["irn", "0.3", "1"], [1.0, 5.0]),
                (&["irn", "0.7", "1"], [3.0, 7.0]),
            ],
        );
        assert_eq!(table.longest(), 1);
        let plot = table.plot(1, "mean", 0);
        assert_eq!(plot.labels, ["0.3", "0.7"]);
        assert_eq!((plot.lines[0].name.as_str(), &plot.lines[0].values[..]), ("irn", &[1.0, 3.0][..]));
        assert_eq!((plot.lines[1].name.as_str(), plot.lines[1].values[0]), ("roce", 3.0));
        assert!(plot.lines[1].values[1].is_nan(), "no run is there");
        assert_eq!(table.plot(1, "p99", 1).lines[1].values[0], 10.0);
        assert_eq!(table.plot(0, "mean", 0).lines[0].name, "0.3");
    }

    #[test]
    fn cells_with_commas_and_quotes_are_read_as_they_were_written() {
        assert_eq!(cells("a,\"b,c\",\"d\"\"e\","), ["a", "b,c", "d\"e", ""]);
    }
}
