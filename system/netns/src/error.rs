//! The errors of creating namespaces and links.

use std::fmt;
use std::io;

/// The step that failed, and the reason.
#[derive(Debug)]
pub enum Error {
    /// A program of iproute2 could not be started.
    Missing(io::Error),
    /// A program of iproute2 ran and failed.
    Refused {
        /// The program with its arguments.
        command: String,
        /// The program's standard error.
        says: String,
    },
    /// The system refused the action that the text names.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(error) => write!(f, "`ip` of iproute2: {error}"),
            Error::Refused { command, says } => write!(f, "`{command}`: {says}"),
            Error::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
