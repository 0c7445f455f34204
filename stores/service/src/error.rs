//! Why a server or a client cannot go on.

use std::fmt;

use remora_store::{Broken, block, kv, txn};
use remora_verbs::{ConnectError, CreateError, Full, LoadError, OpenError, PollError, PostError};

/// Why a server or a client cannot go on.
///
/// The text of a variant is a sentence for people. [`source`](std::error::Error::source) leads to the cause,
/// which the text does not repeat; [`chain`](Error::chain) has both.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The NIC did not open.
    Open(OpenError),
    /// The NIC did not create a resource.
    Create(CreateError),
    /// A queue did not take a request.
    Post(PostError),
    /// Completions could not be polled for.
    Poll(PollError),
    /// A program was not loaded.
    Load(LoadError),
    /// Memory could not be read or written.
    Access(remora_verbs::AccessError),
    /// A connection was not made.
    Connect(ConnectError),
    /// The operating system refused.
    Io(std::io::Error),
    /// A connection has failed.
    Broken(Broken),
    /// A key-value client and a server do not fit each other.
    Session(kv::SessionError),
    /// A replica of another store, or of another time, was met.
    Replica(block::MembershipError),
    /// The shards of a transaction store do not fit each other.
    Shards(txn::MembershipError),
    /// A workload of transactions cannot go on.
    Workload(txn::workload::RunnerError),
    /// There is no map of servers.
    Map(remora_members::SourceError),
    /// A server has as many clients as it was made for.
    Full(Full),
    /// Nobody listens at the address.
    NoServer {
        /// What was looked for there.
        what: &'static str,
        /// Host and port.
        address: String,
    },
    /// The configuration is not possible. The text says what to change.
    Config(String),
    /// The peer is none of this store, or breaks its protocol.
    Peer(String),
    /// Too few servers answer, or none does.
    Silent(String),
    /// An operation was not started, or did not do what was asked.
    Refused(String),
    /// What was being done when the cause came up.
    While {
        /// What.
        what: String,
        /// The cause.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(error) => error.fmt(f),
            Error::Create(error) => error.fmt(f),
            Error::Post(error) => error.fmt(f),
            Error::Poll(error) => error.fmt(f),
            Error::Load(error) => error.fmt(f),
            Error::Access(error) => error.fmt(f),
            Error::Connect(error) => error.fmt(f),
            Error::Io(error) => error.fmt(f),
            Error::Broken(broken) => broken.fmt(f),
            Error::Session(error) => error.fmt(f),
            Error::Replica(misfit) => misfit.fmt(f),
            Error::Shards(misfit) => misfit.fmt(f),
            Error::Workload(error) => error.fmt(f),
            Error::Map(error) => error.fmt(f),
            Error::Full(full) => full.fmt(f),
            Error::NoServer { what, address } => write!(f, "no {what} answers at {address}"),
            Error::Config(text) | Error::Peer(text) | Error::Silent(text) | Error::Refused(text) => {
                f.write_str(text)
            }
            Error::While { what, .. } => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::While { cause, .. } => Some(cause),
            Error::Open(error) => error.source(),
            Error::Create(error) => error.source(),
            Error::Post(error) => error.source(),
            Error::Poll(error) => error.source(),
            Error::Load(error) => error.source(),
            Error::Access(error) => error.source(),
            Error::Connect(error) => error.source(),
            Error::Io(error) => error.source(),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident($cause:ty)),* $(,)?) => {
        $(impl From<$cause> for Error {
            fn from(cause: $cause) -> Error {
                Error::$variant(cause)
            }
        })*
    };
}

from!(
    Open(OpenError),
    Create(CreateError),
    Post(PostError),
    Poll(PollError),
    Load(LoadError),
    Access(remora_verbs::AccessError),
    Connect(ConnectError),
    Io(std::io::Error),
    Broken(Broken),
    Session(kv::SessionError),
    Replica(block::MembershipError),
    Shards(txn::MembershipError),
    Workload(txn::workload::RunnerError),
    Map(remora_members::SourceError),
    Full(Full),
);

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
