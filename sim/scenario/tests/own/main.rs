//! Remora's own scenario files: every key, every mistake, and conversions that change nothing.

mod converted;
mod keys;
mod random;

use remora_scenario::Source;

/// Returns a text with the name that the tests expect in messages.
fn text(text: &str) -> Source<'_> {
    Source::new("f.toml", text)
}
