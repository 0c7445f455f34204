//! `remora txn shell`: executes transactions from standard input and answers each line by one line.

use std::io::{ErrorKind, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use remora_store::txn::Outcome;

use super::line::{Line, VERBS, parse};
use crate::lines;
use remora_options::escape::escape;
use remora_options::print;
use remora_service::txn::{Client, Step, Unfinished, explain};

/// Interval at which messages of the shards are processed while no line arrives.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that shards may wait for an idle open transaction before the shell aborts it. The shards disconnect
/// the client after five seconds.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// State of the shell.
struct Shell {
    talk: Client,
    /// Time since which the shards have been waiting for the open transaction to end.
    awaited: Option<Instant>,
    /// True if the transaction was aborted because the shards were waiting for it.
    given_up: bool,
    /// Number of lines that were answered with an error, or with an abort that was not requested.
    bad: u64,
}

/// Executes lines until standard input ends.
///
/// # Errors
/// Fails if the shards do not answer, or if a line failed and standard input is not a terminal.
pub(crate) fn run(talk: Client) -> Result<()> {
    let person = std::io::stdin().is_terminal();
    let lines = lines::of_input()?;
    let mut shell = Shell { talk, awaited: None, given_up: false, bad: 0 };
    if person {
        eprintln!("transactions by {}: {VERBS}; end with Ctrl-D", shell.talk.design().name());
    }
    loop {
        if person {
            let prompt: &[u8] = if shell.talk.is_open() { b"txn> " } else { b"> " };
            print::bytes(prompt);
        }
        let Some(line) = shell.next(&lines)? else { break };
        let line = match line {
            Err(error) if error.kind() != ErrorKind::InvalidData => return Err(error.into()),
            line => line.map_err(|error| error.to_string()),
        };
        let answer = match line.and_then(|line| parse(&line)) {
            Ok(None) => continue,
            Ok(Some(line)) => shell.answer(line)?,
            Err(words) => shell.error(&words),
        };
        print::bytes(&[&answer[..], b"\n"].concat());
    }
    if shell.talk.is_open() {
        // The input has ended, so the open transaction can no longer be committed.
        let _ = shell.talk.abort();
    }
    shell.talk.close()?;
    if shell.bad > 0 && !person {
        bail!("{} lines failed: their answers begin with ERROR or ABORTED", shell.bad);
    }
    Ok(())
}

impl Shell {
    /// Returns the next line, or `None` at the end of the input.
    fn next(&mut self, lines: &Receiver<lines::Line>) -> Result<Option<lines::Line>> {
        loop {
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.look()?,
            }
        }
    }

    /// Processes messages of the shards while no line arrives. A shard that removes the locks of a dead
    /// client waits for all transactions that were open at that time, including this one.
    fn look(&mut self) -> Result<()> {
        let awaited = sound(self.talk.idle())?;
        self.awaited = if awaited { self.awaited.or_else(|| Some(Instant::now())) } else { None };
        if self.awaited.is_some_and(|since| since.elapsed() > STANDS_STILL) {
            sound(self.talk.abort())?;
            (self.awaited, self.given_up) = (None, true);
        }
        Ok(())
    }

    fn error(&mut self, words: &str) -> Vec<u8> {
        self.bad += 1;
        format!("ERROR {words}").into_bytes()
    }

    fn aborted(&mut self, words: &str) -> Vec<u8> {
        self.bad += 1;
        format!("ABORTED {words}").into_bytes()
    }

    /// Executes a line and returns its answer.
    fn answer(&mut self, line: Line) -> Result<Vec<u8>> {
        if line == Line::Begin {
            return self.begin();
        }
        if std::mem::take(&mut self.given_up) {
            let words =
                "nothing happened: the idle transaction delayed the recovery from a dead client; BEGIN again";
            return Ok(if line == Line::Abort { b"ABORTED".to_vec() } else { self.aborted(words) });
        }
        let step = match &line {
            Line::Begin => Ok(Vec::new()),
            Line::Get(key) => self.talk.get(key).map(|value| match value {
                Some(value) => [b"VALUE ", &escape(&value)[..]].concat(),
                None => b"ABSENT".to_vec(),
            }),
            Line::Put(key, value) => self.talk.put(key, value).map(|()| b"OK".to_vec()),
            Line::Delete(key) => self.talk.delete(key).map(|()| b"OK".to_vec()),
            Line::Commit => self.talk.commit().and_then(|outcome| match outcome {
                Outcome::Committed(_) => Ok(b"COMMITTED".to_vec()),
                outcome => Err(Unfinished::Ended(outcome)),
            }),
            Line::Abort => self.talk.abort().map(|()| b"ABORTED".to_vec()),
        };
        self.say(step)
    }

    fn begin(&mut self) -> Result<Vec<u8>> {
        self.given_up = false;
        if self.talk.is_open() {
            return Ok(self.error("a transaction is open: COMMIT or ABORT it first"));
        }
        let step = self.talk.begin().map(|()| b"OK".to_vec());
        self.say(step)
    }

    fn say(&mut self, step: Step<Vec<u8>>) -> Result<Vec<u8>> {
        match step {
            Ok(answer) => Ok(answer),
            Err(Unfinished::Ended(outcome)) => Ok(self.aborted(explain(outcome))),
            Err(Unfinished::Refused(refused)) => {
                let words = self.talk.refusal(refused);
                Ok(self.error(&words))
            }
            Err(Unfinished::Lost(error)) => Err(error.into()),
        }
    }
}

/// Returns the result of a step that can only fail because the shards do not answer.
fn sound<T>(step: Step<T>) -> Result<T> {
    step.map_err(|trouble| match trouble {
        Unfinished::Lost(error) => error.into(),
        Unfinished::Refused(refused) => anyhow::anyhow!("{refused}"),
        Unfinished::Ended(outcome) => anyhow::anyhow!("{}", explain(outcome)),
    })
}
