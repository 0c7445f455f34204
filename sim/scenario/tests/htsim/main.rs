//! htsim's files: each trap of the formats by literal values.

mod connections;
mod options;
mod random;
mod topology;
mod translation;

use remora_scenario::{Read, ScenarioError, Source};

/// A text under the name that the tests expect in messages.
fn text(text: &str) -> Source<'_> {
    Source::new("f", text)
}

/// The words of an error: one line.
fn says<T>(result: Result<Read<T>, ScenarioError>) -> String {
    let Err(error) = result else { panic!("it was read") };
    let says = error.to_string();
    assert!(!says.contains('\n'), "{says:?}");
    says
}

/// The warnings, each a line.
fn warned<T>(read: &Read<T>) -> Vec<String> {
    read.warnings.iter().map(|warning| warning.to_string()).collect()
}
