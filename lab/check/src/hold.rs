//! Assertions on histories, which keep a refused history as a file.

use crate::{History, Violation};
use std::path::PathBuf;

/// Asserts that the judge accepts the history. Otherwise the history is stored in a file, whose name is in
/// the panic's message.
///
/// # Panics
/// If the judge refuses the history.
pub fn hold(name: &str, history: &History, judge: impl Fn(&History) -> Result<(), Violation>) {
    if let Err(violation) = judge(history) {
        let kept =
            keep(name, history).map_or_else(|error| error.to_string(), |path| path.display().to_string());
        panic!("{name}: {violation}\nthe history: {kept}");
    }
}

fn keep(name: &str, history: &History) -> std::io::Result<PathBuf> {
    let folder = cache().join("histories");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.jsonl", name.replace(|c: char| !c.is_alphanumeric(), "-")));
    history.write(std::io::BufWriter::new(std::fs::File::create(&path)?))?;
    Ok(path)
}

/// Returns the folder for built and fetched files in the root of the workspace.
pub(crate) fn cache() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate is two folders below the root").join(".cache")
}
