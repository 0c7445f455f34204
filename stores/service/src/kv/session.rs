//! The interface of key-value clients, the same for all transports.

use std::time::{Duration, Instant};

use remora_store::kv::{Finished, Machine, Outcome, Refusal, Refused};
use remora_store::{Broken, PostPrism};

use crate::error::bail;
use crate::{Error, Result};

/// Maximum time of an operation.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the reason for which an operation cannot be started, with a remedy for the user.
pub fn why_not(refused: Refused) -> String {
    let mend = match refused {
        Refused::KeyTooLong => ": the server's --max-key says how long a key may be",
        Refused::ValueTooLong => ": the server's --max-value says how long a value may be",
        _ => "",
    };
    format!("{refused}{mend}")
}

/// Returns the error of an operation that cannot be started.
pub(super) fn unstarted(refused: Refused) -> Error {
    Error::Refused(format!("the operation cannot be started: {}", why_not(refused)))
}

/// The source of a session's operations.
pub trait Driver {
    /// Returns true if an operation should be started now, with `in_flight` operations in flight.
    fn wants(&mut self, in_flight: usize) -> bool;

    /// Starts the operation.
    ///
    /// # Errors
    /// The errors of the client machine.
    fn start(&mut self, client: &mut impl Machine, nic: &mut impl PostPrism) -> Result<(), Refused>;

    /// Processes an operation that has ended.
    fn ended(&mut self, finished: &Finished<'_>);
}

/// A function that is called with each key.
pub type Found<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// A connected client of a key-value server, over any transport.
pub trait KvSession {
    /// Performs one turn of the event loop: processes completions, and starts the operations of the driver.
    ///
    /// # Errors
    /// The connection failed, or an operation cannot be started.
    fn turn(&mut self, driver: &mut impl Driver) -> Result<()>;

    /// Returns the number of operations in flight.
    fn in_flight(&self) -> usize;

    /// Calls `report` with each key of the table, in no particular order. A key that is in the table
    /// throughout is reported at least once.
    ///
    /// # Errors
    /// The connection failed, or `report` returns an error.
    fn list(&mut self, report: &mut Found<'_>) -> Result<()>;

    /// Waits until the server has acknowledged everything that was sent to it, so that it may be stopped. No
    /// operation may be in flight.
    ///
    /// # Errors
    /// The connection failed.
    fn settle(&mut self) -> Result<()>;

    /// Returns the addresses of the servers.
    fn who(&self) -> String;

    /// Returns the value of a key, or `None` if the key is absent.
    ///
    /// # Errors
    /// The connection failed, or the value cannot be read.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>
    where
        Self: Sized,
    {
        once(self, Some(Asked::Get(key)), |finished| match finished.outcome {
            Outcome::Value(value) => Ok(Some(value.to_vec())),
            Outcome::Absent => Ok(None),
            other => Err(bad_end("GET", other)),
        })?
    }

    /// Stores a value.
    ///
    /// # Errors
    /// The connection failed, or the server refuses.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>
    where
        Self: Sized,
    {
        once(self, Some(Asked::Put(key, value)), |finished| match finished.outcome {
            Outcome::Done => Ok(()),
            other => Err(bad_end("PUT", other)),
        })?
    }

    /// Stores a value. If key or value is too long, returns the reason, which is no error.
    ///
    /// # Errors
    /// The connection failed, or the server refuses for another reason.
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>>
    where
        Self: Sized,
    {
        let look = |finished: &Finished<'_>| match finished.outcome {
            Outcome::Done => Ok(None),
            Outcome::Refused(Refusal::TooLong) => Ok(Some(Refusal::TooLong.to_string())),
            other => Err(bad_end("PUT", other)),
        };
        let mut once = Once::of(Some(Asked::Put(key, value)), look);
        match once.wait(self) {
            Ok(ended) => ended,
            Err(error) => match once.refused {
                Some(refused @ (Refused::KeyTooLong | Refused::ValueTooLong)) => Ok(Some(why_not(refused))),
                _ => Err(error),
            },
        }
    }

    /// Removes a key. Returns false if it was absent.
    ///
    /// # Errors
    /// The connection failed.
    fn delete(&mut self, key: &[u8]) -> Result<bool>
    where
        Self: Sized,
    {
        once(self, Some(Asked::Delete(key)), |finished| match finished.outcome {
            Outcome::Done => Ok(true),
            Outcome::Absent => Ok(false),
            other => Err(bad_end("DELETE", other)),
        })?
    }
}

impl<S: KvSession> KvSession for &mut S {
    #[inline]
    fn turn(&mut self, driver: &mut impl Driver) -> Result<()> {
        S::turn(self, driver)
    }

    fn in_flight(&self) -> usize {
        S::in_flight(self)
    }

    fn list(&mut self, report: &mut Found<'_>) -> Result<()> {
        S::list(self, report)
    }

    fn settle(&mut self) -> Result<()> {
        S::settle(self)
    }

    fn who(&self) -> String {
        S::who(self)
    }
}

/// An operation to start.
pub(super) enum Asked<'a> {
    Get(&'a [u8]),
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// The driver of a single operation, and its result.
struct Once<'a, F, R> {
    asked: Option<Asked<'a>>,
    look: F,
    result: Option<R>,
    /// The reason for which the operation was not started.
    refused: Option<Refused>,
}

impl<F: FnMut(&Finished<'_>) -> R, R> Driver for Once<'_, F, R> {
    fn wants(&mut self, _: usize) -> bool {
        self.asked.is_some()
    }

    fn start(&mut self, client: &mut impl Machine, nic: &mut impl PostPrism) -> Result<(), Refused> {
        let started = match self.asked.take() {
            None => return Ok(()),
            Some(Asked::Get(key)) => client.get(key, nic),
            Some(Asked::Put(key, value)) => client.put(key, value, nic),
            Some(Asked::Delete(key)) => client.delete(key, nic),
        };
        self.refused = started.err();
        started.map(drop)
    }

    fn ended(&mut self, finished: &Finished<'_>) {
        self.result = Some((self.look)(finished));
    }
}

impl<'a, F: FnMut(&Finished<'_>) -> R, R> Once<'a, F, R> {
    fn of(asked: Option<Asked<'a>>, look: F) -> Once<'a, F, R> {
        Once { asked, look, result: None, refused: None }
    }

    fn wait(&mut self, session: &mut impl KvSession) -> Result<R> {
        let started = Instant::now();
        loop {
            session.turn(self)?;
            if let Some(result) = self.result.take() {
                return Ok(result);
            }
            if started.elapsed() > PATIENCE {
                bail!(
                    Silent,
                    "the server at {} has not answered for {} seconds: continue it if it is stopped, or start it again",
                    session.who(),
                    PATIENCE.as_secs()
                );
            }
        }
    }
}

/// Starts an operation, unless one is in flight, and waits for its end.
pub(super) fn once<R>(
    session: &mut impl KvSession,
    asked: Option<Asked<'_>>,
    look: impl FnMut(&Finished<'_>) -> R,
) -> Result<R> {
    Once::of(asked, look).wait(session)
}

pub(super) fn failed(broken: Broken) -> Error {
    Error::Broken(broken).context("the connection failed")
}

/// Returns the error of an operation with an unexpected outcome.
pub fn bad_end(verb: &str, outcome: Outcome<'_>) -> Error {
    let text = match outcome {
        Outcome::Failed(broken) => return failed(broken),
        Outcome::Refused(refusal) => format!("the server refuses the {verb}: {refusal}"),
        Outcome::TooLong => "the value is longer than 1 MiB".to_owned(),
        Outcome::Contended => "the key changed each time it was read: try again".to_owned(),
        Outcome::Value(_) | Outcome::Done | Outcome::Absent => {
            return Error::Peer(format!("the server answers a {verb} with something else"));
        }
    };
    Error::Refused(text)
}
