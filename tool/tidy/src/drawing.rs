//! The layers as `make tidy` prints them and as README.md and ARCHITECTURE.md show them, and their sizes.

use std::fmt::Write as _;

use crate::Fault;
use crate::layers::{FOLDERS, LAYERS};
use crate::tree::File;

/// The folders and their crates, a line each, as the documents show them.
pub fn drawing() -> String {
    let mut drawn = String::new();
    for (folder, purpose) in FOLDERS {
        let names: Vec<_> =
            LAYERS.iter().filter(|layer| layer.folder == folder).map(|layer| layer.name).collect();
        let _ = writeln!(drawn, "{:<9} {:<57} {purpose}", format!("{folder}/"), names.join("  "));
    }
    drawn
}

/// The documents that must show [`drawing`].
const DRAWN_IN: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// Documents whose drawing of the layers is not that of the list.
pub fn drawn(files: &[File]) -> Vec<Fault> {
    let drawing = drawing();
    let shows = |path: &str| files.iter().any(|file| file.path == path && file.text.contains(&drawing));
    let says = format!("does not show the layers as they are:\n{drawing}");
    DRAWN_IN.iter().filter(|path| !shows(path)).map(|path| Fault::new(path, 0, says.clone())).collect()
}

/// The crates and the lines of their sources, tests apart, a line for each crate.
pub fn sizes(files: &[File]) -> String {
    let mut told = String::new();
    for layer in &LAYERS {
        let mut lines = [0, 0];
        for file in files.iter().filter(|file| file.is_rust() && file.member() == layer.name) {
            lines[usize::from(!file.is_source())] += file.text.lines().count();
        }
        let path = format!("{}/{}", layer.folder, layer.name);
        let [source, tests] = lines;
        let _ = writeln!(told, "{path:<18} {source:>6} lines, {tests:>6} of tests and benches");
    }
    told
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
