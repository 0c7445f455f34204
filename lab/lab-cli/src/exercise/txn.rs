//! `remora txn exercise`: runs random transactions on shards and records them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use remora_check::{Step, identify, stamp};
use remora_store::txn::{AnyClient, EntryId, Event, Machine as _, Outcome, Refused, Tx};

use super::{self as exercise, Answer, ExerciseArgs, Store};
use remora_service::txn::{Session, ShardQueues, Size};
use remora_store_cli::advice::start_shard;
use remora_store_cli::txn::target::Target;

/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);

/// A session with all shards. If one connection breaks, all of them are opened again.
struct Shards<'a> {
    target: &'a Target,
    addresses: Vec<SocketAddr>,
    size: Size,
    session: Option<Session>,
    /// True if the session has failed, with all transactions in progress.
    broken: bool,
    tried: Instant,
    /// Reason why the last attempt to connect failed.
    fault: Option<String>,
    /// Transactions in progress, by their slot.
    open: Vec<Option<Open>>,
    value: Vec<u8>,
}

/// A transaction in progress.
struct Open {
    tx: Tx,
    steps: Vec<Step>,
    /// Reads without an answer, with the index of their step.
    reads: Vec<(EntryId, usize)>,
    committing: bool,
}

fn connect(target: &Target, shards: &[SocketAddr], size: Size) -> Result<Session> {
    Session::open(&target.port.open()?, shards, size).map_err(|error| start_shard(error, shards))
}

/// Runs random transactions on a store and records them.
pub(crate) fn run(target: &Target, args: &ExerciseArgs, max_keys: u32) -> Result<()> {
    let addresses = target.servers.find()?;
    let size = Size { window: args.window.into(), max_keys };
    let session = exercise::connect(args, || connect(target, &addresses, size))?;
    let value = vec![0; session.limits().max_value as usize];
    let mut shards = Shards {
        target,
        addresses,
        size,
        session: Some(session),
        broken: false,
        tried: Instant::now(),
        fault: None,
        open: (0..args.window).map(|_| None).collect(),
        value,
    };
    exercise::run(args, exercise::transaction, &mut shards)
}

impl Store for Shards<'_> {
    fn begin(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let (Some(session), false) = (&mut self.session, self.broken) else { return Ok(None) };
        let (machine, mut ends) = session.parts()?;
        let tx = match machine.begin() {
            Ok(tx) => tx,
            Err(Refused::WindowFull) => return Ok(None),
            Err(Refused::Broken(_)) => {
                self.broken = true;
                return Ok(None);
            }
            Err(refused) => bail!("{refused}"),
        };
        let mut open = Open { tx, steps: steps.to_vec(), reads: Vec::new(), committing: false };
        match open.name(machine, &mut self.value, &mut ends) {
            Ok(()) => {}
            Err(Refused::Broken(_)) => self.broken = true,
            Err(refused) => bail!("{refused}"),
        }
        self.open[tx.index()] = Some(open);
        Ok(Some(tx.index()))
    }

    fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<bool> {
        if self.session.is_none() {
            if self.tried.elapsed() > AGAIN {
                let again = connect(self.target, &self.addresses, self.size);
                self.fault = again.as_ref().err().map(|error| format!("{error:#}"));
                self.session = again.ok();
                self.tried = Instant::now();
            }
            return Ok(true);
        }
        if let Err(error) = self.go_on(ended) {
            tracing::info!("connecting anew: {error:#}");
            self.broken = true;
        }
        Ok(!(self.broken && self.leave()))
    }

    fn give_up(&mut self) -> bool {
        !self.leave()
    }

    fn silence(&self) -> String {
        let list: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        exercise::unanswered(&format!("the shards at {}", list.join(", ")), self.fault.as_deref())
    }
}

impl Shards<'_> {
    /// Processes the completions that have arrived, and commits the transactions that have all their
    /// values.
    fn go_on(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let open = &mut self.open;
        session.turn(|shard, completion, machine, ends| {
            match machine.complete(shard, completion, ends)? {
                Some(Event::Read { tx, entry, value }) => {
                    open[tx.index()].iter_mut().for_each(|open| open.found(entry, value));
                }
                Some(Event::Ended { tx, outcome, .. }) => end(open, tx, outcome, ended),
                None => {}
            }
            Ok(())
        })?;
        let clock = session.clock();
        let (machine, mut ends) = session.parts()?;
        for place in 0..self.open.len() {
            let Some(open) = &mut self.open[place] else { continue };
            if open.committing || !open.reads.is_empty() {
                continue;
            }
            open.committing = true;
            if let Some(Event::Ended { tx, outcome, .. }) = machine.commit(open.tx, clock, &mut ends)? {
                end(&mut self.open, tx, outcome, ended);
            }
        }
        Ok(())
    }

    /// Drops the session. Returns whether there was one.
    fn leave(&mut self) -> bool {
        self.broken = false;
        self.open.iter_mut().for_each(|open| *open = None);
        self.session.take().is_some()
    }
}

/// Records the outcome of a transaction that has ended.
fn end(open: &mut [Option<Open>], tx: Tx, outcome: Outcome, ended: &mut Vec<(usize, Answer)>) {
    let Some(open) = open[tx.index()].take() else { return };
    let answer = match outcome {
        Outcome::Committed(_) => Answer::Done(open.steps),
        Outcome::Unknown(_) => Answer::Unknown,
        _ => Answer::Refused,
    };
    ended.push((tx.index(), answer));
}

impl Open {
    /// Starts the reads of the transaction and registers its writes.
    fn name(
        &mut self,
        machine: &mut AnyClient,
        value: &mut [u8],
        ends: &mut ShardQueues<'_>,
    ) -> Result<(), Refused> {
        for (index, step) in self.steps.iter().enumerate() {
            let key = format!("key {}", step.key());
            match *step {
                Step::Read { .. } => self.reads.push((machine.read(self.tx, key.as_bytes(), ends)?, index)),
                Step::Write { value: number, .. } => {
                    stamp(number, value);
                    machine.write(self.tx, key.as_bytes(), value, ends)?;
                }
                Step::Delete { .. } => {
                    machine.delete(self.tx, key.as_bytes(), ends)?;
                }
            }
        }
        Ok(())
    }

    fn found(&mut self, entry: EntryId, bytes: Option<&[u8]>) {
        let Some(place) = self.reads.iter().position(|(asked, _)| *asked == entry) else { return };
        let (_, index) = self.reads.swap_remove(place);
        if let Step::Read { value, .. } = &mut self.steps[index] {
            *value = bytes.map(identify);
        }
    }
}
