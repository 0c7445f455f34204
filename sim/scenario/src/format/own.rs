//! Remora's scenario files, in TOML.
//!
//! [`parse`] reads the output of [`to_toml`] as an equal scenario. So a file of another simulator can be
//! converted, and the converted file runs with equal results.

use serde::de::DeserializeOwned;

use crate::error::{Read, ScenarioError, Source, Warnings};
use crate::scenario::Scenario;

/// Reads a scenario. Files that the scenario names are not opened: `remora_import::supply` fills in their
/// contents.
///
/// # Errors
/// Fails if the text is not TOML, or if a key is unknown or its value has the wrong type or is out of range.
pub fn parse(source: Source<'_>) -> Result<Read<Scenario>, ScenarioError> {
    source.check_size()?;
    let scenario: Scenario = read(source)?;
    scenario.check().map_err(|says| source.error(0, says))?;
    Ok(Warnings::of(source).with(scenario))
}

/// Reads TOML into any type; an error names the line.
pub(crate) fn read<T: DeserializeOwned>(source: Source<'_>) -> Result<T, ScenarioError> {
    toml::from_str(source.text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(source.text, span.start));
        source.error(line, remedied(error.message()))
    })
}

/// Returns the number of the line, from 1, that contains the byte at `offset`.
fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() as u32 + 1
}

/// Returns the TOML parser's message as one line, and adds a hint if the message does not say what was
/// expected.
pub(crate) fn remedied(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    // The parser names Rust types that a user has never seen; the hint replaces them.
    for kind in ["expected struct ", "expected internally tagged enum "] {
        if let Some(end) = message.find(kind) {
            return format!(
                "{}expected a table: the page `Keys of a scenario` of the book lists its keys",
                &message[..end]
            );
        }
    }
    match message.contains(": ") || message.contains(", expected") {
        true => message,
        false => {
            format!("{message}: correct this line; the page `Keys of a scenario` of the book lists every key")
        }
    }
}

/// Writes a scenario as TOML.
///
/// # Errors
/// Fails if [`Scenario::check`] rejects the scenario, for instance because TOML cannot hold one of its
/// numbers.
pub fn to_toml(scenario: &Scenario) -> Result<String, String> {
    scenario.check()?;
    toml::to_string(scenario).map_err(|error| error.to_string())
}
