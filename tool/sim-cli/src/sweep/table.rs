//! Writes the table of all finished runs of a sweep.

use std::path::{Path, PathBuf};

use anyhow::Result;
use remora_options::output;
use remora_scenario::format::change::text_of;

use super::plan::Plan;
use crate::saved::NUMBERS;

/// Name of the table in the folder of a sweep.
pub(crate) const NAME: &str = "sweep.csv";

/// Writes the table and returns its path. The columns are the axes, the folder of the run, and the numbers
/// of its summary.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write(plan: &Plan, out: &Path) -> Result<PathBuf> {
    output::folder(out)?;
    let keys = plan.keys.iter().map(|key| cell(key));
    let head = keys.chain(["run".to_owned()]).chain(NUMBERS.map(str::to_owned));
    let mut text = head.collect::<Vec<_>>().join(",") + "\n";
    for run in &plan.runs {
        let Some(summary) = run.summary() else { continue };
        let values = run.changes.iter().map(|change| cell(&text_of(&change.value)));
        let folder =
            run.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let row = values.chain([folder]).chain(NUMBERS.map(|name| written(summary.number(name))));
        text += &(row.collect::<Vec<_>>().join(",") + "\n");
    }
    let path = out.join(NAME);
    output::write(&path, text.as_bytes())?;
    Ok(path)
}

/// Formats a number of a summary. A missing number is an empty cell.
fn written(number: f64) -> String {
    if number.is_nan() { String::new() } else { number.to_string() }
}

/// Quotes a value for CSV, if necessary (RFC 4180).
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
