//! Our own scenario files: TOML.
//!
//! What [`to_toml`] writes, [`parse`] reads as the same scenario. So a file of another simulator and what it
//! is converted to are one scenario, and run alike.

use serde::de::DeserializeOwned;

use crate::error::{Read, ScenarioError, Source, Warnings};
use crate::scenario::Scenario;

/// Reads a scenario. Files that it names stay names: see [`super::supply()`].
///
/// # Errors
/// What is no TOML, a key that is not known, a value of the wrong kind or out of its bounds.
pub fn parse(source: Source<'_>) -> Result<Read<Scenario>, ScenarioError> {
    source.check_size()?;
    let scenario: Scenario = read(source)?;
    scenario.check().map_err(|says| source.error(0, says))?;
    Ok(Warnings::of(source).with(scenario))
}

/// Reads TOML; an error has its line.
pub(crate) fn read<T: DeserializeOwned>(source: Source<'_>) -> Result<T, ScenarioError> {
    toml::from_str(source.text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(source.text, span.start));
        source.error(line, remedied(error.message()))
    })
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() as u32 + 1
}

/// The parser's words in one line, with a remedy where they have none.
pub(crate) fn remedied(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    // A type of ours says nothing to who writes a scenario; it ends the parser's words.
    for kind in ["expected struct ", "expected internally tagged enum "] {
        if let Some(at) = message.find(kind) {
            return format!("{}expected a table: docs/FABRIC.md has its keys", &message[..at]);
        }
    }
    match message.contains(": ") || message.contains(", expected") {
        true => message,
        false => format!("{message}: mend this line, docs/FABRIC.md has every key"),
    }
}

/// Writes a scenario.
///
/// # Errors
/// A number that TOML cannot hold: [`Scenario::check`] refuses the same.
pub fn to_toml(scenario: &Scenario) -> Result<String, String> {
    scenario.check()?;
    toml::to_string(scenario).map_err(|error| error.to_string())
}
