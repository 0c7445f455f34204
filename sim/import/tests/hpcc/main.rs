//! HPCC's and ConWeave's files: each pitfall of the formats, by literal values.

mod config;
mod flows;
mod outputs;
mod random;
mod topology;
mod translation;

use remora_scenario::{Read, ScenarioError, Source};

/// Returns a text with the name that the tests expect in messages.
fn text(text: &str) -> Source<'_> {
    Source::new("f", text)
}

/// Returns the message of an error, which must be one line.
fn says<T>(result: Result<Read<T>, ScenarioError>) -> String {
    let Err(error) = result else { panic!("it was read") };
    let says = error.to_string();
    assert!(!says.contains('\n'), "{says:?}");
    says
}

/// Returns the warnings, one line each.
fn warned<T>(read: &Read<T>) -> Vec<String> {
    read.warnings.iter().map(|warning| warning.to_string()).collect()
}
