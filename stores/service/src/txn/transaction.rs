//! A blocking client with one transaction at a time, for interactive use and scripts.

use std::time::{Duration, Instant};

use remora_store::txn::{Design, Event, Limits, Machine as _, Outcome, Refused, Tx};

use super::client::Session;
use crate::error::bail;
use crate::{Error, Result, seed};

/// The reason for which a step failed.
pub enum Unfinished {
    /// The step was not started; the transaction continues.
    Refused(Refused),
    /// The transaction has ended.
    Ended(Outcome),
    /// The client can no longer be used.
    Lost(Error),
}

/// The result of a step.
pub type Step<T> = Result<T, Unfinished>;

impl From<Refused> for Unfinished {
    fn from(refused: Refused) -> Unfinished {
        match refused {
            Refused::Broken(broken) => Unfinished::Lost(broken.into()),
            refused => Unfinished::Refused(refused),
        }
    }
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Unfinished {
        Unfinished::Lost(error)
    }
}

/// The result of a request under way.
enum News {
    Read(Option<Vec<u8>>),
    Ended(Outcome),
}

/// A client with at most one open transaction.
pub struct Client {
    session: Session,
    open: Option<Tx>,
}

/// Maximum time of a step, and maximum time for which a transaction is retried.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before a transaction is retried, and the longest one.
const PAUSE: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(20);

impl Client {
    /// Returns a client without a transaction.
    pub fn new(session: Session) -> Client {
        Client { session, open: None }
    }

    /// Returns true if a transaction is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the limits of the shards.
    pub fn limits(&self) -> Limits {
        self.session.limits()
    }

    /// Returns the design of the shards.
    pub fn design(&self) -> Design {
        self.session.design()
    }

    /// Begins a transaction, after the previous one has completed its clean-up.
    pub fn begin(&mut self) -> Step<()> {
        let started = Instant::now();
        loop {
            let begun = self.session.parts()?.0.begin();
            match begun {
                Ok(tx) => {
                    self.open = Some(tx);
                    return Ok(());
                }
                Err(Refused::WindowFull) => drop(self.turn(started)?),
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    fn tx(&self) -> Step<Tx> {
        self.open.ok_or(Unfinished::Refused(Refused::NotOpen))
    }

    /// Returns the value of a key, or `None` if the key is absent.
    pub fn get(&mut self, key: &[u8]) -> Step<Option<Vec<u8>>> {
        let tx = self.tx()?;
        let (machine, mut connections) = self.session.parts()?;
        let entry = machine.read(tx, key, &mut connections)?;
        // The transaction has written or read the key before.
        if let Some(known) = machine.value(tx, entry) {
            return Ok(known.value().map(<[u8]>::to_vec));
        }
        drop(connections);
        match self.wait()? {
            News::Read(value) => Ok(value),
            News::Ended(outcome) => Err(Unfinished::Ended(outcome)),
        }
    }

    /// Writes a key. The write becomes visible to others when the transaction commits.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Step<()> {
        let tx = self.tx()?;
        let (machine, mut connections) = self.session.parts()?;
        machine.write(tx, key, value, &mut connections)?;
        Ok(())
    }

    /// Deletes a key. The deletion becomes visible to others when the transaction commits.
    pub fn delete(&mut self, key: &[u8]) -> Step<()> {
        let tx = self.tx()?;
        let (machine, mut connections) = self.session.parts()?;
        machine.delete(tx, key, &mut connections)?;
        Ok(())
    }

    /// Commits the transaction and returns its outcome.
    pub fn commit(&mut self) -> Step<Outcome> {
        let tx = self.tx()?;
        let clock = self.session.clock();
        let (machine, mut connections) = self.session.parts()?;
        let ended = machine.commit(tx, clock, &mut connections)?;
        drop(connections);
        self.outcome(ended)
    }

    /// Aborts the transaction.
    pub fn abort(&mut self) -> Step<()> {
        let tx = self.tx()?;
        let ended = self.session.parts()?.0.abort(tx)?;
        self.outcome(ended).map(drop)
    }

    /// Returns the outcome of the transaction, waiting for it if necessary.
    fn outcome(&mut self, ended: Option<Event<'static>>) -> Step<Outcome> {
        if let Some(Event::Ended { outcome, .. }) = ended {
            self.open = None;
            return Ok(outcome);
        }
        loop {
            if let News::Ended(outcome) = self.wait()? {
                return Ok(outcome);
            }
        }
    }

    fn wait(&mut self) -> Step<News> {
        let started = Instant::now();
        loop {
            if let Some(news) = self.turn(started)? {
                return Ok(news);
            }
        }
    }

    /// Performs one turn of the event loop for a step that began at `started`.
    fn turn(&mut self, started: Instant) -> Step<Option<News>> {
        if started.elapsed() > PATIENCE {
            let text = format!(
                "the shards have not answered for {} seconds: continue those that are stopped, or start all anew",
                PATIENCE.as_secs()
            );
            return Err(Unfinished::Lost(Error::Silent(text)));
        }
        let mut news = None;
        let open = self.open;
        let turned = self.session.turn(|shard, completion, machine, connections| {
            match machine.complete(shard, completion, connections)? {
                Some(Event::Read { tx, value, .. }) if Some(tx) == open => {
                    news = Some(News::Read(value.map(<[u8]>::to_vec)));
                }
                Some(Event::Ended { tx, outcome, .. }) if Some(tx) == open => {
                    news = Some(News::Ended(outcome));
                }
                _ => {}
            }
            Ok(())
        });
        match turned {
            Ok(0) => std::thread::yield_now(),
            Ok(_) => {}
            Err(error) => return Err(Unfinished::Lost(self.lost(error)?)),
        }
        if let Some(News::Ended(_)) = news {
            self.open = None;
        }
        Ok(news)
    }

    /// Adds the outcome of the open transaction to the error of a failed connection.
    fn lost(&mut self, error: Error) -> Step<Error> {
        let Some(open) = self.open.take() else { return Ok(error) };
        let machine = self.session.parts()?.0;
        while let Some((tx, outcome)) = machine.abandon() {
            if tx == open {
                return Ok(error.context(explain(outcome)));
            }
        }
        Ok(error)
    }

    /// Processes messages of the shards while the user requests nothing. Returns true if shards wait for the
    /// open transaction; they disconnect a client for which they wait too long.
    pub fn idle(&mut self) -> Step<bool> {
        self.turn(Instant::now())?;
        self.session.return_buffers()?;
        Ok(self.open.is_some() && self.session.parts()?.0.is_awaited())
    }

    /// Executes a whole transaction, and retries it while conflicting transactions commit first.
    ///
    /// # Errors
    /// The transaction cannot be executed, or conflicts persist for too long.
    pub fn transaction<T>(&mut self, mut body: impl FnMut(&mut Client) -> Step<T>) -> Result<T> {
        let started = Instant::now();
        let mut pause = PAUSE;
        loop {
            let outcome = match self.attempt(&mut body) {
                Ok((Outcome::Committed(_), value)) => return Ok(value),
                Ok((outcome, _)) | Err(Unfinished::Ended(outcome)) => outcome,
                Err(Unfinished::Refused(refused)) => bail!(Refused, "{}", self.refusal(refused)),
                Err(Unfinished::Lost(error)) => return Err(error),
            };
            let again = matches!(outcome, Outcome::Aborted | Outcome::NoBuffer);
            if !again || started.elapsed() > PATIENCE {
                bail!(Refused, "{}", explain(outcome));
            }
            // The pause is random, so that two conflicting transactions do not retry at the same time.
            let part = seed::fresh() % pause.as_micros() as u64;
            std::thread::sleep(Duration::from_micros(part));
            pause = (pause * 2).min(LONGEST);
        }
    }

    fn attempt<T>(&mut self, body: &mut impl FnMut(&mut Client) -> Step<T>) -> Step<(Outcome, T)> {
        self.begin()?;
        match body(self) {
            Ok(value) => Ok((self.commit()?, value)),
            Err(unfinished) => {
                if self.is_open() && !matches!(unfinished, Unfinished::Lost(_)) {
                    self.abort()?;
                }
                Err(unfinished)
            }
        }
    }

    /// Returns the reason for which a step was not started, with the limit that it exceeds.
    pub fn refusal(&self, refused: Refused) -> String {
        let Limits { max_key, max_value, max_keys, .. } = self.limits();
        match refused {
            Refused::KeyTooLong => format!("the key has more than the {max_key} bytes that the shards take"),
            Refused::ValueTooLong => {
                format!("the value has more than the {max_value} bytes that the shards take")
            }
            Refused::TooManyKeys => {
                format!("a transaction has {max_keys} keys at most: the shards' --max-keys")
            }
            Refused::NotOpen => "there is no transaction: BEGIN one".to_owned(),
            other => other.to_string(),
        }
    }

    /// Closes the client.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn close(&mut self) -> Result<()> {
        self.session.close()
    }
}

/// Returns an explanation of a transaction's outcome.
pub fn explain(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed(_) => "it happened",
        Outcome::Aborted => "nothing happened: another transaction was faster, try again",
        Outcome::NoBuffer => {
            "nothing happened: a shard has no buffer left; try again, or start it with more --keys"
        }
        Outcome::TableFull => {
            "nothing happened: a shard has no slot for a new key; start it with more --keys"
        }
        Outcome::TooLong => "nothing happened: a value is longer than this client takes",
        Outcome::Failed(_) => "nothing happened: a connection failed before the commit",
        Outcome::Unknown(_) => "a connection failed during the commit: all of it happened, or nothing",
    }
}
