//! Simulation runs of the evaluation, several in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow, bail};
use indicatif::ProgressBar;
use remora_scenario::experiment::irn::{Contender, Outcome, measure};
use remora_scenario::scenario::{ControlName, Scenario};

/// The identity of a run: contender, congestion control and seed.
pub(crate) type Key = (Contender, ControlName, u64);

/// The outcomes of completed runs.
#[derive(Default)]
pub(crate) struct Trials(Vec<(Key, Outcome)>);

impl Trials {
    /// Returns the outcome of the run with this key, if there is one.
    pub(crate) fn get(&self, key: Key) -> Option<&Outcome> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, outcome)| outcome)
    }
}

/// Runs the scenario of each key, `jobs` in parallel. Each run must complete all its flows and report no
/// findings.
pub(crate) fn run(
    keys: &[Key],
    jobs: usize,
    bar: &ProgressBar,
    scenario: impl Fn(Key) -> Scenario + Sync,
) -> Result<Trials> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    bar.inc_length(keys.len() as u64);
    let work = || {
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = measure(&scenario(*key), |_, _| true);
            let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            done.push((*key, outcome));
            bar.inc(1);
        }
    };
    thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let mut trials = Vec::new();
    for (key, outcome) in done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        let (contender, control, seed) = key;
        let name = format!("{} with {control}, seed {seed}", contender.name());
        let outcome = outcome.map_err(|says| anyhow!("{name}: {says}"))?;
        if outcome.unfinished > 0 || !outcome.findings.is_empty() {
            bail!("{name}: {} flows did not end; found: {:?}", outcome.unfinished, outcome.findings);
        }
        trials.push((key, outcome));
    }
    trials.sort_by_key(|((contender, control, seed), _)| (*contender, control.name(), *seed));
    Ok(Trials(trials))
}
