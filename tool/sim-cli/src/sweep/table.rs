//! The table of all runs that are done.

use std::path::{Path, PathBuf};

use anyhow::Result;
use remora_options::output;
use remora_scenario::format::change::text_of;

use super::plan::Plan;
use crate::saved::NUMBERS;

/// Its name in the folder of a sweep.
pub const NAME: &str = "sweep.csv";

/// Writes it. Its columns are the axes, the folder of the run, and what its summary says.
///
/// # Errors
/// The system's.
pub fn write(plan: &Plan, out: &Path) -> Result<PathBuf> {
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

/// A number of a summary; nothing for one that the summary lacks, as without flows.
fn written(number: f64) -> String {
    if number.is_nan() { String::new() } else { number.to_string() }
}

/// A value as CSV has it: in quotes where it needs them (RFC 4180).
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
