//! `remora run`, which makes a verbs program use Remora's libraries.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The file by which a folder of libraries is recognized.
const LIBRARY: &str = "libibverbs.so.1";
/// The environment variable with which `remora run` finds the folder.
const LIBRARY_PATH: &str = "REMORA_LIBRARY_PATH";

/// This program's `run` command, with a folder of libraries.
#[derive(Clone, Debug)]
pub(crate) struct RunCommand {
    program: PathBuf,
    libraries: PathBuf,
}

impl RunCommand {
    /// Finds the libraries in the given folder, or those that `scripts/dropin` has built beside this program.
    ///
    /// # Errors
    /// Fails if the libraries are missing.
    pub(crate) fn find(libraries: Option<&Path>) -> Result<RunCommand> {
        let program = std::env::current_exe().context("finding this command")?;
        let named = std::env::var_os(LIBRARY_PATH).filter(|named| !named.is_empty()).map(PathBuf::from);
        let built = || program.parent().unwrap_or(Path::new("/")).join("../dropin/lib");
        let libraries = libraries.map(Path::to_owned).or(named).unwrap_or_else(built);
        ensure!(
            libraries.join(LIBRARY).exists(),
            "{LIBRARY} is not in {}: run `scripts/dropin --release`, or name its folder by --libraries",
            libraries.display()
        );
        let libraries = std::path::absolute(libraries)?;
        Ok(RunCommand { program, libraries })
    }

    /// Returns the path of the program to start.
    pub(crate) fn program(&self) -> &OsStr {
        self.program.as_os_str()
    }

    /// Adds the arguments before those of the program that runs: the port and the address of its device.
    pub(crate) fn complete(&self, command: &mut Command, port: &str, address: IpAddr) {
        command.args(["run", "--port", port, "--address", &address.to_string(), "--"]);
        command.env(LIBRARY_PATH, &self.libraries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_libraries_is_named_with_what_builds_them() {
        let folder = tempfile::tempdir().unwrap();
        let error = RunCommand::find(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
        assert!(error.contains("scripts/dropin --release") && error.contains("--libraries"), "{error}");
        std::fs::write(folder.path().join(LIBRARY), b"").unwrap();
        let run = RunCommand::find(Some(folder.path())).unwrap();
        let mut command = Command::new(run.program());
        run.complete(&mut command, "udp", IpAddr::from([127, 0, 0, 2]));
        let words: Vec<&OsStr> = command.get_args().collect();
        assert_eq!(words, ["run", "--port", "udp", "--address", "127.0.0.2", "--"]);
        let named = command.get_envs().find(|(name, _)| *name == LIBRARY_PATH).unwrap();
        assert_eq!(named.1, Some(folder.path().as_os_str()));
    }
}
