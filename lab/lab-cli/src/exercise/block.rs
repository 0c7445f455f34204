//! `remora block exercise`: replicated blocks as a store of numbered registers.

use anyhow::{Result, bail};
use remora_check::{Step, identify, stamp};
use remora_store::block::{Finished, Operation, Outcome, Tag};

use super::{self as exercise, Answer, ExerciseArgs, Store};
use remora_service::block::Session;
use remora_store_cli::block::target::Target;

/// Connections to the replicas, which the session makes anew by itself.
struct Replicas {
    session: Session,
    /// What each place does.
    places: Vec<Vec<Step>>,
    value: Vec<u8>,
}

/// Exercises a store of blocks.
pub fn run(target: &Target, args: &ExerciseArgs) -> Result<()> {
    let connect = || Ok(Session::open(target.port.open()?, target.servers.find()?, args.window, true)?);
    let session = exercise::connect(args, connect)?;
    let layout = session.layout()?;
    anyhow::ensure!(args.keys <= layout.blocks, "there are {} blocks: ask for fewer --keys", layout.blocks);
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
            _ => bail!("a block is read or written"),
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
        // An operation waits for a majority, and begins anew with each connection.
        true
    }

    fn silence(&self) -> String {
        self.session.too_few()
    }
}

fn answer(mut steps: Vec<Step>, finished: &Finished<'_>) -> Answer {
    match finished.outcome {
        Outcome::Value(bytes) => {
            // A block that was never written reads as zeros.
            let found = (finished.tag != Tag::NEVER).then(|| identify(bytes));
            steps.iter_mut().for_each(|step| {
                if let Step::Read { value, .. } = step {
                    *value = found;
                }
            });
            Answer::Done(steps)
        }
        Outcome::Done => Answer::Done(steps),
        // Some replicas may have it.
        Outcome::NoBuffer => Answer::Unknown,
        Outcome::Exhausted => Answer::Refused,
    }
}
