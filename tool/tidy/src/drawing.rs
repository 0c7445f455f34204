//! The list of layers that `make tidy` prints and that README.md and ARCHITECTURE.md show, and the sizes of
//! crates.

use std::fmt::Write as _;

use crate::Fault;
use crate::layers::{FOLDERS, LAYERS, Layer};
use crate::tree::File;

/// Returns the folders and their crates, one line each, in the form that the documents show.
pub fn drawing() -> String {
    let mut drawn = String::new();
    for (folder, purpose) in FOLDERS {
        let names: Vec<_> =
            LAYERS.iter().filter(|layer| layer.folder == folder).map(|layer| layer.name).collect();
        let _ = writeln!(drawn, "{:<9} {:<57} {purpose}", format!("{folder}/"), names.join("  "));
    }
    drawn
}

/// The documents that must contain the [`drawing`].
const DRAWN_IN: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// Reports documents whose list of layers differs from the list in `layers`.
pub fn drawn(files: &[File]) -> Vec<Fault> {
    let drawing = drawing();
    let shows = |path: &str| files.iter().any(|file| file.path == path && file.text.contains(&drawing));
    let says = format!("does not show the layers as they are:\n{drawing}");
    DRAWN_IN.iter().filter(|path| !shows(path)).map(|path| Fault::new(path, 0, says.clone())).collect()
}

/// Lines of Rust of a crate: its sources, and its tests and benches.
#[derive(Copy, Clone, Default)]
struct Lines {
    source: usize,
    tests: usize,
}

impl Lines {
    fn of(files: &[File], layer: &Layer) -> Lines {
        let mut lines = Lines::default();
        for file in files.iter().filter(|file| file.is_rust() && file.member() == layer.name) {
            let count = file.text.lines().count();
            if file.is_source() { lines.source += count } else { lines.tests += count }
        }
        lines
    }

    fn print(self, text: &mut String, name: &str) {
        let Lines { source, tests } = self;
        let _ = writeln!(text, "{name:<18} {source:>6} lines, {tests:>6} of tests and benches");
    }
}

/// Lines of Rust: a line for each crate, and the sums of the default members, of lab/, and of all crates.
pub fn sizes(files: &[File]) -> String {
    let mut text = String::new();
    let counted: Vec<(&Layer, Lines)> = LAYERS.iter().map(|layer| (layer, Lines::of(files, layer))).collect();
    for (layer, lines) in &counted {
        lines.print(&mut text, &layer.path());
    }
    let sum = |wanted: fn(&Layer) -> bool| {
        counted.iter().filter(|(layer, _)| wanted(layer)).fold(Lines::default(), |sum, (_, lines)| Lines {
            source: sum.source + lines.source,
            tests: sum.tests + lines.tests,
        })
    };
    sum(Layer::is_default).print(&mut text, "default members");
    sum(|layer| layer.folder == "lab").print(&mut text, "lab/");
    sum(|_| true).print(&mut text, "all crates");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_must_show_the_layers_as_they_are() {
        let good = File::sample("README.md", &format!("```text\n{}```\n", drawing()));
        let stale = File::sample("ARCHITECTURE.md", &drawing().replace("tidy", "neat"));
        let faults = drawn(&[good, stale]);
        assert!(faults.len() == 1 && faults[0].path == "ARCHITECTURE.md", "{faults:?}");
    }
}
