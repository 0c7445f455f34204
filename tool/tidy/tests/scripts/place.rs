//! A folder for a test, with a PATH that contains only selected programs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

/// The path of the repository's root.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A folder that is removed when the test is over. Its subfolder `tools` is the PATH of the scripts.
pub(crate) struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    /// Creates a folder with the given programs of the system; `tools` has their names, separated by blanks.
    pub(crate) fn new(tools: &str, name: &str) -> Place {
        let place = Place(tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep());
        fs::create_dir_all(place.0.join("tools")).unwrap();
        for tool in tools.split(' ') {
            symlink(format!("/usr/bin/{tool}"), place.0.join("tools").join(tool)).unwrap();
        }
        place
    }

    /// Writes an executable file.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the command that runs a script of the repository in this folder.
    pub(crate) fn script(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new("/bin/bash");
        command.args(["-c", "umask 077; exec \"$@\"", "bash"]).arg(format!("{ROOT}/scripts/{name}"));
        command.args(words).current_dir(&self.0).env("PATH", self.0.join("tools"));
        command
    }

    /// Returns all files and links below a folder of this one, in order.
    pub(crate) fn files(&self, folder: &str) -> Vec<String> {
        let mut find = Command::new("find");
        let output = find.args([".", "!", "-type", "d"]).current_dir(self.0.join(folder)).output().unwrap();
        let mut files: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        files.sort();
        files
    }
}
