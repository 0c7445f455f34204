//! Why a server or a client cannot go on.

use remora_store::{Broken, block, kv, txn};
use remora_verbs::{ConnectError, CreateError, Full, LoadError, OpenError, PollError, PostError};

/// Why a server or a client cannot go on.
///
/// The text of a variant is a sentence for people. [`source`](std::error::Error::source) leads to the cause,
/// which the text does not repeat; [`chain`](Error::chain) has both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The NIC did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The NIC did not create a resource.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A queue did not take a request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Completions could not be polled for.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A program was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Memory could not be read or written.
    #[error(transparent)]
    Access(#[from] remora_verbs::AccessError),
    /// A connection was not made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A connection has failed.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// A key-value client and a server do not fit each other.
    #[error(transparent)]
    Session(#[from] kv::SessionError),
    /// A replica of another store, or of another time, was met.
    #[error(transparent)]
    Replica(#[from] block::MembershipError),
    /// The shards of a transaction store do not fit each other.
    #[error(transparent)]
    Shards(#[from] txn::GrantError),
    /// A workload of transactions cannot go on.
    #[error(transparent)]
    Workload(#[from] txn::workload::RunnerError),
    /// There is no map of servers.
    #[error(transparent)]
    Map(#[from] remora_members::SourceError),
    /// There is no grant of 1RMA, or an operation by one did not succeed.
    #[error(transparent)]
    Grants(#[from] remora_grants::Error),
    /// A server has as many clients as it was made for.
    #[error(transparent)]
    Full(#[from] Full),
    /// Nobody listens at the address.
    #[error("no {what} answers at {address}")]
    NoServer {
        /// What was looked for there.
        what: &'static str,
        /// Host and port.
        address: String,
    },
    /// The configuration is not possible. The text says what to change.
    #[error("{0}")]
    Config(String),
    /// The peer is none of this store, or breaks its protocol.
    #[error("{0}")]
    Peer(String),
    /// Too few servers answer, or none does.
    #[error("{0}")]
    Silent(String),
    /// An operation was not started, or did not do what was asked.
    #[error("{0}")]
    Refused(String),
    /// What was being done when the cause came up.
    #[error("{what}")]
    While {
        /// What.
        what: String,
        /// The cause.
        #[source]
        cause: Box<Error>,
    },
}

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The text with those of all causes, `: ` between them.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    /// The same with what was being done.
    pub fn context(self, what: impl Into<String>) -> Error {
        Error::While { what: what.into(), cause: Box::new(self) }
    }
}

impl From<remora_store::PostError> for Error {
    fn from(error: remora_store::PostError) -> Error {
        Error::Broken(error.into())
    }
}

/// Adds what was being done to an error.
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

/// The same unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $kind:ident, $($text:tt)+) => {
        if !$condition {
            $crate::error::bail!($kind, $($text)+);
        }
    };
}

/// The value of an option, or an error of this kind.
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
