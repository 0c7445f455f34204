//! The programs of iproute2.

use crate::Error;
use std::process::Command;

/// Runs `ip` with these arguments in the caller's namespace, and returns its standard output.
///
/// # Errors
/// [`Error`] if `ip` does not exist or fails.
pub fn ip(arguments: &str) -> Result<String, Error> {
    run("ip", arguments)
}

/// Runs another program of iproute2, such as `bridge` or `tc`, like [`ip`].
///
/// # Errors
/// [`Error`] if the program does not exist or fails.
pub fn run(program: &str, arguments: &str) -> Result<String, Error> {
    let output = Command::new(program).args(arguments.split_whitespace()).output().map_err(Error::Missing)?;
    if !output.status.success() {
        let says = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Refused { command: format!("{program} {arguments}"), says });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
