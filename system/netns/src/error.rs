//! The errors of creating namespaces and links.

use std::io;

/// The step that failed, and the reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of iproute2 could not be started.
    #[error("`ip` of iproute2: {0}")]
    Missing(io::Error),
    /// A program of iproute2 ran and failed.
    #[error("`{command}`: {says}")]
    Refused {
        /// The program with its arguments.
        command: String,
        /// The program's standard error.
        says: String,
    },
    /// The system refused the action that the text names.
    #[error("{0}: {1}")]
    System(String, io::Error),
}
