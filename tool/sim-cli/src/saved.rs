//! Reads the results of earlier runs from their folders.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Name of the file that is written last. If it exists, all other files of the run are complete.
pub(crate) const SUMMARY: &str = "summary.json";

/// Numbers of a summary that tables of several runs contain.
pub(crate) const NUMBERS: [&str; 12] = [
    "flows",
    "flows_unfinished",
    "flows_failed",
    "slowdown_mean",
    "slowdown_p50",
    "slowdown_p99",
    "fct_us_mean",
    "fct_us_p50",
    "fct_us_p99",
    "fct_us_max",
    "packets_lost",
    "pauses",
];

/// The summary of an earlier run.
pub(crate) struct Saved(Value);

impl Saved {
    /// Reads the summary of the run in this folder.
    ///
    /// # Errors
    /// Fails if the file does not exist or is not a summary.
    pub(crate) fn read(folder: &Path) -> Result<Saved> {
        let path = folder.join(SUMMARY);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "{} is not the folder of a run: give a folder that `remora sim --out` wrote",
                folder.display()
            )
        })?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a summary: run the scenario again", path.display()))?;
        let saved = Saved(value);
        if NUMBERS.iter().any(|name| !saved.0[name].is_number()) {
            bail!("{} lacks numbers of a summary: run the scenario again", path.display());
        }
        Ok(saved)
    }

    /// Returns whether the run continued to its end, without an interruption.
    pub(crate) fn is_whole(&self) -> bool {
        self.0["interrupted"] == Value::Bool(false)
    }

    /// Returns whether all flows finished and nothing was found.
    pub(crate) fn is_complete(&self) -> bool {
        let nothing = self.0["findings"].as_array().is_some_and(Vec::is_empty);
        nothing && self.number("flows_unfinished") == 0.0 && self.number("flows_failed") == 0.0
    }

    /// Returns one of [`NUMBERS`], or NaN if the summary does not contain it.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or(f64::NAN)
    }

    /// Returns the results in one line of text.
    pub(crate) fn line(&self) -> String {
        let [mean, p50, p99] = ["mean", "p50", "p99"].map(|name| self.number(&format!("slowdown_{name}")));
        let left = match self.is_complete() {
            true => "",
            false => "; incomplete",
        };
        format!("slowdown mean {mean:.3}, p50 {p50:.3}, p99 {p99:.3}{left}")
    }
}
