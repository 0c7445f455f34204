//! `remora kv exercise`, `remora block exercise` and `remora txn exercise`: random operations on a store,
//! recorded as a history that a checker can read.

mod block;
mod cache;
pub(crate) mod commands;
mod kv;
mod progress;
mod record;
mod run;
mod txn;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use remora_check::Step;
use remora_options::number::{natural, seconds, whole};
use remora_store::Random;

pub(crate) use run::run;

/// The operations to perform, and the files for their records.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExerciseArgs {
    /// File for the history of requests and answers: lines of JSON in Jepsen's notation, with CLOCK_MONOTONIC
    /// times in nanoseconds.
    #[arg(long, value_name = "FILE", required_unless_present = "every")]
    pub history: Option<PathBuf>,
    /// Print a line of JSON at this interval, with the number and the latency of the operations that ended.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.05..=3600.0))]
    pub every: Option<f64>,
    /// Number of keys, which are numbered from 0.
    #[arg(long, default_value_t = 8, value_parser = whole::<u64>(1..=1 << 20))]
    pub keys: u64,
    /// Operations in flight; the history shows each as a separate client.
    #[arg(long, default_value_t = 4, value_parser = whole::<u16>(1..=16))]
    pub window: u16,
    /// Number of this process; processes that ever use the same store need different numbers.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=(1 << 20) - 1))]
    pub number: u32,
    /// Seed of the random operations.
    #[arg(long, default_value_t = 1, value_parser = natural::<u64>)]
    pub seed: u64,
    /// Seconds after which no further operation starts.
    #[arg(long, default_value_t = 10, value_parser = natural::<u64>)]
    pub seconds: u64,
    /// Number of operations after which no further one begins.
    #[arg(long, value_parser = natural::<u64>)]
    pub operations: Option<u64>,
    /// Maximum number of operations per second, within the limit of operations in flight [default: the next
    /// one begins as soon as one has ended].
    #[arg(long, value_parser = whole::<u32>(1..=u32::MAX))]
    pub rate: Option<u32>,
    /// Begin no operation after the end of standard input.
    #[arg(long, hide = true)]
    pub child: bool,
    /// Record some wrong answers, which a checker must detect.
    #[arg(long, hide = true)]
    pub liar: bool,
}

/// Result of an operation.
pub(crate) enum Answer {
    /// The operation took effect; the steps hold the values that it read.
    Done(Vec<Step>),
    /// The operation had no effect and never will.
    Refused,
    /// The result is unknown; the operation may still take effect.
    Unknown,
}

/// A connection to a store, which is reopened whenever it breaks.
pub(crate) trait Store {
    /// Starts an operation with these steps. Returns the slot that the operation occupies until it ends, or
    /// `None` if the store has no free slot.
    ///
    /// # Errors
    /// Fails if the store will never accept the operation.
    fn begin(&mut self, steps: &[Step]) -> anyhow::Result<Option<usize>>;

    /// Advances the connection and appends the operations that have ended. Returns false if the connection
    /// broke; no operation that was started before ends then.
    ///
    /// # Errors
    /// Fails if no further connection can be made.
    fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> anyhow::Result<bool>;

    /// Breaks the connection because an old operation has not ended. Returns false if the connection is
    /// already broken.
    fn give_up(&mut self) -> bool;

    /// Returns the reason for which no operation ends, as far as it is known.
    fn silence(&self) -> String;
}

/// Returns a message that names the process which does not answer, and the remedy.
pub(crate) fn unanswered(server: &str, fault: Option<&str>) -> String {
    match fault {
        Some(fault) => format!("{server} cannot be reached again: {fault}"),
        None => format!("{server} does not answer: continue it if it is stopped, or start it again"),
    }
}

/// Time for which a child process retries while a store is absent or too busy to answer.
const MINUTE: Duration = Duration::from_secs(60);
/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);

/// Connects for the first time. A process that a person started reports a failure at once; a child process
/// retries.
///
/// # Errors
/// The error of the last attempt to connect.
pub(crate) fn connect<T>(args: &ExerciseArgs, connect: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        match connect() {
            Err(error) if args.child && started.elapsed() < MINUTE => {
                tracing::info!("connecting again: {error:#}");
                std::thread::sleep(AGAIN);
            }
            done => return done,
        }
    }
}

/// A function that draws the steps of an operation on keys below a limit. Each written value is the next
/// number.
pub(crate) type Draw = fn(&mut Random, u64, &mut u64) -> Vec<Step>;

/// Draws a read or a write of one key, with equal probability.
pub(crate) fn register(random: &mut Random, keys: u64, value: &mut u64) -> Vec<Step> {
    let key = random.below(keys);
    vec![match random.below(2) {
        0 => Step::Read { key, value: None },
        _ => write(key, value),
    }]
}

/// Draws a read, a write or, now and then, a removal of one key.
pub(crate) fn removable(random: &mut Random, keys: u64, value: &mut u64) -> Vec<Step> {
    let key = random.below(keys);
    vec![match random.below(40) {
        0..20 => Step::Read { key, value: None },
        20..38 => write(key, value),
        _ => Step::Delete { key, found: None },
    }]
}

fn write(key: u64, value: &mut u64) -> Step {
    *value += 1;
    Step::Write { key, value: *value }
}

/// Draws a transaction on one to three keys, each of them read, written, or both.
pub(crate) fn transaction(random: &mut Random, keys: u64, value: &mut u64) -> Vec<Step> {
    let mut chosen = Vec::new();
    for _ in 0..=random.below(3) {
        let key = random.below(keys);
        if !chosen.contains(&key) {
            chosen.push(key);
        }
    }
    let mut steps = Vec::new();
    for key in chosen {
        let does = random.below(4);
        if does != 0 {
            steps.push(Step::Read { key, value: None });
        }
        if does != 1 {
            steps.push(write(key, value));
        }
    }
    steps
}
