//! The error type of servers and clients.

use remora_store::{Broken, block, kv, txn};
use remora_verbs::{ConnectError, CreateError, Full, LoadError, OpenError, PollError, PostError};

/// The reason for which a server or a client cannot continue.
///
/// The text of a variant is a sentence for the user. [`source`](std::error::Error::source) returns the
/// cause, which the text does not repeat; [`chain`](Error::chain) contains both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The NIC could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The NIC did not create a resource.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A queue did not accept a request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Polling a completion queue failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A chain program could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Memory could not be read or written.
    #[error(transparent)]
    Access(#[from] remora_verbs::AccessError),
    /// A connection could not be established.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A connection has failed.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// A key-value client and a server cannot work together.
    #[error(transparent)]
    Session(#[from] kv::SessionError),
    /// A replica of another store, or of an earlier incarnation, was found.
    #[error(transparent)]
    Replica(#[from] block::MembershipError),
    /// The shards of a transaction store are inconsistent.
    #[error(transparent)]
    Shards(#[from] txn::GrantError),
    /// A workload of transactions cannot continue.
    #[error(transparent)]
    Workload(#[from] txn::workload::RunnerError),
    /// The map of servers cannot be read.
    #[error(transparent)]
    Map(#[from] remora_members::SourceError),
    /// A grant of 1RMA is missing, or an operation with it failed.
    #[error(transparent)]
    Grants(#[from] remora_grants::Error),
    /// The server has its maximum number of clients.
    #[error(transparent)]
    Full(#[from] Full),
    /// No server listens at the address.
    #[error("no {what} answers at {address}")]
    NoServer {
        /// Kind of the server that was expected there.
        what: &'static str,
        /// Host and port.
        address: String,
    },
    /// The configuration is invalid. The text says what to change.
    #[error("{0}")]
    Config(String),
    /// The peer does not belong to this store, or violates its protocol.
    #[error("{0}")]
    Peer(String),
    /// Too few servers answer, or none does.
    #[error("{0}")]
    Silent(String),
    /// An operation was not started, or failed.
    #[error("{0}")]
    Refused(String),
    /// The operation that failed, added to its cause.
    #[error("{what}")]
    While {
        /// Description of the operation.
        what: String,
        /// The cause of the failure.
        #[source]
        cause: Box<Error>,
    },
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the error's text, followed by those of all its causes, separated by `: `.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    /// Returns the error with a description of the operation that failed.
    pub fn context(self, what: impl Into<String>) -> Error {
        Error::While { what: what.into(), cause: Box::new(self) }
    }
}

impl From<remora_store::PostError> for Error {
    fn from(error: remora_store::PostError) -> Error {
        Error::Broken(error.into())
    }
}

/// Adds a description of the failed operation to an error.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

/// Returns an error of this kind with a formatted text.
macro_rules! bail {
    ($kind:ident, $($text:tt)+) => {
        return Err($crate::Error::$kind(format!($($text)+)))
    };
}

/// Returns an error of this kind with a formatted text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $kind:ident, $($text:tt)+) => {
        if !$condition {
            $crate::error::bail!($kind, $($text)+);
        }
    };
}

/// Evaluates to the value of an option. If it is `None`, returns an error of this kind.
macro_rules! need {
    ($option:expr, $kind:ident, $($text:tt)+) => {
        $option.ok_or_else(|| $crate::Error::$kind(format!($($text)+)))?
    };
}

pub(crate) use {bail, ensure, need};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_says_each_cause_once() {
        let error = Error::Config("the numbers are not possible".into()).context("opening the table");
        assert_eq!(error.to_string(), "opening the table");
        assert_eq!(error.chain(), "opening the table: the numbers are not possible");
    }
}
