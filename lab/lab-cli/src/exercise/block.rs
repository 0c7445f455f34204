//! `remora block exercise`: runs random operations on replicated blocks and records them.

use anyhow::{Result, bail};
use remora_check::{Step, identify, stamp};
use remora_store::block::{Finished, Operation, Outcome, Tag};

use super::{self as exercise, Answer, ExerciseArgs, Store};
use remora_service::block::Session;
use remora_store_cli::block::target::Target;

/// A session with the replicas. It reconnects by itself.
struct Replicas {
    session: Session,
    /// Steps of the operation in each slot of the window.
    places: Vec<Vec<Step>>,
    value: Vec<u8>,
}

/// Runs random operations on a block store and records them.
pub(crate) fn run(target: &Target, args: &ExerciseArgs) -> Result<()> {
    let connect = || Ok(Session::open(target.port.open()?, target.servers.find()?, args.window, true)?);
    let session = exercise::connect(args, connect)?;
    let layout = session.layout()?;
    anyhow::ensure!(args.keys <= layout.blocks, "the store has only {} blocks: reduce --keys", layout.blocks);
    let value = vec![0; layout.block_len as usize];
    let mut replicas = Replicas { session, places: Vec::new(), value };
    exercise::run(args, exercise::register, &mut replicas)?;
    Ok(replicas.session.close()?)
}

impl Store for Replicas {
    fn begin(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let started = match *steps {
            [Step::Read { key, .. }] => self.session.start(Operation::Read, key, &[])?,
            [Step::Write { key, value }] => {
                stamp(value, &mut self.value);
                self.session.start(Operation::Write, key, &self.value)?
            }
            _ => bail!("blocks support only reads and writes"),
        };
        let Some(slot) = started else { return Ok(None) };
        if self.places.len() <= slot.index() {
            self.places.resize(slot.index() + 1, Vec::new());
        }
        self.places[slot.index()] = steps.to_vec();
        Ok(Some(slot.index()))
    }

    fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<bool> {
        let places = &self.places;
        self.session.turn(|finished| {
            let place = finished.slot.index();
            ended.push((place, answer(places[place].clone(), finished)));
        })?;
        Ok(true)
    }

    fn give_up(&mut self) -> bool {
        // An operation waits for a majority of replicas. The session repeats it on each new connection.
        true
    }

    fn silence(&self) -> String {
        self.session.too_few()
    }
}

fn answer(mut steps: Vec<Step>, finished: &Finished<'_>) -> Answer {
    match finished.outcome {
        Outcome::Value(bytes) => {
            // A block that was never written reads as zeros, which is no recorded value.
            let content = (finished.tag != Tag::NEVER).then(|| identify(bytes));
            steps.iter_mut().for_each(|step| {
                if let Step::Read { value, .. } = step {
                    *value = content;
                }
            });
            Answer::Done(steps)
        }
        Outcome::Done => Answer::Done(steps),
        // Some replicas may have received the write.
        Outcome::NoBuffer => Answer::Unknown,
        Outcome::Exhausted => Answer::Refused,
    }
}
