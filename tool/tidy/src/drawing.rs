//! The list of layers that `make tidy` prints and that README.md and ARCHITECTURE.md show, and the sizes of
//! crates.

use std::fmt::Write as _;

use crate::Fault;
use crate::layers::{FOLDERS, LAYERS};
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

/// Returns one line for each crate with the number of lines of its sources, and of its tests and benchmarks.
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
