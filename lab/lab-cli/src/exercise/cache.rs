//! `remora cache exercise`: runs random operations on a cache and records them. Reads go through a chain,
//! writes through memcached's protocol.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use remora_check::{Step, identify, stamp};

use super::{self as exercise, Answer, ExerciseArgs, Store};
use remora_options::device::PortArgs;
use remora_service::cache::{ChainAnswer, Client};
use remora_store_cli::cache::connect::connect;

/// Arguments of `remora cache exercise`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  remora cache exercise --history one.jsonl\n  remora cache exercise --every 1 --connect 127.0.0.1:11212\n\nThe server must run with --chains. GETs use the chain, SETs memcached's protocol. One operation is in flight at a time; --window has no\neffect."
)]
pub(crate) struct CacheExerciseArgs {
    /// Address for Remora clients (host:port): the server's --chains.
    #[arg(long, default_value = "127.0.0.1:11212")]
    connect: String,
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    exercise: ExerciseArgs,
}

/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);
/// Length of a value in bytes.
const LEN: usize = 64;

/// A connection to the cache that is opened again when it breaks.
struct Remote<'a> {
    args: &'a CacheExerciseArgs,
    client: Option<Client>,
    /// The operation in progress.
    asked: Option<Asked>,
    tried: Instant,
    fault: Option<String>,
}

struct Asked {
    step: Step,
    /// Answer of an operation that has already ended: a SET, or a GET that could not be started.
    answer: Option<Answer>,
}

/// Runs random operations on a cache and records them.
pub(crate) fn run(args: &CacheExerciseArgs) -> Result<()> {
    let client = exercise::connect(&args.exercise, || connect(&args.port, &args.connect))?;
    let tried = Instant::now();
    let mut remote = Remote { args, client: Some(client), asked: None, tried, fault: None };
    exercise::run(&args.exercise, exercise::register, &mut remote)
}

fn name(key: u64) -> String {
    format!("key-{key}")
}

impl Store for Remote<'_> {
    fn begin(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let (Some(client), None) = (&mut self.client, &self.asked) else { return Ok(None) };
        let [step] = *steps else { bail!("a cache has no transactions") };
        let answer = match step {
            Step::Read { key, .. } => client.begin(name(key).as_bytes()).err().map(|error| {
                tracing::info!("asking by the chain: {error:#}");
                Answer::Unknown
            }),
            Step::Write { key, value } => {
                let mut bytes = [0; LEN];
                stamp(value, &mut bytes);
                Some(client.set(&name(key), &bytes).map_or(Answer::Unknown, |()| Answer::Done(vec![step])))
            }
            Step::Delete { .. } => bail!("this exercise has no deletes"),
        };
        self.asked = Some(Asked { step, answer });
        Ok(Some(0))
    }

    fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<bool> {
        let Some(client) = &mut self.client else {
            if self.tried.elapsed() > AGAIN {
                let again = connect(&self.args.port, &self.args.connect);
                self.fault = again.as_ref().err().map(|error| format!("{error:#}"));
                self.client = again.ok();
                self.tried = Instant::now();
            }
            return Ok(true);
        };
        let Some(asked) = &mut self.asked else { return Ok(true) };
        let answer = match (asked.answer.take(), asked.step) {
            (Some(answer), _) => answer,
            (None, Step::Read { key, .. }) => match client.look(name(key).as_bytes()) {
                Ok(None) => return Ok(true),
                // The chain found no item for the key. Only the server knows whether there is one.
                Ok(Some(ChainAnswer::Nothing)) => {
                    found(key, client.fall_back(&name(key)).map_err(Into::into))
                }
                Ok(Some(ChainAnswer::Value(value))) => found(key, Ok(Some(value))),
                Err(error) => found(key, Err(error.into())),
            },
            (None, _) => Answer::Unknown,
        };
        if matches!(answer, Answer::Unknown) {
            return Ok(self.give_up());
        }
        self.asked = None;
        ended.push((0, answer));
        Ok(true)
    }

    fn give_up(&mut self) -> bool {
        self.asked = None;
        self.client.take().is_none()
    }

    fn silence(&self) -> String {
        exercise::unanswered(&format!("the cache at {}", self.args.connect), self.fault.as_deref())
    }
}

/// Returns the answer of a GET with this result.
fn found(key: u64, value: Result<Option<Vec<u8>>>) -> Answer {
    match value {
        Ok(value) => Answer::Done(vec![Step::Read { key, value: value.as_deref().map(identify) }]),
        Err(error) => {
            tracing::info!("a GET: {error:#}");
            Answer::Unknown
        }
    }
}
