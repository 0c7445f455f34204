//! The rule that every patch in `fuzz/planted` applies to the code. Otherwise only the nightly run would
//! notice.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Fault;
use crate::tree::File;

const FOLDER: &str = "fuzz/planted/";

/// Reports patches that `git apply` refuses for the tree at `root`.
///
/// # Errors
/// Returns an error if git cannot be run.
pub fn misfits(root: &Path, files: &[File]) -> std::io::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(FOLDER) && file.path.ends_with(".patch")) {
        let mut git = Command::new("git")
            .args(["apply", "--check", "-"])
            .current_dir(root)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        git.stdin.take().expect("a pipe").write_all(file.text.as_bytes())?;
        if !git.wait()?.success() {
            faults.push(Fault::new(&file.path, 0, "does not fit the code: make it anew from today's"));
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn a_patch_of_other_code_is_found() {
        let patch =
            |name: &str, text: &str| File { path: format!("{FOLDER}{name}.patch"), text: text.into() };
        let fits = "--- /dev/null\n+++ b/none-such\n@@ -0,0 +1,1 @@\n+text\n";
        let old = "--- a/Makefile\n+++ b/Makefile\n@@ -1,1 +1,1 @@\n-what stood there once\n+text\n";
        let faults = misfits(&tree::root(), &[patch("fits", fits), patch("old", old)]).unwrap();
        assert_eq!(
            faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(),
            ["fuzz/planted/old.patch"]
        );
    }
}
