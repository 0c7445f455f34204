//! Why a namespace, or a link, could not be made.

use std::fmt;
use std::io;

/// The step that failed, and why.
#[derive(Debug)]
pub enum Error {
    /// A program of iproute2 could not be started.
    Missing(io::Error),
    /// It ran and refused.
    Refused {
        /// The program with its arguments.
        command: String,
        /// Its standard error.
        says: String,
    },
    /// The system refused what the first part names.
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
