//! Results of a run in its folder, read again.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The file of a run that says that all others are whole.
pub const SUMMARY: &str = "summary.json";

/// Numbers of a summary that tables of several runs have.
pub const NUMBERS: [&str; 12] = [
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

/// A summary. It is written last, so that all other files are whole if it is there.
pub struct Saved(Value);

impl Saved {
    /// Of the run in this folder.
    ///
    /// # Errors
    /// It is not there, or is none.
    pub fn read(folder: &Path) -> Result<Saved> {
        let path = folder.join(SUMMARY);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("{} is no folder of a run: give one that `remora sim --out` wrote", folder.display())
        })?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no summary: run the scenario again", path.display()))?;
        let saved = Saved(value);
        if NUMBERS.iter().any(|name| !saved.0[name].is_number()) {
            bail!("{} lacks numbers of a summary: run the scenario again", path.display());
        }
        Ok(saved)
    }

    /// Has the run gone on until its end?
    pub fn is_whole(&self) -> bool {
        self.0["interrupted"] == Value::Bool(false)
    }

    /// Did all flows end, and was nothing found?
    pub fn is_complete(&self) -> bool {
        let nothing = self.0["findings"].as_array().is_some_and(Vec::is_empty);
        nothing && self.number("flows_unfinished") == 0.0 && self.number("flows_failed") == 0.0
    }

    /// One of [`NUMBERS`].
    pub fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or(f64::NAN)
    }

    /// In a few words.
    pub fn line(&self) -> String {
        let [mean, p50, p99] = ["mean", "p50", "p99"].map(|name| self.number(&format!("slowdown_{name}")));
        let left = match self.is_complete() {
            true => "",
            false => "; incomplete",
        };
        format!("slowdown mean {mean:.3}, p50 {p50:.3}, p99 {p99:.3}{left}")
    }
}
