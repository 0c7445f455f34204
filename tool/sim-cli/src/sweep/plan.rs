//! The runs of a sweep, and whether they are finished.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use remora_scenario::format::change::Change;
use remora_scenario::format::own;
use remora_scenario::{Source, Warning, sweep};
use xxhash_rust::xxh3::xxh3_128;

use crate::load;
use crate::saved::Saved;
use crate::scenario_args::ScenarioArgs;

/// All runs of a sweep.
pub(crate) struct Plan {
    /// Path of the scenario file.
    pub base: PathBuf,
    /// Keys of the axes.
    pub keys: Vec<String>,
    /// Runs in the order of the axes; the last axis changes fastest.
    pub runs: Vec<Planned>,
    /// Warnings about the files, without duplicates.
    pub warnings: Vec<Warning>,
}

/// A run of a sweep.
pub(crate) struct Planned {
    /// Changes to the base scenario.
    pub changes: Vec<Change>,
    /// Folder for the results. Its name is a hash of everything that determines them.
    pub folder: PathBuf,
}

impl Plan {
    /// Reads a sweep and checks the scenarios of all its runs.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid, or if one of the runs is impossible.
    pub(crate) fn read(file: &Path, out: &Path) -> Result<Plan> {
        let text = load::read(file)?;
        let name = file.display().to_string();
        let sweep = sweep::parse(Source::new(&name, &text))?;
        let base = load::find(file, &sweep.base)?;
        let mut warnings = Vec::new();
        let mut runs = Vec::new();
        for changes in sweep.runs() {
            let args = ScenarioArgs {
                scenario: Some(base.clone()),
                set: changes.clone(),
                ..ScenarioArgs::default()
            };
            let loaded = load::load(&args).with_context(|| name.clone())?;
            for warning in loaded.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            let text = own::to_toml(&loaded.scenario).map_err(anyhow::Error::msg)?;
            runs.push(Planned { changes, folder: out.join(name_of(&text)) });
        }
        let keys = sweep.axes.into_iter().map(|axis| axis.key).collect();
        Ok(Plan { base, keys, runs, warnings })
    }

    /// Returns the runs whose results are complete.
    pub(crate) fn done(&self) -> impl Iterator<Item = &Planned> {
        self.runs.iter().filter(|run| run.summary().is_some())
    }

    /// Returns the runs that still have to be done.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Planned> {
        self.runs.iter().filter(|run| run.summary().is_none())
    }
}

impl Planned {
    /// Returns the arguments of `remora` for this run.
    pub(crate) fn words(&self, base: &Path) -> Vec<String> {
        let mut words = vec!["sim".to_owned(), base.display().to_string()];
        for change in &self.changes {
            words.extend(["--set".to_owned(), change.to_string()]);
        }
        words.extend(["--out".to_owned(), self.folder.display().to_string()]);
        words
    }

    /// Returns the command for this run as a line for a shell.
    pub(crate) fn command(&self, program: &str, base: &Path) -> String {
        let words = std::iter::once(program.to_owned()).chain(self.words(base));
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }

    /// Returns a name for messages: the changes to the base scenario.
    pub(crate) fn name(&self) -> String {
        self.changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Returns the summary if the run is finished.
    pub(crate) fn summary(&self) -> Option<Saved> {
        Saved::read(&self.folder).ok().filter(Saved::is_whole)
    }
}

/// Returns the folder name of a run: a hash of the scenario, including its seed, and of the program's
/// version.
fn name_of(scenario: &str) -> String {
    let text = format!("{}\n{scenario}", env!("CARGO_PKG_VERSION"));
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

/// Quotes a word for a shell, if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+,:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_where_a_shell_would_change_it() {
        assert_eq!(quoted("transport.name=roce+pfc"), "transport.name=roce+pfc");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("x=$(ls)"), "'x=$(ls)'");
    }

    #[test]
    fn a_name_follows_from_the_scenario() {
        assert_eq!(name_of("seed = 1"), name_of("seed = 1"));
        assert_ne!(name_of("seed = 1"), name_of("seed = 2"));
        assert_eq!(name_of("").len(), 32);
    }
}
