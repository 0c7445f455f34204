//! `remora kv exercise`: runs random operations against a key-value server and records them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use remora_check::{Step, identify, stamp};
use remora_store::kv::{ClientConfig, Finished, Outcome, Refused};
use remora_store::{PostPrism, Random};

use super::{self as exercise, Answer, ExerciseArgs, Store};
use remora_service::kv::KvDesign;
use remora_service::kv::{Driver, Session};
use remora_store::kv::Machine;
use remora_store_cli::advice::start_kv;
use remora_store_cli::kv::target::Target;

/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);
/// Minimum length of a value in bytes: its 8-byte number.
const SHORTEST: usize = 8;

/// A connection to a server that is opened again when it breaks.
struct Remote<'a, D: KvDesign> {
    target: &'a Target,
    config: ClientConfig,
    session: Option<Session<D>>,
    /// True if the session has failed, with all of its operations in flight.
    broken: bool,
    tried: Instant,
    /// Reason why the last attempt to connect failed.
    fault: Option<String>,
    /// Steps of the operation in each slot of the window.
    places: Vec<Vec<Step>>,
    value: Vec<u8>,
}

fn connect<D: KvDesign>(target: &Target, config: ClientConfig) -> Result<Session<D>> {
    Session::connect(&target.port.open()?, &target.connect, config).map_err(start_kv)
}

/// Runs random operations of one design against a server and records them.
pub(crate) fn run<D: KvDesign>(target: &Target, args: &ExerciseArgs, value_len: u32) -> Result<()> {
    let config = ClientConfig {
        window: args.window.into(),
        max_key: 32,
        max_value: value_len,
        ..ClientConfig::default()
    };
    let connect = || connect::<D>(target, config);
    let session = exercise::connect(args, connect)?;
    let mut remote = Remote {
        target,
        config,
        session: Some(session),
        broken: false,
        tried: Instant::now(),
        fault: None,
        places: vec![Vec::new(); args.window.into()],
        value: vec![0; value_len as usize],
    };
    exercise::run(args, exercise::removable, &mut remote)
}

/// Returns the length of a value in bytes. It follows from the value's number and lies between 8 and
/// `longest`.
fn len_of(value: u64, longest: usize) -> usize {
    SHORTEST + Random::new(value).below((longest - SHORTEST + 1) as u64) as usize
}

impl<D: KvDesign> Store for Remote<'_, D> {
    fn begin(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let (Some(session), false) = (&mut self.session, self.broken) else { return Ok(None) };
        let [step] = *steps else { bail!("a key-value server has no transactions") };
        let key = format!("key {}", step.key());
        let key = key.as_bytes();
        let started = match step {
            Step::Read { .. } => session.begin(|client, nic| client.get(key, nic)),
            Step::Delete { .. } => session.begin(|client, nic| client.delete(key, nic)),
            Step::Write { value, .. } => {
                let len = len_of(value, self.value.len());
                let bytes = &mut self.value[..len];
                stamp(value, bytes);
                session.begin(|client, nic| client.put(key, bytes, nic))
            }
        };
        match started {
            Ok(slot) => {
                self.places[slot.index()] = steps.to_vec();
                Ok(Some(slot.index()))
            }
            Err(Refused::WindowFull) => Ok(None),
            Err(Refused::Broken(_)) => {
                self.broken = true;
                Ok(None)
            }
            Err(refused) => bail!("{refused}"),
        }
    }

    fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<bool> {
        if let Some(session) = &mut self.session {
            let mut listener = Listener { places: &self.places, ended };
            if let Err(error) = session.turn(&mut listener) {
                tracing::info!("connecting anew: {}", error.chain());
                self.broken = true;
            }
            return Ok(!(self.broken && self.give_up_session()));
        }
        if self.tried.elapsed() > AGAIN {
            let again = connect(self.target, self.config);
            self.fault = again.as_ref().err().map(|error| format!("{error:#}"));
            self.session = again.ok();
            self.tried = Instant::now();
        }
        Ok(true)
    }

    fn give_up(&mut self) -> bool {
        !self.give_up_session()
    }

    fn silence(&self) -> String {
        exercise::unanswered(&format!("the server at {}", self.target.connect), self.fault.as_deref())
    }
}

impl<D: KvDesign> Remote<'_, D> {
    /// Drops the session. Returns whether there was one.
    fn give_up_session(&mut self) -> bool {
        self.broken = false;
        self.session.take().is_some()
    }
}

/// Collects the answers of operations that have ended.
struct Listener<'a> {
    places: &'a [Vec<Step>],
    ended: &'a mut Vec<(usize, Answer)>,
}

impl Driver for Listener<'_> {
    fn wants(&mut self, _: usize) -> bool {
        false
    }

    fn start(&mut self, _: &mut impl Machine, _: &mut impl PostPrism) -> Result<(), Refused> {
        Ok(())
    }

    fn ended(&mut self, finished: &Finished<'_>) {
        let place = finished.slot.index();
        let mut steps = self.places[place].clone();
        let answer = match finished.outcome {
            Outcome::Refused(_) | Outcome::TooLong | Outcome::Contended => Answer::Refused,
            Outcome::Failed(_) => Answer::Unknown,
            outcome => {
                steps.iter_mut().for_each(|step| learn(step, outcome));
                Answer::Done(steps)
            }
        };
        self.ended.push((place, answer));
    }
}

/// Stores the result of an operation in its step.
fn learn(step: &mut Step, outcome: Outcome<'_>) {
    match (step, outcome) {
        (Step::Read { value, .. }, Outcome::Value(bytes)) => *value = Some(identify(bytes)),
        (Step::Delete { found, .. }, outcome) => *found = Some(outcome == Outcome::Done),
        _ => {}
    }
}
