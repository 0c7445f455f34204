//! The runs of a sweep, and which of them are done.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use remora_scenario::format::change::Change;
use remora_scenario::format::own;
use remora_scenario::{Source, Warning, sweep};
use xxhash_rust::xxh3::xxh3_128;

use crate::saved::Saved;
use crate::{ScenarioArgs, load};

/// All runs of a sweep.
pub struct Plan {
    /// The scenario's file.
    pub base: PathBuf,
    /// Keys of the axes.
    pub keys: Vec<String>,
    /// In the order of the axes, the last one fastest.
    pub runs: Vec<Planned>,
    /// What is odd about the files, each once.
    pub warnings: Vec<Warning>,
}

/// One run.
pub struct Planned {
    /// What it changes in the base.
    pub changes: Vec<Change>,
    /// Where its results go: named by what decides them.
    pub folder: PathBuf,
}

impl Plan {
    /// Reads a sweep. Every scenario of it is made and checked.
    ///
    /// # Errors
    /// Of the files, or of the first run that cannot be.
    pub fn read(file: &Path, out: &Path) -> Result<Plan> {
        let (text, name) = (load::read(file)?, file.display().to_string());
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

    /// Runs whose results are whole.
    pub fn done(&self) -> impl Iterator<Item = &Planned> {
        self.runs.iter().filter(|run| run.summary().is_some())
    }

    /// The others.
    pub fn left(&self) -> impl Iterator<Item = &Planned> {
        self.runs.iter().filter(|run| run.summary().is_none())
    }
}

impl Planned {
    /// The words behind `remora`, that run it.
    pub fn words(&self, base: &Path) -> Vec<String> {
        let mut words = vec!["sim".to_owned(), base.display().to_string()];
        for change in &self.changes {
            words.extend(["--set".to_owned(), change.to_string()]);
        }
        words.extend(["--out".to_owned(), self.folder.display().to_string()]);
        words
    }

    /// The same as a line for a shell.
    pub fn command(&self, program: &str, base: &Path) -> String {
        let words = std::iter::once(program.to_owned()).chain(self.words(base));
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }

    /// What a person calls it.
    pub fn name(&self) -> String {
        self.changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What it came to, if it is done.
    pub fn summary(&self) -> Option<Saved> {
        Saved::read(&self.folder).ok().filter(Saved::is_whole)
    }
}

/// A name by the scenario, its seed in it, and the version of the program.
fn name_of(scenario: &str) -> String {
    let text = format!("{}\n{scenario}", env!("CARGO_PKG_VERSION"));
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

/// A word as a shell takes it.
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
