//! Our own scenario files: every key, every mistake, and that a conversion changes nothing.

mod converted;
mod keys;
mod random;

use remora_scenario::Source;

/// A text under the name that the tests expect in messages.
fn text(text: &str) -> Source<'_> {
    Source::new("f.toml", text)
}
